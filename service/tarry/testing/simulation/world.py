"""A simulated world in one thread: a fake cluster, processes of the service, senders, readers and a clock.

The world uses no real clock and no other randomness than its seed, so the same seed gives the same run, step by step.
The clock advances when a client waits, and after a round in which no client has waited.
"""

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final, Literal

from confluent_kafka import Consumer, Message, TopicPartition

from tarry.core.murmur2 import partition_of
from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.journal import encode_done
from tarry.core.progress.log_order import AHEAD_MS
from tarry.core.progress.source import PARKED as PARKED_LOG
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import read_filed, target_of
from tarry.core.wheel.overflow import USUAL, Upkeep
from tarry.core.window.parked import PARK_AFTER_MS
from tarry.errors import MembershipLostError
from tarry.headers import (
    CANCEL,
    CANCEL_NAME,
    DELAY_MS,
    DELIVER_AT,
    DUE_MS,
    ID,
    IF,
    NAME,
    OCCURRENCE,
    PARTITION,
    PURGE,
    SCHEDULE,
    SOURCE,
    STUB,
    TARGET,
)
from tarry.kafka.adoption import Adoption
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import control_topic, make_or_check, make_or_check_topic, status_topic
from tarry.kafka.partition_logs import logs_of
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS, TRANSACTION_TIMEOUT_MS, Cluster
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, TopicAdmin, wheel_topic
from tarry.kafka.types import Place
from tarry.service.worker.aside import TRY_EVERY_MS
from tarry.service.worker.plan import IntakePlan
from tarry.testing.fake import FakeBroker, Fate, Step
from tarry.testing.judge import Report
from tarry.testing.manual_clock import ManualClock
from tarry.testing.simulation.duplicates import SeenResult
from tarry.testing.simulation.known import Known
from tarry.testing.simulation.limits import Limits, drawn, expiry
from tarry.testing.simulation.naming import SentNamed
from tarry.testing.simulation.oracle import Seen, check, check_log_order
from tarry.testing.simulation.pace import IDLE_MS, Pace
from tarry.testing.simulation.pausing import PausedTarget, PausedTargets
from tarry.testing.simulation.process import Crash, Disturbance, Process, Role
from tarry.testing.simulation.repeating import Occurred, Repeating, SentRepeating
from tarry.testing.simulation.sent import Sent, SentCancel, SentPurge

INTAKE = "in"
GROUP = "group"
NO_LEVELS = Geometry(20_000, 10, 0)
SMALL_LEVELS = Geometry(400, 2, 3)
"""Three levels, with buckets of 0.4, 0.8 and 1.6 s: all of them turn within seconds."""

LARGE_LEVELS = Geometry(2_000, 2, 2)
"""Two levels, for a cluster whose transactions take up to a second each."""

KEYS = 6
NAMES = (b"a", b"b")
CANCELS_BY_NAME = 0.15
"""The share of cancels among named records."""
LARGE_BYTES = 1_200_000
"""A size that every topic refuses."""
APART_BYTES = 300_000
"""A size with which a dead letter goes in a transaction of letters only."""
WIDE_BYTES = 1_114_124
"""The message limit with which the service creates the internal topics of an intake."""
PATIENCE_MS = 20_000
"""How long after its due time a message must be visible, if there is no disturbance.

It covers a session timeout of 6 s, a take-over, and, for a target that does not exist, the time until that is sure.
"""
CATCH_UP_MS = 45_000
"""Added to that when buckets must be closed one after the other, each with one or two commits that take a second."""
LONG_JOURNAL_MS = 60_000
"""Added to that when journals are slow to read."""
SETTLE_MS = 120_000
EMPTIED_MS = 12_000
"""The time after which every bucket is past its end and is emptied."""
LEADERLESS_MS = (500, 40_000)
"""How long a partition of the intake's topics may have no leader: minimum and maximum."""
TRIED_AGAIN_MS = TRY_EVERY_MS + 5_000
"""How long a partition may still be quarantined after its fault was repaired."""
FOREIGN = b"not of tarry"
REQUEST_TIMEOUT_MS = 10_000
"""How long a client of the service waits for an answer before it repeats the request."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a world.

    Attributes:
        protocol: the protocol of the group.
        static: whether processes are static members.
        partitions: the number of partitions of the intake.
        processes: the number of processes of the service.
        targets: the target topics, and the number of partitions of each.
        marker_lag_ms: how long each marker of a transaction takes: minimum and maximum.
        latency_ms: how long a request takes: minimum and maximum.
        fetch_most: the largest number of records in a fetch, so that a replay takes several fetches.
        tick_ms: the tick of the wheel; due times are rounded up to a multiple of it.
        most: the largest number of messages in a transaction.
        most_to_file: how many messages may wait to be filed before others are passed over.
        upkeep: how often the levels' logs are looked after.
        memory_budget_bytes: the memory budget of a process.
        poison: the share of messages that can only become dead letters.
        large: the share of these that fit only into a compressed batch.
        cancels: the probability of a cancel after each message.
        again: the probability of a duplicate after each message, as if an acknowledgement had come too late.
        schedules: the share of messages that are schedules. Some of these records are cancels by name.
        names: the share of messages that have a name. Some of these records are cancels by name.
        expiring: the share of messages that expire, some of them before they are due.
        windows: the share of messages that have a window.
        aborts: with random disturbances, the probability that a request to end a transaction, or to send offsets to it,
            is answered that the transaction must be aborted.
        geometry: the shape of the overflow wheel.
        fixed_delay_ms: the fixed delay of the intake, whose target is then the first one; None: messages have headers
            with due time and target.
        journal_fetch_ms: how long a fetch of a journal takes that returns records, for long take-overs.
        max_poll_ms: the maximum poll interval.
        park_after_ms: how long a message stays in memory before it is filed to the parked log.
        pauses: whether targets can be paused.
        is_fine: whether time passes in small steps also while nothing happens.
    """

    protocol: Literal["classic", "consumer"] = "classic"
    static: bool = False
    partitions: int = 2
    processes: int = 2
    targets: tuple[tuple[str, int], ...] = (("orders", 2), ("bills", 1))
    marker_lag_ms: tuple[int, int] = (0, 0)
    latency_ms: tuple[int, int] = (0, 1)
    fetch_most: int = 20
    tick_ms: int = 1
    most: int = 20
    most_to_file: int = 10_000
    upkeep: Upkeep = USUAL
    memory_budget_bytes: int = 1 << 30
    poison: float = 0.05
    large: float = 0.0
    cancels: float = 0.0
    again: float = 0.0
    names: float = 0.0
    schedules: float = 0.0
    expiring: float = 0.0
    windows: float = 0.0
    aborts: float = 0.0
    geometry: Geometry = NO_LEVELS
    fixed_delay_ms: int | None = None
    journal_fetch_ms: int = 0
    max_poll_ms: int = MAX_POLL_INTERVAL_MS
    park_after_ms: int = PARK_AFTER_MS
    pauses: bool = False
    is_fine: bool = False


def nothing(_process: Process, _step: Step) -> None:
    """Disturb nothing."""


def _source_of(headers: Any) -> str:
    """Return the position of a delivered message in the intake; empty for a dead letter, which does not have it."""
    return (dict(headers or []).get(SOURCE) or b"").decode()


@dataclass(slots=True)
class _Restart:
    at_ms: int
    process: Process


@dataclass(slots=True)
class _Waiting:
    """A message that has not become visible yet, and how long it has been due."""

    message: Sent
    due_since_ms: int | None = None
    told: bool = False
    has_stub: bool = False
    """Whether it has a stub: it waits until a topic's limit is raised and its partition is taken over."""


AMPLE_BYTES = 1 << 24
"""A memory budget with which no delivered message is forgotten early in a run."""


class World:
    """The world of one run.

    Args:
        seed: the seed of all random choices.
        shape: the parameters.
        disturb: called at every step of every process.
    """

    group: Final = GROUP

    def __init__(self, seed: int, shape: Shape | None = None, disturb: Disturbance = nothing) -> None:
        self.seed = seed
        self.shape = shape = shape or Shape()
        self.disturb = disturb
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.broker = FakeBroker(
            self.clock,
            seed=seed,
            marker_lag_ms=shape.marker_lag_ms,
            latency_ms=shape.latency_ms,
            fetch_most=shape.fetch_most,
        )
        self._pace = Pace(self.broker, is_fine=shape.is_fine)
        self.sent: list[Sent] = []
        self.cancels: list[SentCancel] = []
        self.purges: list[SentPurge] = []
        self.named: list[SentNamed] = []
        self.strangers: list[str] = []  # the places of records that another program has written to logs of levels
        self.repeating = Repeating()
        self.events: list[tuple[str, str, Mapping[str, Any]]] = []
        """The events so far: process, name of the event, fields."""
        self.away: set[str] = set()
        """Targets without leaders."""
        self.leaderless: dict[Place, Place] = {}
        """Internal partitions without a leader, each with the intake partition that waits for it."""
        self.held: set[Place] = set()
        """Intake partitions that cannot fire until a fault is repaired."""
        self._interrupted: set[str] = set()
        """The names of processes that were interrupted at least once, possibly inside a transaction."""
        self.leader_behind_ms = 0
        """How far the clock of the intake's leader is behind, or ahead if negative. Log-append times use that clock."""
        self._latest_ms = 0
        self.disturbed_ms = 0
        """The monotonic time when the last disturbance ended."""
        self._former: set[bytes] = set()
        """The ids of messages of deleted intakes, for which nothing is promised."""
        self._forgotten = 0
        self.survivors: set[bytes] = set()
        """Those of these ids that were still seen afterwards."""
        self._repeated: set[bytes] = set()
        """The ids of messages that were sent before an intake was adopted: they may be delivered again."""
        self._unread: dict[Place, list[Sent | SentCancel | SentNamed]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._owners: dict[Place, str] = {}
        self._known = Known()
        self._stuck: list[str] = []
        self._restarts: list[_Restart] = []
        self._seen: dict[str, list[Seen]] = {"delivered": [], DEAD: [], RESULTS: []}
        self.stubs: list[bytes] = []
        """The values of the header `tarry-stub` among the dead letters. Each names a record that is not done."""
        self._paused = 0
        self._narrowed: set[str] = set()
        self._last_due_ms: dict[Place, int] = {}
        self._reader = self._build()
        self.pausing = PausedTargets(INTAKE, GROUP, shape.partitions, self.broker)
        self.processes = [self._new(f"p{number}") for number in range(shape.processes)]

    # -- its parts --------------------------------------------------------------------------------------------------

    def _build(self) -> Consumer:
        """Create the topics; return a reader of all that is delivered, and of dead letters and results."""
        self._prepare()
        for topic, count in self.shape.targets:
            self.broker.make_topic(topic, count)
        return self._read()

    def _role(self) -> Role:
        shape = self.shape
        return Role(
            self.broker,
            self.clock,
            GROUP,
            shape.protocol,
            {INTAKE: _plan_of(shape)},
            shape.tick_ms,
            shape.most,
            shape.most_to_file,
            shape.upkeep,
            shape.memory_budget_bytes,
            shape.max_poll_ms,
            shape.park_after_ms,
            shape.pauses,
        )

    def _prepare(self) -> None:
        """Create the missing topics of the intake, as the start of the service does."""
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        birth = Birth(cluster, admin, GROUP, self.clock)
        partitions, geometry = self.shape.partitions, self.shape.geometry
        give = partial(birth.give, INTAKE, partitions, geometry)
        is_fixed = self.shape.fixed_delay_ms is not None
        if self.shape.pauses:
            make_or_check_topic(TopicAdmin(admin), control_topic(INTAKE, 1))
        make_or_check(TopicAdmin(admin), INTAKE, partitions, 1, geometry, fixed_delay=is_fixed, before_intake=give)
        make_or_check_topic(TopicAdmin(admin), status_topic(INTAKE, 1))
        self.broker.slow_down(INTAKE + JOURNAL, self.shape.journal_fetch_ms)

    def _read(self) -> Consumer:
        cluster = Cluster("fake", {}, self.broker.clients("watcher"))
        reader = cluster.clients.consumer(cluster.reader())
        own = [(INTAKE + suffix, self.shape.partitions) for suffix in (DEAD, RESULTS)]
        topics = [*self.shape.targets, *own]
        reader.incremental_assign([TopicPartition(topic, p, 0) for topic, count in topics for p in range(count)])
        return reader

    def _new(self, name: str, *, instance: str | None = None) -> Process:
        instance = instance or (name if self.shape.static else None)
        return Process(self._role(), name, instance, self._step, self._note)

    # -- the run ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes."""
        for process in self.processes:
            process.start()

    def newcomer(self, name: str, *, instance: str | None = None) -> Process:
        """Add a process, and start it."""
        process = self._new(name, instance=instance)
        self.processes.append(process)
        process.start()
        self.touch()
        return process

    def send(self, messages: int, *, longest_ms: int = 6_000) -> None:
        """Write messages to the intake, which are due up to `longest_ms` from now, or after its fixed delay."""
        for _ in range(messages):
            if self.shape.fixed_delay_ms is not None:
                self._send_fixed(self.shape.fixed_delay_ms)
                continue
            if self.shape.large and self.random.random() < self.shape.large * self.shape.poison:
                self.send_large(LARGE_BYTES, target=None)
                continue
            if self.shape.schedules and self.random.random() < self.shape.schedules:
                self.send_schedule()
                continue
            if self.shape.names and self.random.random() < self.shape.names:
                self.send_named(self.random.choice((0, 40, 300, longest_ms)))
                continue
            self._send_one(self.random.choice((0, 40, 300, longest_ms)))
            if self.shape.again and self.random.random() < self.shape.again:
                self.send_again(self.random.choice(self._recent), later_ms=self.random.choice((0, 0, 1)))
            if self.sent and self.random.random() < self.shape.cancels:
                self.cancel(self.random.choice(self._recent))

    @property
    def _recent(self) -> Sequence[Sent]:
        """The last messages without a name: the others have cancels of their own."""
        if not self.named:
            return self.sent[-20:]
        names = {record.source for record in self.named}
        return [message for message in self.sent[-60:] if message.source not in names][-20:]

    def send_due(self, due_ms: int) -> None:
        """Write a message with this due time to the intake."""
        self._send_one(0, due_ms)

    def _send_one(self, longest_ms: int, due_ms: int | None = None) -> None:
        choose = self.random
        number = self._number
        key_number = choose.randrange(KEYS)
        place = (INTAKE, key_number % self.shape.partitions)
        now_ms = self.clock.now_ms()
        delay_ms = choose.randint(0, longest_ms) if due_ms is None else due_ms - now_ms
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        poisoned = choose.random() < self.shape.poison
        target = choose.choice(self.shape.targets)[0]
        when = (DELAY_MS, b"%d" % delay_ms) if choose.random() < 0.5 else (DELIVER_AT, b"%d" % (now_ms + delay_ms))
        limits = self._limits(id_, now_ms + delay_ms)
        to = b"no-such-topic" if poisoned else target.encode()
        headers = [(ID, id_), (TARGET, to), when, *limits.headers]
        key, value = b"key-%d" % key_number, b"%d" % number
        offset = self.broker.append(INTAKE, key, value, headers, place[1], now_ms)
        due_ms, expires_ms = limits.due_ms, limits.expires_ms
        is_dead = poisoned or (expires_ms is not None and expires_ms < due_ms)
        self._note_sent(
            Sent(id_, place, offset, key, None if is_dead else target, due_ms, value, expires_ms=expires_ms)
        )

    def _limits(self, id_: bytes, asked_ms: int, *, is_dead_on_reading: bool = True) -> Limits:
        """Draw the window and the expiry of a message."""
        shape = self.shape
        return drawn(
            self.random,
            id_,
            asked_ms,
            shape.tick_ms,
            windows=shape.windows,
            expiring=shape.expiring,
            is_dead_on_reading=is_dead_on_reading,
        )

    def send_named(self, longest_ms: int) -> None:
        """Write a named record: a cancel by name, or a message, perhaps with a condition or sent twice."""
        choose = self.random
        key, name = b"key-%d" % choose.randrange(KEYS), choose.choice(NAMES)
        place, now_ms = (INTAKE, partition_of(key, self.shape.partitions)), self.clock.now_ms()
        if choose.random() < CANCELS_BY_NAME:
            offset = self.broker.append(INTAKE, key, None, [(CANCEL_NAME, name)], place[1], now_ms)
            cancel = SentNamed(place, offset, key, name)
            self.named.append(cancel)
            self._unread.setdefault(place, []).append(cancel)
            return
        condition = choose.choice((b"", b"", b"absent", b"present"))
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        target = None if choose.random() < self.shape.poison else choose.choice(self.shape.targets)[0]
        due_ms = self._tick_of(now_ms + choose.randint(0, longest_ms))
        limits = self._limits(id_, due_ms, is_dead_on_reading=False)
        when: list[tuple[str, bytes | None]] = [(ID, id_), (DELIVER_AT, b"%d" % due_ms), (NAME, name), *limits.headers]
        headers = [*when, (TARGET, (target or "no-such-topic").encode()), *[(IF, condition)] * bool(condition)]
        due_ms = limits.due_ms
        for _ in range(choose.choice((1, 1, 1, 2))):
            value = b"%d" % self._number
            offset = self.broker.append(INTAKE, key, value, headers, place[1], now_ms)
            message = Sent(id_, place, offset, key, target, due_ms, value, expires_ms=limits.expires_ms)
            named = SentNamed(place, offset, key, name, condition, message)
            self.named.append(named)
            self._note_sent(message)
            self._unread[place].append(named)

    def send_rejected(self) -> None:
        """Write a named record to the intake that can never be delivered; some are large."""
        choose = self.random
        key, name = b"key-%d" % choose.randrange(KEYS), choose.choice(NAMES)
        place, now_ms = (INTAKE, partition_of(key, self.shape.partitions)), self.clock.now_ms()
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        headers: list[tuple[str, bytes | None]] = [(ID, id_), (DELIVER_AT, b"%d" % now_ms), (NAME, name)]
        value = b"%d" % self._number + b" " * choose.choice((0, APART_BYTES))
        offset = self.broker.append(INTAKE, key, value, [*headers, (TARGET, b"no topic")], place[1], now_ms)
        message = Sent(id_, place, offset, key, None, self._tick_of(now_ms), value)
        named = SentNamed(place, offset, key, name, message=message, is_rejected=True)
        self.named.append(named)
        self._note_sent(message)
        self._unread[place].append(named)

    def send_schedule(self) -> None:
        """Write a schedule, or a cancel of one by name."""
        choose, now_ms = self.random, self.clock.now_ms()
        targets = [topic for topic, _ in self.shape.targets]
        record, headers = self.repeating.headers(choose, targets, self.shape.poison, now_ms)
        self.append_schedule(replace(record, key=b"key-%d" % choose.randrange(KEYS)), headers)

    def append_schedule(self, record: SentRepeating, headers: list[tuple[str, bytes | None]]) -> None:
        """Write a schedule, or a cancel of one, to the partition of its key."""
        partition = partition_of(record.key, self.shape.partitions)
        value = record.value if record.id else None
        offset = self.broker.append(INTAKE, record.key, value, headers, partition, record.stamp_ms)
        self.repeating.records.append(replace(record, place=(INTAKE, partition), offset=offset))

    def _end_schedules(self) -> None:
        """Wait until each schedule goes on, and cancel all of them."""
        repeating, since_ms = self.repeating, self.clock.monotonic_ms()
        if repeating.is_judged and repeating.records:
            self.run_until(
                lambda: all(repeating.delivered_since(one, since_ms) for one in repeating.live), self._patience_ms
            )
            self._stuck += [
                f"its schedule does not go on: {one}"
                for one in repeating.live
                if not repeating.delivered_since(one, since_ms)
            ]
        for key, name in sorted({(record.key, record.name) for record in repeating.records}):
            self.append_schedule(SentRepeating(("", 0), -1, key, name, self.clock.now_ms()), [(CANCEL_NAME, name)])
        self.run_until(lambda: not repeating.unanswered, SETTLE_MS)

    def send_large(
        self, size: int, *, target: str | None, arrives: bool = False, delay_ms: int = 0, codec: bool = True
    ) -> None:
        """Write a large message to the intake.

        Args:
            size: the size of its value, in bytes.
            target: its target; None: no header for it.
            arrives: whether it can be delivered; if not, it can only become a dead letter.
            delay_ms: its delay.
            codec: whether its producer compresses it, to a small size. If not, its value cannot be compressed at all.
        """
        choose = self.random
        key_number = choose.randrange(KEYS)
        place = (INTAKE, key_number % self.shape.partitions)
        now_ms = self.clock.now_ms()
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        headers = [(ID, id_), (DELAY_MS, b"%d" % delay_ms)]
        if target is not None:
            headers.append((TARGET, target.encode()))
        key, number = b"key-%d" % key_number, b"%d" % self._number
        value = number.ljust(size, b".") if codec else choose.randbytes(size)
        offset = self.broker.append(INTAKE, key, value, headers, place[1], now_ms, compressed=codec)
        due_ms = self._tick_of(now_ms + delay_ms)
        self._note_sent(Sent(id_, place, offset, key, target if arrives else None, due_ms, value))

    def _send_fixed(self, delay_ms: int) -> None:
        """Write a message to an intake with a fixed delay, some without a key."""
        choose = self.random
        key_number = choose.randrange(KEYS)
        place = (INTAKE, key_number % self.shape.partitions)
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        poisoned = choose.random() < self.shape.poison
        key, value = b"key-%d" % key_number if choose.random() < 0.6 else None, b"%d" % self._number
        read_ms = self.clock.now_ms()
        self.clock.jump(-self.leader_behind_ms)
        stamp_ms = self.clock.now_ms()
        # A timestamp that is too far ahead counts as the time of the reading, which is not before the write.
        due_ms = self._tick_of((read_ms if stamp_ms > read_ms + AHEAD_MS else stamp_ms) + delay_ms)
        offset = self.broker.append(INTAKE, key, value, [(ID, id_), *([(PARTITION, b"x")] * poisoned)], place[1])
        self.clock.jump(self.leader_behind_ms)
        if not poisoned:
            # A record is never due before the previous record of its partition.
            due_ms = self._last_due_ms[place] = max(due_ms, self._last_due_ms.get(place, 0))
        self._note_sent(Sent(id_, place, offset, key, None if poisoned else self.shape.targets[0][0], due_ms, value))

    def _tick_of(self, due_ms: int) -> int:
        """Return the due time for a requested time: the first tick at or after it."""
        return -(-due_ms // self.shape.tick_ms) * self.shape.tick_ms

    @property
    def _number(self) -> int:
        """The number of the next message, which is also its value, so that each message has a unique value."""
        return len(self.sent) + self._forgotten

    def _note_sent(self, message: Sent) -> None:
        self.sent.append(message)
        self._unread.setdefault(message.place, []).append(message)
        self._waiting[message.source] = _Waiting(message)
        self._known.send(message)

    def send_again(self, message: Sent, *, later_ms: int = 0) -> None:
        """Write a message with the id and the target of another one, which is due `later_ms` after it."""
        due_ms = self._tick_of(message.due_ms + later_ms)
        value = b"%d" % self._number
        target = (message.target or "no-such-topic").encode()
        headers: list[tuple[str, bytes | None]] = [(ID, message.id), (TARGET, target), (DELIVER_AT, b"%d" % due_ms)]
        if message.expires_ms is not None:
            headers.append(expiry(message.expires_ms))
            if message.expires_ms < due_ms:
                message = replace(message, target=None)
        offset = self.broker.append(INTAKE, message.key, value, headers, message.place[1], self.clock.now_ms())
        self._note_sent(
            replace(message, offset=offset, value=value, due_ms=due_ms, ends=None, in_time=False, was_known=False)
        )

    def cancel(self, message: Sent) -> None:
        """Write a cancel to the intake. The message may already be done or cancelled."""
        intake, partition = message.place
        handle = f"1.{intake}.{partition}.{message.due_ms}.{message.id.decode()}".encode()
        offset = self.broker.append(intake, None, None, [(CANCEL, handle)], partition, self.clock.now_ms())
        cancel = SentCancel(message.place, offset, message)
        self.cancels.append(cancel)
        self._unread.setdefault(message.place, []).append(cancel)

    def purge(self, topic: str) -> None:
        """Write a purge of what is parked for a target to each partition of the intake."""
        now_ms = self.clock.now_ms()
        for partition in range(self.shape.partitions):
            offset = self.broker.append(INTAKE, None, None, [(PURGE, topic.encode())], partition, now_ms)
            self.purges.append(SentPurge((INTAKE, partition), offset, topic, now_ms))

    def run(self, for_ms: int) -> None:
        """Run for `for_ms` milliseconds."""
        self.run_until(lambda: False, for_ms)

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> bool:
        """Run until a condition holds; return whether it held in time."""
        ends_ms = self.clock.monotonic_ms() + within_ms
        while not (holds := condition()) and self.clock.monotonic_ms() < ends_ms:
            self.round()
        return holds

    def round(self) -> None:
        """Run one turn of each running process, in random order."""
        self._restart_due_processes()
        before_ms = self.clock.monotonic_ms()
        self._pace.begin_round(self.processes)
        for process in self.random.sample(self.processes, len(self.processes)):
            if not process.paused:
                ended = len(process.errors)
                process.turn()
                if len(process.errors) > ended:
                    self.restart(process, self.random.randint(100, 1_000))
                self._accept(process)
        if self.clock.monotonic_ms() == before_ms:
            self.clock.advance(IDLE_MS if all(process.worker is None for process in self.processes) else 1)
        self._watch()

    def settle(self) -> Report:
        """End all disturbances, let all messages arrive, stop all processes gracefully, and report the faults."""
        self.disturb = nothing
        self.widen()
        self.run_until(lambda: not self.leaderless and not self.held, LEADERLESS_MS[1] + TRIED_AGAIN_MS)
        self.touch()
        for topic in sorted(self.away):
            self.bring_back(topic)
        self._resume_all()
        self._let_all_arrive()
        self._end_schedules()
        self._pace.is_fine = False  # nothing is delivered any more
        self.run(EMPTIED_MS if self.shape.geometry.levels else 1_000)
        # If the answer to a request that empties a slot was lost, the service repeats it only after its timeout.
        self.run_until(lambda: not self._left_behind(), SETTLE_MS)
        for process in self.processes:
            process.stop()
        self.clock.advance(max(self.shape.marker_lag_ms) + 1)
        while self._watch():
            pass
        delivered, dead, results = self._seen["delivered"], self._seen[DEAD], self._seen[RESULTS]
        # In a new intake, records may have the places of former ones, whose results are still there.
        judges_names = not (self._former or self._repeated)
        report = check(
            self.sent, self.cancels, delivered, dead, results, self._repeated, self.purges, self.named, judges_names
        )
        for kind, fault in chain(self.repeating.faults(self.shape.tick_ms), self._faults_of_strangers()):
            report.add(kind, fault)
        if self.shape.fixed_delay_ms is not None:
            check_log_order(report, self.sent, delivered, dict(self.shape.targets), self._repeated)
        if paused := self._delivered_while_paused():
            report.faults["while paused"] = paused
        if left := self._left_behind():
            report.faults["left behind"] = left
        if self._stuck:
            report.faults["stuck"] = self._stuck
        refused = [f"{p.name}: {error}" for p in self.processes for error in p.errors if self._unforeseen(error)]
        if refused:
            report.faults["refused"] = refused
        return report

    def _let_all_arrive(self) -> None:
        """Restart processes, and run until nothing waits."""
        for _ in range(2):
            self._restart_stopped_processes()
            self.run_until(lambda: not (self._waiting or self._restarts) and self._all_purged(), SETTLE_MS)
            if not any(waiting.has_stub for waiting in self._waiting.values()):
                break
            # A letter was refused before the limits were raised, but its stub was not seen yet at the restart.

    def _resume_all(self) -> None:
        """Resume all targets; without pauses there is no log of them."""
        for topic, _ in self.shape.targets if self.shape.pauses else ():
            self.resume(topic)

    def _delivered_while_paused(self) -> list[str]:
        delivered = [(one.place, one.offset, one.stamp_ms) for one in self._seen["delivered"]]
        occurred = [(one.place, one.offset, one.stamp_ms) for one in self.repeating.occurred]
        return list(self.pausing.faults([*delivered, *occurred]))

    def _faults_of_strangers(self) -> Iterator[tuple[str, str]]:
        """Return the faults of records of another program in the levels' logs: each must be one dead letter."""
        times = Counter(json.loads(one.value or b"")["source"] for one in self._seen[RESULTS] if self.strangers)
        for source in self.strangers:
            if (letters := times[source]) != 1:
                yield "twice" if letters else "lost", f"{letters} dead letters of a strange record at {source}"

    def _all_purged(self) -> bool:
        """Whether all purges have an answer."""
        return all(purge.is_answered for purge in self.purges)

    def _restart_stopped_processes(self) -> None:
        """Start processes that do not run. If there are stubs, restart all, because the limits are raised now."""
        for process in self.processes:
            if self.stubs:
                process.stop()
            if process.worker is None and not any(restart.process is process for restart in self._restarts):
                self.restart(process, 0)

    def _left_behind(self) -> list[str]:
        """Return the records that are still in buckets or in the parked log although no message waits."""
        geometry = self.shape.geometry
        numbers = range(self.shape.partitions)
        topics = [INTAKE + PARKED, *(wheel_topic(INTAKE, level) for level in range(1, geometry.levels + 1))]
        places = [(topic, p) for topic in topics for p in numbers]
        return [f"{topic}/{p}: {records}" for topic, p in places if (records := len(self.broker.records(topic, p)))]

    def unseen(self) -> list[Sent]:
        """Return the messages that have not arrived."""
        return [waiting.message for waiting in self._waiting.values()]

    def trace(self) -> list[str]:
        """Return the events of all processes, one line each."""
        return [f"{handle} {event} {dict(fields)}" for handle, event, fields in self.events]

    # -- disturbances -----------------------------------------------------------------------------------------------

    def touch(self, for_ms: int = 0) -> None:
        """Record a disturbance that lasts `for_ms` from now on. Messages may be late until some time after it."""
        self.disturbed_ms = max(self.disturbed_ms, self.clock.monotonic_ms() + for_ms)

    def lose_answer(self) -> Fate:
        """Lose the answer of a step. A client may wait for it until its timeout."""
        self.touch(REQUEST_TIMEOUT_MS)
        return Fate.LOSE_ANSWER

    def crash(self, process: Process, *, back_after_ms: int | None = 300) -> None:
        """Kill a process as by kill -9, between two turns."""
        process.crash()
        self._crashed(process, back_after_ms)

    def crash_here(self, process: Process, *, back_after_ms: int | None = 300) -> None:
        """Kill a process as by kill -9, inside a step.

        Raises:
            Crash: always.
        """
        process.crash()
        self._crashed(process, back_after_ms)
        raise Crash

    def pause_here(self, process: Process, for_ms: int, *, frozen: bool) -> None:
        """Pause a process inside a step, while the rest of the world runs.

        Args:
            process: the process.
            for_ms: how long.
            frozen: whether its heartbeats stop, too, as by SIGSTOP; if not, the client library's threads continue.
        """
        process.paused = True
        self._interrupted.add(process.instance or process.handle)
        self._paused += 1
        if frozen:
            self.broker.freeze(process.handle)
        self.run(for_ms)
        if frozen:
            self.broker.thaw(process.handle)
        process.paused = False
        self._paused -= 1
        self.touch()

    def narrow(self, suffix: str, limit_bytes: int) -> None:
        """Lower the message limit of an internal topic, so that it accepts only small batches."""
        self._narrowed.add(suffix)
        self.broker.configure(INTAKE + suffix, max_message_bytes=str(limit_bytes))

    def widen(self) -> None:
        """Restore the message limits of the internal topics, and remove the quota."""
        for suffix in sorted(self._narrowed):
            self.broker.configure(INTAKE + suffix, max_message_bytes=str(WIDE_BYTES))
        self._narrowed.clear()
        self.broker.throttle(None)
        self.touch()

    def take_away(self, topic: str, *, markers_wait: bool = True) -> None:
        """Take a target offline, so that its messages wait.

        Args:
            topic: the target.
            markers_wait: whether transactions with records for it cannot end before it is back.
        """
        self.away.add(topic)
        self.broker.take_away(topic, markers_wait=markers_wait)

    def bring_back(self, topic: str) -> None:
        """Bring a target online again."""
        self.away.discard(topic)
        self.broker.bring_back(topic)
        self.touch()

    def pause(self, topic: str, until_ms: int | None = None) -> PausedTarget:
        """Pause a target that is not paused.

        Args:
            topic: the target.
            until_ms: when the pause ends by itself, wall time; None: never.
        """
        return self.pausing.pause(topic, dict(self.shape.targets)[topic], self.clock.now_ms(), until_ms)

    def resume(self, topic: str) -> None:
        """Resume a target; nothing is wrong if it is not paused."""
        self.pausing.resume(topic, self.clock.now_ms())
        self.touch()

    def own_logs(self) -> list[tuple[Place, Place]]:
        """Return all internal partitions, each with the intake partition to which it belongs."""
        geometry = self.shape.geometry
        places = [(INTAKE, partition) for partition in range(self.shape.partitions)]
        return [(log, place) for place in places for log in logs_of(place, geometry) if log != place]

    def lose_leader(self, log: Place, place: Place, for_ms: int) -> None:
        """Take an internal partition offline for a while. Only its intake partition waits for it.

        Args:
            log: the internal partition.
            place: its intake partition.
            for_ms: the time until the leader is back.
        """
        self.leaderless[log] = place
        self.broker.take_away(*log, markers_wait=True)
        self.touch()
        self.clock.call_at(self.clock.monotonic_ms() + for_ms, lambda: self._find_leader(log))

    def _find_leader(self, log: Place) -> None:
        del self.leaderless[log]
        self.broker.bring_back(*log)
        self.touch()

    def put_foreign(self, place: Place, for_ms: int) -> None:
        """Write a foreign record to a partition's journal, and repair the journal after a while.

        Args:
            place: the intake partition; until the repair, no process can take it over.
            for_ms: the time until the repair.
        """
        offset = self.broker.append(INTAKE + JOURNAL, None, FOREIGN, None, place[1])
        self.held.add(place)
        self.clock.call_at(
            self.clock.monotonic_ms() + for_ms,
            lambda: self.broker.mend(INTAKE + JOURNAL, place[1], offset, encode_done({})),
        )
        self.clock.call_at(self.clock.monotonic_ms() + for_ms + TRIED_AGAIN_MS, lambda: self._let_go(place))

    def _let_go(self, place: Place) -> None:
        self.held.discard(place)
        self.touch()

    def _is_held(self, place: Place) -> bool:
        """Return whether an intake partition cannot fire its due messages, without a fault of the service.

        A process that was interrupted in a transaction, whose end waits for a leader, cannot be fenced before that
        leader is back.
        """
        return (
            place in self.held
            or place in self.leaderless.values()
            or (bool(self.leaderless or self.away) and any(map(self._was_interrupted, self.broker.ending)))
        )

    def hide(self, topic: str, for_ms: int) -> None:
        """Make a broker forget a topic for a while."""
        self.broker.hide(topic)
        self.clock.call_at(self.clock.monotonic_ms() + for_ms, lambda: self.broker.hide(topic, hidden=False))
        self.touch(for_ms)

    def _was_interrupted(self, transactional_id: str) -> bool:
        """Return whether the process of a transactional id was interrupted or has ended."""
        alive = {process.instance or process.handle for process in self.processes if process.worker is not None}
        name = transactional_id.removeprefix(f"{GROUP}.")
        return not any(name.startswith(f"{one}-") for one in alive - self._interrupted)

    def restart(self, process: Process, after_ms: int) -> None:
        """Start a process again after a while."""
        self._restarts.append(_Restart(self.clock.monotonic_ms() + after_ms, process))

    def make_anew(self, *suffixes: str) -> None:
        """Delete topics of the intake and create them again, as an operator might do by mistake.

        Args:
            suffixes: the suffixes of their names. The empty suffix is the intake itself: nothing is promised for the
                messages that were sent to it before.
        """
        self.widen()  # the start refuses topics with a low message limit
        for suffix in suffixes:
            self.broker.delete_topic(INTAKE + suffix)
        self._prepare()
        if "" in suffixes:
            self.repeating = Repeating(is_judged=False)
            self._forget(list(self.sent))
            for kept in (self.cancels, self.purges, self.named, self._unread, self._last_due_ms, self._owners):
                kept.clear()
            # The brokers delete the committed offsets with the intake, and so the name of the last owner. No take-over
            # can fence it: a transaction that it left open holds the journal back until the brokers abort it.
            self.touch(TRANSACTION_TIMEOUT_MS)
        self.touch()

    def _forget(self, messages: Sequence[Sent]) -> None:
        """Expect nothing for these messages any more; other messages will get their offsets."""
        self._former.update(message.id for message in messages)
        self._forgotten += len(messages)
        for message in messages:
            self.sent.remove(message)
            self._known.forget(message)
            self._waiting.pop(message.source, None)
        for kind, seen in self._seen.items():
            self._seen[kind] = [one for one in seen if one.id not in self._former]

    def lose_end(self, partition: int, end: int) -> None:
        """Drop the records of an intake partition from offset `end` on. Nothing is promised for these messages."""
        place = (INTAKE, partition)
        self.broker.truncate(INTAKE, end, partition)
        self._forget([message for message in self.sent if message.place == place and message.offset >= end])
        self._unread[place] = [one for one in self._unread.get(place, []) if one.offset < end]
        self.touch()

    def lose_end_of_level(self, level: int, partition: int, offsets: int) -> None:
        """Drop the last offsets of a level's log. Nothing is promised for messages that were there.

        Args:
            level: the level.
            partition: the partition of the intake.
            offsets: how many; no transaction is open there.
        """
        topic = wheel_topic(INTAKE, level)
        end = self.broker.end(topic, partition) - offsets
        records: Any = self.broker.records(topic, partition)
        log = Source(level, 0)
        lost = {
            read_filed(log, one.offset, one.key, one.value, one.headers).sequence
            for one in records
            if one.offset >= end
        }
        self.broker.truncate(topic, end, partition)
        self._forget([one for one in self.sent if one.place == (INTAKE, partition) and one.offset in lost])
        self.touch()

    def put_strange(self, level: int, partition: int, size: int) -> None:
        """Write a record of another program to a level's log: it becomes a dead letter.

        Args:
            level: the level.
            partition: the partition of the intake.
            size: the size of its value, in bytes, which cannot be compressed.
        """
        topic = wheel_topic(INTAKE, level)
        offset = self.broker.append(topic, None, self.random.randbytes(size), None, partition)
        self.strangers.append(f"{topic}/{partition}/{offset}")

    def until_refused(self) -> str | None:
        """Run the first process alone until it serves or quarantines each partition.

        Returns:
            Why it quarantines a partition; None if it serves all of them.
        """
        self._restarts.clear()
        process = self.processes[0]
        if process.worker is None:
            process.start()
        partitions = self.shape.partitions
        self.run_until(lambda: len(process.states) + len(process.quarantined) == partitions, SETTLE_MS)
        if not process.quarantined:
            return None
        line = next(iter(process.quarantined.values()))
        process.stop()
        return line

    def adopt(self) -> list[str]:
        """Adopt partitions as `--adopt` does. Messages that were sent so far may be delivered again, and out of order.

        Returns:
            The reason for each partition that was adopted.
        """
        cluster = Cluster("fake", {}, self.broker.clients("adopter"))
        reasons: list[str] = []
        with closing(Adoption(cluster, GROUP, self.clock)) as adoption:
            adoption.adopt(
                INTAKE,
                self.shape.partitions,
                self.shape.geometry,
                lambda _event, **fields: reasons.append(fields["reason"]),
            )
        self.cancels.clear()
        self.purges.clear()
        self.repeating.is_judged = False
        for message in self.sent:
            self._repeated.add(message.id)
            message.ends = None
        self.touch()
        return reasons

    def _crashed(self, process: Process, back_after_ms: int | None) -> None:
        self._interrupted.add(process.instance or process.handle)
        self.touch()
        if back_after_ms is not None:
            self.restart(process, back_after_ms)

    def _restart_due_processes(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for restart in [one for one in self._restarts if one.at_ms <= now_ms]:
            self._restarts.remove(restart)
            if restart.process.worker is None:
                restart.process.start()
                self.touch()

    def _step(self, process: Process, step: Step) -> Fate | None:
        self.pausing.look(self.clock.now_ms())
        return self.disturb(process, step)

    # -- observations -----------------------------------------------------------------------------------------------

    def _note(self, process: Process, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((process.handle, event, fields))
        if event == "taken_over":
            place = (fields["topic"], fields["partition"])
            self._owners[place] = process.handle
            self._known.take_over(place)

    def _accept(self, process: Process) -> None:
        """Record which messages their owner has read in time, and where the targets' logs ended then."""
        now_ms = self.clock.now_ms()
        ends: Mapping[Place, int] | None = None
        for place, state in process.states.items():
            if self._owners.get(place) != process.handle:
                continue
            unread = self._unread.get(place, [])
            while unread and unread[0].offset < state.position:
                message = unread.pop(0)
                latest_ms = max(now_ms, self._latest_ms)
                if isinstance(message, SentNamed):
                    message.read_ms = latest_ms if message.read_ms is None else message.read_ms
                    continue
                if isinstance(message, SentCancel):
                    cancelled = message.message
                    # Its message is before it in the partition, so the owner has read the message, too. The latest wall
                    # time so far decides whether the message may already have been due.
                    after_ms = latest_ms - cancelled.due_ms
                    message.in_time = after_ms < 0 and cancelled.target is not None
                    message.may_know = after_ms < self.shape.geometry.width_ms
                    continue
                # With less memory, delivered messages are forgotten earlier.
                is_ample = self.shape.memory_budget_bytes >= AMPLE_BYTES
                message.in_time = latest_ms < message.due_ms and is_ample
                message.term = self._known.term(place)
                after_ms = latest_ms - message.due_ms
                self._known.read(message, is_soon=is_ample and after_ms < self.shape.geometry.width_ms)
                if now_ms < message.due_ms:
                    ends = ends or self._ends()
                    message.ends = ends

    def _ends(self) -> dict[Place, int]:
        return {
            (topic, partition): self.broker.end(topic, partition)
            for topic, count in self.shape.targets
            for partition in range(count)
        }

    def _watch(self) -> bool:
        """Read the newly visible records, and record overdue messages; return whether there were records."""
        wall_ms, now_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        self._latest_ms = max(self._latest_ms, wall_ms)
        self.pausing.look(self.clock.now_ms())
        records = self._reader.consume(1_000, 0)
        for record in records:
            if record.error() is not None:
                continue  # the end of a partition
            topic = record.topic() or ""
            suffix = topic.removeprefix(INTAKE) if topic.startswith(INTAKE) else "delivered"
            headers: Any = record.headers()
            if (stub := dict(headers or []).get(STUB)) is not None:
                self.stubs.append(stub)
                if (waiting := self._waiting.get(_source_of(headers))) is not None:
                    waiting.has_stub = True
                continue
            id_: Any = record.key() if suffix == RESULTS else dict(headers or []).get(ID, b"")
            where = (topic, record.partition() or 0)
            value = record.value()
            if self._is_apart(record, where, dict(headers or []), id_, now_ms):
                continue
            source = json.loads(value or b"")["source"] if suffix == RESULTS else _source_of(headers)
            stamp_ms = record.timestamp()[1]
            seen = Seen(id_, where, record.offset() or 0, stamp_ms, self._latest_ms, now_ms, value, source)
            self._seen[suffix].append(seen)
            if suffix == RESULTS:
                self._note_answers(source, value or b"")
            if suffix == "delivered" and (waiting := self._waiting.get(source)) is not None:
                self._known.deliver(waiting.message)
            # For `fired`, the delivery itself must be seen, and `scheduled` is not final.
            if suffix != RESULTS or not any(outcome in (value or b"") for outcome in (b'"fired"', b'"scheduled"')):
                self._waiting.pop(source, None)
        if not self._paused:
            self._complain(wall_ms, now_ms)
        return bool(records)

    def _note_answers(self, source: str, value: bytes) -> None:
        """Note of a purge that it is answered, and of a cancel which parked messages its owner does not know."""
        for purge in self.purges:
            purge.is_answered = purge.is_answered or purge.source == source
        cancel_source = json.loads(value).get("cancel_source") if b'"cancelled"' in value else None
        for cancel in self.cancels if cancel_source else ():
            if cancel.source == cancel_source and cancel.place in self._owners:
                term, filed = self._known.term(cancel.place), self._parked_offsets(cancel.place[1])
                parked = (one for one in self.sent if one.place == cancel.place and one.offset in filed)
                cancel.unknown = frozenset(one.source for one in parked if one.term < term)

    def _parked_offsets(self, partition: int) -> set[int]:
        """Return the offsets in the intake of the messages in a partition of the parked log."""
        log: Source = Source(PARKED_LOG, 0)
        records: Any = self.broker.records(INTAKE + PARKED, partition)
        filed = (one for one in records if target_of(one.headers) is not None)
        return {read_filed(log, one.offset, one.key, one.value, one.headers).sequence for one in filed}

    def _is_apart(
        self, record: Message, where: Place, headers: Mapping[str, bytes | None], id_: bytes, now_ms: int
    ) -> bool:
        """Note a record that is of a schedule or a cancel of one, or of a former intake; return whether it is."""
        if id_ in self._former:
            self.survivors.add(id_)
            return True
        repeating, value = self.repeating, record.value()
        if where[0] == INTAKE + RESULTS:
            result = SeenResult(json.loads(value or b""), record.offset() or 0)
            is_own = id_ in repeating.ids or "schedule" in result.fields or result.source in repeating.sources
            if is_own:
                repeating.results.append(result)
            return is_own
        if (schedule := headers.get(SCHEDULE)) is None:
            return id_ in repeating.ids
        repeating.occurred.append(
            Occurred(
                schedule,
                int(headers.get(OCCURRENCE) or b""),
                int(headers.get(DUE_MS) or b""),
                where,
                record.offset() or 0,
                record.timestamp()[1],
                self._latest_ms,
                now_ms,
                value,
            )
        )
        return True

    def _complain(self, wall_ms: int, now_ms: int) -> None:
        """Record messages that should have become visible by now."""
        patience_ms, unreachable = self._patience_ms, self.away | self.pausing.paused(wall_ms)
        for waiting in self._waiting.values():
            message = waiting.message
            is_early = message.due_ms > wall_ms
            if is_early or waiting.has_stub or message.target in unreachable or self._is_held(message.place):
                waiting.due_since_ms = None
            elif waiting.due_since_ms is None:
                waiting.due_since_ms = now_ms
            elif not waiting.told and now_ms - max(waiting.due_since_ms, self.disturbed_ms) >= patience_ms:
                waiting.told = True
                self._stuck.append(f"{patience_ms} ms: {waiting.message}")

    @property
    def _patience_ms(self) -> int:
        catch_up_ms = CATCH_UP_MS if self.shape.geometry == LARGE_LEVELS else 0
        return PATIENCE_MS + catch_up_ms + (LONG_JOURNAL_MS if self.shape.journal_fetch_ms else 0)

    @staticmethod
    def _unforeseen(error: Exception) -> bool:
        return not isinstance(error, MembershipLostError)


def _plan_of(shape: Shape) -> IntakePlan:
    is_fixed = shape.fixed_delay_ms is not None
    policy = IntakePolicy(
        topic=INTAKE,
        tick_ms=shape.tick_ms,
        fixed_delay_ms=shape.fixed_delay_ms,
        fixed_target=shape.targets[0][0] if is_fixed else None,
    )
    return IntakePlan(RequestReader(policy), is_fixed, shape.geometry, 3_600_000)
