"""The service on a fake broker with a manual clock: send, advance the clock, look what was delivered.

It is the service's own loop. It goes round when something is sent and when the clock comes to where something is due,
and takes no time itself: what is due at the moment that the clock was advanced to is delivered, and nothing else.
"""

import json
import random
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from tarry.client.record import IntakeRecord
from tarry.client.retry.consumer import RetryingConsumer
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check, make_or_check_status
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, RESULTS, TopicAdmin
from tarry.service.worker import Plan, Worker
from tarry.service.worker.plan import IntakePlan
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
"""For what the service does now and then, besides what is due."""
_TRY_AGAIN_MS: Final = 100
"""While something waits for a target that is away."""
_IDLE_TURNS: Final = 10
"""So many turns in which nothing happens are taken for: what is due waits for a target."""


class FakeService(FakeSending):
    """The service, its intake and a cluster, in one thread and on one clock; the same each time.

    It takes the calls of a `DelayedProducer`, so it can stand in for one, and its `aio` for an `AsyncDelayedProducer`;
    `start` runs a `RetryingConsumer`.

    Example:
        fake = FakeService()
        fake.make_topic("orders")
        fake.send("orders", b"...", delay=timedelta(minutes=15))
        fake.clock.advance(15 * 60_000)
        assert [record.value for record in fake.delivered("orders")] == [b"..."]

    Args:
        intake: its topic.
        partitions: of the intake.
        targets: globs of what may be sent to.
        max_delay: the longest that is accepted.
    """

    def __init__(
        self,
        intake: str = "tarry.delayed",
        *,
        partitions: int = 1,
        targets: Iterable[str] = ("*",),
        max_delay: timedelta = timedelta(days=30),
    ) -> None:
        self.intake = intake
        self.clock = ManualClock()
        """Of everything here."""
        self.broker = FakeBroker(self.clock)
        """The cluster, whose `clients` are for the programs under test."""
        self._partitions = {intake: partitions}
        self._random = random.Random(0)
        self._make_intake(partitions)
        self._worker = self._make_worker(targets, max_delay)
        self._consumers = FakeConsumers(self.broker, self.clock)
        self._is_settling = False
        self._wakes_at_ms: int | None = None
        self._begin()

    def make_topic(self, topic: str, partitions: int = 1) -> str:
        """Make a topic to send to; returns its name."""
        self.broker.make_topic(topic, partitions)
        self._partitions[topic] = partitions
        return topic

    def configure(self, *, targets: Iterable[str] = ("*",), max_delay: timedelta = timedelta(days=30)) -> None:
        """Restart the service with other settings, as an operator would; it takes some milliseconds of the clock."""
        self._worker.hand_over()
        self._worker.close()
        self._worker = self._make_worker(targets, max_delay)
        self._begin()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write a record to a topic of `make_topic`, as any producer would: for consumers that were started."""
        partition = choose("murmur2_random", key, self._partitions[topic], self._random)
        self.broker.append(topic, key, value, list(headers), partition)
        self._settle()

    def start(self, consumer: RetryingConsumer) -> None:
        """Run a `RetryingConsumer` here instead of where it was made for, until its `stop()`.

        Its handler runs in the test's thread, when there is something for it and as the clock advances. Joining the
        group takes some milliseconds of the clock.

        Args:
            consumer: with this intake; its addresses, options and clock do not count.

        Raises:
            UsageError: a topic is missing or is not as it must be, or the intake is unfit for it.
        """
        self._consumers.start(consumer)
        self._begin()

    def delivered(self, topic: str) -> list[Record]:
        """What a topic holds at this moment, partition by partition, for a `read_committed` reader."""
        self._settle()
        return [
            record for number in range(self.broker.partitions(topic)) for record in self.broker.records(topic, number)
        ]

    def dead(self) -> list[Record]:
        """What could never be delivered, with the reason among its headers."""
        return self._beside_intake(DEAD)

    def outcomes(self) -> list[dict[str, Any]]:
        """The results so far, as the service wrote them, partition by partition."""
        return [json.loads(record.value) for record in self._beside_intake(RESULTS) if record.value is not None]

    # -- of a producer's face -------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self.clock.now_ms()

    def _append(self, record: IntakeRecord, partition: int | None) -> tuple[int, int]:
        if partition is None:
            partition = choose("murmur2_random", record.key, self._partitions[self.intake], self._random)
        return partition, self.broker.append(self.intake, record.key, record.value, record.headers, partition)

    # -- its parts --------------------------------------------------------------------------------------------------

    def _make_intake(self, partitions: int) -> None:
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        give = Birth(cluster, admin, _GROUP, self.clock).give
        before_intake = partial(give, self.intake, partitions, _IN_MEMORY)
        topics = TopicAdmin(admin)
        make_or_check(topics, self.intake, partitions, 1, _IN_MEMORY, fixed_delay=False, before_intake=before_intake)
        make_or_check_status(topics, self.intake, 1)

    def _make_worker(self, targets: Iterable[str], max_delay: timedelta) -> "_PatientWorker":
        longest_ms = max_delay // timedelta(milliseconds=1)
        policy = IntakePolicy(self.intake, tuple(targets), longest_ms, intakes=frozenset({self.intake}))
        cluster = Cluster("fake", {}, self.broker.clients("service"))
        plan = Plan(
            cluster=cluster,
            group=_GROUP,
            # A month may pass between two turns, and nobody else is there to take over meanwhile.
            member=cluster.member(_GROUP, "classic", None) | {"max.poll.interval.ms": _YEAR_MS},
            name=f"{_GROUP}.fake",
            intakes={self.intake: IntakePlan(RequestReader(policy), False, _IN_MEMORY, 10 * _YEAR_MS)},
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
        all_there = len(view.states) == self._partitions[self.intake] and not view.replaying
        return all_there and self._worker.has_published

    def _turn(self) -> None:
        self._worker.turn()
        self._consumers.turn()

    def _settle(self) -> None:
        """Let the loop go round until there is nothing to do at this moment, and see to it that it does later on."""
        if self._is_settling:  # a handler has sent something
            return
        self._is_settling = True
        try:
            idle, before = 0, None
            while idle < _IDLE_TURNS and not self._is_quiet():
                self._turn()
                seen = self._seen()
                idle = idle + 1 if seen == before else 0
                before = seen
            self._turn()
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
        """What grows with all that the loop does."""
        numbers = range(self._partitions[self.intake])
        read = [state.position for state in self._worker.look().states.values()]
        return read + self._consumers.seen() + [self.broker.end(self.intake + RESULTS, number) for number in numbers]

    def _wake_later(self) -> None:
        now_ms = self.clock.now_ms()
        states = self._worker.look().states.values()
        wait_ms = _TRY_AGAIN_MS if any(state.parked.by_target() for state in states) else _LOOK_EVERY_MS
        for state in states:
            due_ms = state.next_due_ms()
            if due_ms is not None and due_ms > now_ms:
                wait_ms = min(wait_ms, due_ms - now_ms)
        wakes_at_ms = self.clock.monotonic_ms() + self._consumers.wait_ms(wait_ms)
        if self._wakes_at_ms is None or wakes_at_ms < self._wakes_at_ms:
            self._wakes_at_ms = wakes_at_ms
            self.clock.call_at(wakes_at_ms, partial(self._wake, wakes_at_ms))

    def _wake(self, at_ms: int) -> None:
        if at_ms == self._wakes_at_ms:  # else an earlier call has taken its place
            self._wakes_at_ms = None
            self._settle()

    def _beside_intake(self, suffix: str) -> list[Record]:
        self._settle()
        topic = self.intake + suffix
        return [one for number in range(self._partitions[self.intake]) for one in self.broker.records(topic, number)]


class _PatientWorker(Worker):
    """One that waits for nothing in its turns: time passes between them."""

    @property
    def has_published(self) -> bool:
        """Whether clients can read what it accepts."""
        return self._publishing.is_done

    def _patience_ms(self) -> int:
        return 0
