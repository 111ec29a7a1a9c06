"""The service on a fake broker with a manual clock: send, advance the clock, and check the deliveries.

The fake runs the service's real loop. The loop runs when a message is sent and when the clock reaches a due time, and
it takes no time on that clock. So exactly the messages that are due at the new time are delivered.
"""

import json
import random
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from tarry.client.record import IntakeRecord
from tarry.client.retry.consumer import RetryingConsumer
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.pause import Pause
from tarry.core.request.reader import RequestReader
from tarry.kafka.birth import Birth
from tarry.kafka.control_log import control_log_of
from tarry.kafka.intake_topics import control_topic, make_or_check, make_or_check_topic, status_topic
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, RESULTS, TopicAdmin
from tarry.service.worker import Plan, Worker
from tarry.service.worker.plan import NAMES_LIMIT, IntakePlan
from tarry.testing.fake import FakeBroker, Record
from tarry.testing.fake.partitioner import choose
from tarry.testing.fake_consumers import FakeConsumers
from tarry.testing.fake_sending import FakeSending
from tarry.testing.manual_clock import ManualClock

_GROUP: Final = "tarry"
_IN_MEMORY: Final = Geometry(20_000, 10, 0)
_YEAR_MS: Final = 365 * 86_400_000
_BEGIN_WITHIN_MS: Final = 60_000
_LOOK_EVERY_MS: Final = 3_600_000
"""How often the loop runs while nothing is due, for the service's periodic work."""
_TRY_AGAIN_MS: Final = 100
"""How often the loop runs while messages wait for an unavailable target that is not paused."""
_IDLE_TURNS: Final = 10
"""After this many turns without a change, the due messages are assumed to wait for an unavailable target."""


class FakeService(FakeSending):
    """The service, its intake and a fake cluster, in one thread and on one clock. Each run is the same.

    It has the methods of a `DelayedProducer`, so a test can pass it to code that needs one; `aio` replaces an
    `AsyncDelayedProducer` in the same way. `start` runs a `RetryingConsumer`.

    Example:
        fake = FakeService()
        fake.make_topic("orders")
        fake.send("orders", b"...", delay=timedelta(minutes=15))
        fake.clock.advance(15 * 60_000)
        assert [record.value for record in fake.delivered("orders")] == [b"..."]

    Args:
        intake: the topic of the intake.
        partitions: the number of partitions of the intake.
        targets: globs over the topics that may be targets.
        max_delay: the longest delay that the intake accepts.
        names_limit: the most names under which messages wait, in each partition.
    """

    def __init__(
        self,
        intake: str = "tarry.delayed",
        *,
        partitions: int = 1,
        targets: Iterable[str] = ("*",),
        max_delay: timedelta = timedelta(days=30),
        names_limit: int = NAMES_LIMIT,
    ) -> None:
        self.intake = intake
        self.clock = ManualClock()
        """The clock of the service, the cluster and the consumers."""
        self.broker = FakeBroker(self.clock)
        """The cluster. Its `clients` are for the programs under test."""
        self._partitions = {intake: partitions}
        self._random = random.Random(0)
        self._make_intake(partitions)
        self._worker = self._make_worker(targets, max_delay, names_limit)
        self._consumers = FakeConsumers(self.broker, self.clock)
        self._is_settling = False
        self._wakes_at_ms: int | None = None
        self._begin()

    def make_topic(self, topic: str, partitions: int = 1) -> str:
        """Create a topic to send to; return its name."""
        self.broker.make_topic(topic, partitions)
        self._partitions[topic] = partitions
        return topic

    def configure(
        self,
        *,
        targets: Iterable[str] = ("*",),
        max_delay: timedelta = timedelta(days=30),
        names_limit: int = NAMES_LIMIT,
    ) -> None:
        """Restart the service with other settings, as an operator would. The clock advances by some milliseconds."""
        self._worker.hand_over()
        self._worker.close()
        self._worker = self._make_worker(targets, max_delay, names_limit)
        self._begin()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write a record to a topic of `make_topic`, as a plain producer would, for consumers of `start`."""
        partition = choose("murmur2_random", key, self._partitions[topic], self._random)
        self.broker.append(topic, key, value, list(headers), partition)
        self._settle()

    def start(self, consumer: RetryingConsumer) -> None:
        """Run a `RetryingConsumer` on the fake cluster instead of its own, until its `stop()`.

        Its handler runs in the test's thread, whenever there is a message for it and the clock advances. While the
        consumer joins its group, the clock advances by some milliseconds.

        Args:
            consumer: a consumer for this intake. Its addresses, options and clock are ignored.

        Raises:
            UsageError: a topic is missing or has wrong settings, or the consumer cannot use the intake.
        """
        self._consumers.start(consumer)
        self._begin()

    def pause(self, topic: str, reason: str = "a test", until: datetime | None = None) -> None:
        """Pause a target, as `tarry pause` does: its messages wait until `resume`, or until a time.

        Args:
            topic: the target.
            reason: why.
            until: when the pause ends by itself; None: never. It has a time zone.
        """
        until_ms = None if until is None else round(until.timestamp() * 1_000)
        self._decide(Pause(topic, paused=True, reason=reason, who="test", at_ms=self._now_ms(), until_ms=until_ms))

    def resume(self, topic: str, reason: str = "a test") -> None:
        """Resume a target, as `tarry resume` does: what has become due meanwhile is delivered, in order."""
        self._decide(Pause(topic, paused=False, reason=reason, who="test", at_ms=self._now_ms()))

    def delivered(self, topic: str) -> list[Record]:
        """Return the records that a `read_committed` reader sees in a topic now, partition by partition."""
        self._settle()
        return [
            record for number in range(self.broker.partitions(topic)) for record in self.broker.records(topic, number)
        ]

    def dead(self) -> list[Record]:
        """Return the dead letters so far, partition by partition. Their headers have the reason."""
        return self._beside_intake(DEAD)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the results so far as the service wrote them, partition by partition."""
        return [json.loads(record.value) for record in self._beside_intake(RESULTS) if record.value is not None]

    # -- for the methods of a producer ----------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self.clock.now_ms()

    def _append(self, record: IntakeRecord, partition: int | None) -> tuple[int, int]:
        if partition is None:
            partition = choose("murmur2_random", record.key, self._partitions[self.intake], self._random)
        return partition, self.broker.append(self.intake, record.key, record.value, record.headers, partition)

    def _decide(self, pause: Pause) -> None:
        """Write a decision about a target, and let the service obey it."""
        log = control_log_of(self.intake)
        self.broker.append(log[0], pause.key(), pause.value(), [], log[1])
        end = self.broker.end(*log)
        ends_ms = self.clock.monotonic_ms() + _BEGIN_WITHIN_MS
        while not self._worker.obeys(end):
            if self.clock.monotonic_ms() > ends_ms:
                raise AssertionError(f"the service on the fake broker does not obey: {pause}")
            self._turn()
            self.clock.advance(1)
        self._settle()

    # -- its parts --------------------------------------------------------------------------------------------------

    def _make_intake(self, partitions: int) -> None:
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        give = Birth(cluster, admin, _GROUP, self.clock).give
        before_intake = partial(give, self.intake, partitions, _IN_MEMORY)
        topics = TopicAdmin(admin)
        make_or_check(topics, self.intake, partitions, 1, _IN_MEMORY, fixed_delay=False, before_intake=before_intake)
        make_or_check_topic(topics, status_topic(self.intake, 1))
        make_or_check_topic(topics, control_topic(self.intake, 1))

    def _make_worker(self, targets: Iterable[str], max_delay: timedelta, names_limit: int) -> "_PatientWorker":
        longest_ms = max_delay // timedelta(milliseconds=1)
        policy = IntakePolicy(self.intake, tuple(targets), longest_ms, intakes=frozenset({self.intake}))
        cluster = Cluster("fake", {}, self.broker.clients("service"))
        plan = Plan(
            cluster=cluster,
            group=_GROUP,
            # The test may advance the clock by a month between two polls, and no other member exists.
            member=cluster.member(_GROUP, "classic", None) | {"max.poll.interval.ms": _YEAR_MS},
            name=f"{_GROUP}.fake",
            intakes={self.intake: IntakePlan(RequestReader(policy), False, _IN_MEMORY, 10 * _YEAR_MS, names_limit)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=0,
            most=5_000,
        )
        return _PatientWorker(plan, self.clock, lambda: False, lambda _event, **_fields: None)

    # -- its turns --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        ends_ms = self.clock.monotonic_ms() + _BEGIN_WITHIN_MS
        while not self._is_served() or not self._consumers.all_joined:
            if self.clock.monotonic_ms() > ends_ms:
                raise AssertionError("the service on the fake broker, or a consumer, has not taken its partitions over")
            self._turn()
            self.clock.advance(1)
        self._settle()

    def _is_served(self) -> bool:
        view = self._worker.look()
        all_there = len(view.states) == self._partitions[self.intake] and not view.not_firing
        return all_there and self._worker.has_published

    def _turn(self) -> None:
        self._worker.turn()
        self._consumers.turn()

    def _settle(self) -> None:
        """Run the loop until there is nothing to do at this time, and schedule its next run."""
        if self._is_settling:  # a handler, which runs inside the loop, has sent a message
            return
        self._is_settling = True
        try:
            idle, before = 0, None
            is_done = False
            while not is_done:
                while idle < _IDLE_TURNS and not self._is_quiet():
                    self._turn()
                    seen = self._seen()
                    idle = idle + 1 if seen == before else 0
                    before = seen
                self._turn()
                # That turn may have written the next record of a schedule.
                is_done = idle >= _IDLE_TURNS or self._is_quiet()
        finally:
            self._is_settling = False
            self._wake_later()

    def _is_quiet(self) -> bool:
        now_ms = self.clock.now_ms()
        return self._consumers.are_quiet and all(
            state.position == self.broker.end(*place) and ((due_ms := state.next_due_ms()) is None or due_ms > now_ms)
            for place, state in self._worker.look().states.items()
        )

    def _seen(self) -> list[int]:
        """Return positions and ends, at least one of which grows whenever the loop makes progress."""
        numbers = range(self._partitions[self.intake])
        read = [state.position for state in self._worker.look().states.values()]
        return read + self._consumers.seen() + [self.broker.end(self.intake + RESULTS, number) for number in numbers]

    def _wake_later(self) -> None:
        now_ms = self.clock.now_ms()
        states = self._worker.look().states.values()
        paused = self._worker.pauses(self.intake)
        waits_for = {target for state in states for target in state.parked.by_target()}
        wait_ms = _LOOK_EVERY_MS if waits_for <= paused.keys() else _TRY_AGAIN_MS
        for target in waits_for & paused.keys():
            if (until_ms := paused[target].until_ms) is not None:
                wait_ms = min(wait_ms, until_ms - now_ms)
        for state in states:
            due_ms = state.next_due_ms()
            if due_ms is not None and due_ms > now_ms:
                wait_ms = min(wait_ms, due_ms - now_ms)
        wakes_at_ms = self.clock.monotonic_ms() + self._consumers.wait_ms(wait_ms)
        if self._wakes_at_ms is None or wakes_at_ms < self._wakes_at_ms:
            self._wakes_at_ms = wakes_at_ms
            self.clock.call_at(wakes_at_ms, partial(self._wake, wakes_at_ms))

    def _wake(self, at_ms: int) -> None:
        if at_ms == self._wakes_at_ms:  # else an earlier call was scheduled instead
            self._wakes_at_ms = None
            self._settle()

    def _beside_intake(self, suffix: str) -> list[Record]:
        self._settle()
        topic = self.intake + suffix
        return [one for number in range(self._partitions[self.intake]) for one in self.broker.records(topic, number)]


class _PatientWorker(Worker):
    """A worker whose turns do not wait: the test's clock advances between them."""

    @property
    def has_published(self) -> bool:
        """Whether the worker has published its status, in which clients read what the intake accepts."""
        return self._parts.publishing.is_done

    def pauses(self, intake: str) -> dict[str, Pause]:
        """Return the pauses in force, by target."""
        return {pause.target: pause for pause in self._parts.pausing.pauses().get(intake, ())}

    def obeys(self, end: int) -> bool:
        """Whether all partitions have confirmed that they obey the log of pauses up to an offset."""
        states = self.look().states.values()
        return all(state.obeyed is not None and state.obeyed.offset >= end for state in states)

    def _patience_ms(self) -> int:
        return 0
