"""A whole world in one thread: a fake cluster, processes of the service, senders, readers, and time.

Nothing here reads a real clock or the machine's randomness: the same seed gives the same run, step by step. Time moves
where a client waits, and where nobody is there to wait.
"""

import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from confluent_kafka import Consumer, TopicPartition

from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.journal import encode_done
from tarry.core.progress.log_order import AHEAD_MS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.levels import slots_of
from tarry.errors import MembershipLostError
from tarry.headers import CANCEL, DELAY_MS, DELIVER_AT, ID, PARTITION, SOURCE, STUB, TARGET
from tarry.kafka.adoption import Adoption
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check, make_or_check_status
from tarry.kafka.partition_logs import logs_of
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS, Cluster
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS, TopicAdmin, wheel_topic
from tarry.kafka.types import Place
from tarry.service.worker.aside import TRY_EVERY_MS
from tarry.service.worker.plan import IntakePlan
from tarry.testing.fake import FakeBroker, Fate, Step
from tarry.testing.manual_clock import ManualClock
from tarry.testing.simulation.known import Known
from tarry.testing.simulation.oracle import Report, Seen, judge, judge_log_order
from tarry.testing.simulation.process import Crash, Disturbance, Process, Role
from tarry.testing.simulation.sent import Sent, SentCancel

INTAKE = "in"
GROUP = "group"
NO_LEVELS = Geometry(20_000, 10, 0)
SMALL_LEVELS = Geometry(400, 2, 3)
"""Three levels, with buckets of 0.4, 0.8 and 1.6 s: all of them turn within seconds."""

LARGE_LEVELS = Geometry(2_000, 2, 2)
"""Two levels, for a cluster whose transactions take up to a second each."""

KEYS = 6
LARGE_BYTES = 1_200_000
"""More than any topic takes."""
WIDE_BYTES = 1_114_124
"""The limit of a topic beside the intake, as it is made."""
IDLE_MS = 10
PATIENCE_MS = 20_000
"""How long a message that is due may take to be seen while nothing disturbs.

A session's 6 s, a take-over, and, where there is no topic of its target's name, the time until that is sure.
"""
CATCH_UP_MS = 45_000
"""And longer where buckets are to be closed one after the other, each by a commit or two that take a second."""
LONG_JOURNAL_MS = 60_000
"""And longer where journals are slow to read."""
SETTLE_MS = 120_000
EMPTIED_MS = 12_000
"""By then every bucket's time is over, and it is emptied."""
LEADERLESS_MS = (500, 40_000)
"""How long a partition of the intake's topics may have no leader."""
TRIED_AGAIN_MS = TRY_EVERY_MS + 5_000
"""How long after it was mended a quarantined partition may go on to be one."""
FOREIGN = b"not of tarry"
REQUEST_TIMEOUT_MS = 10_000
"""How long a client of the service waits for an answer before it asks again."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a world is made of.

    Attributes:
        protocol: of the group.
        static: whether processes have instances.
        partitions: of the intake.
        processes: of the service.
        targets: topics, and how many partitions each has.
        marker_lag_ms: how long markers of a transaction take, each for itself.
        latency_ms: of a request.
        fetch_most: records a fetch, so that a replay takes several.
        tick_ms: of the wheel; due times are rounded up to its multiples.
        most: messages a transaction.
        memory_budget_bytes: of a process.
        poison: the share of messages that can only become dead letters.
        large: the share of those that are so large that only a compressed batch holds them.
        cancels: how many come with a message.
        again: how many messages are followed by one like another: as if its acknowledgement had come too late.
        aborts: how many requests to end a transaction, or to send offsets to it, are answered that it is to be aborted;
            where chance disturbs.
        geometry: of the overflow wheel.
        fixed_delay_ms: of the intake, which has the first target then; None: its messages say when and where.
        journal_fetch_ms: how long a fetch of a journal takes that brings anything: a take-over may be long.
        max_poll_ms: how long a process may not look at the group.
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
    memory_budget_bytes: int = 1 << 30
    poison: float = 0.05
    large: float = 0.0
    cancels: float = 0.0
    again: float = 0.0
    aborts: float = 0.0
    geometry: Geometry = NO_LEVELS
    fixed_delay_ms: int | None = None
    journal_fetch_ms: int = 0
    max_poll_ms: int = MAX_POLL_INTERVAL_MS


def nothing(_process: Process, _step: Step) -> None:
    """Disturb nothing."""


def _source_of(headers: Any) -> str:
    """Where a delivered message stood in the intake; a dead letter does not say."""
    return (dict(headers or []).get(SOURCE) or b"").decode()


@dataclass(slots=True)
class _Restart:
    at_ms: int
    process: Process


@dataclass(slots=True)
class _Waiting:
    """A message that nobody has seen yet, and since when it is due."""

    message: Sent
    due_since_ms: int | None = None
    told: bool = False
    has_stub: bool = False
    """A stub says that it waits for somebody to raise a limit, and the partition to be taken over."""


AMPLE_BYTES = 1 << 24
"""Memory for messages of which none is forgotten in a run."""


class World:
    """One run.

    Args:
        seed: of every choice.
        shape: what it is made of.
        disturb: is told of every step of every process.
    """

    def __init__(self, seed: int, shape: Shape | None = None, disturb: Disturbance = nothing) -> None:
        self.seed = seed
        self.shape = shape = shape or Shape()
        self.group = GROUP
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
        self.sent: list[Sent] = []
        self.cancels: list[SentCancel] = []
        self.events: list[tuple[str, str, Mapping[str, Any]]] = []
        """Process, event, fields."""
        self.away: set[str] = set()
        """Targets without leaders."""
        self.leaderless: dict[Place, Place] = {}
        """Partitions without a leader beside the intake, each with the partition of the intake that waits for it."""
        self.held: set[Place] = set()
        """Partitions of the intake of which nothing can fire until somebody mends something."""
        self._interrupted: set[str] = set()
        """The names of processes that were ever interrupted, which may have been in a transaction."""
        self.leader_behind_ms = 0
        """How far the clock of the intake's leader is behind, or ahead if negative; log-append time is by that."""
        self._latest_ms = 0
        self.disturbed_ms = 0
        """Monotonic: when the last disturbance ended."""
        self._former: set[bytes] = set()
        """Ids of what was sent to intakes that were deleted; nobody promises anything of it."""
        self._forgotten = 0
        self.survivors: set[bytes] = set()
        """Those of which something was seen afterwards."""
        self._repeated: set[bytes] = set()
        """Ids of what was sent before an intake was adopted: it may come once more."""
        self._unread: dict[Place, list[Sent | SentCancel]] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._owners: dict[Place, str] = {}
        self._known = Known()
        self._stuck: list[str] = []
        self._restarts: list[_Restart] = []
        self._seen: dict[str, list[Seen]] = {"delivered": [], DEAD: [], RESULTS: []}
        self.stubs: list[bytes] = []
        """Values of `tarry-stub` among the dead letters: each names a record that is not done."""
        self._paused = 0
        self._narrowed: set[str] = set()
        self._last_due_ms: dict[Place, int] = {}
        self._build()
        is_fixed = shape.fixed_delay_ms is not None
        policy = IntakePolicy(
            topic=INTAKE,
            tick_ms=shape.tick_ms,
            fixed_delay_ms=shape.fixed_delay_ms,
            fixed_target=shape.targets[0][0] if is_fixed else None,
        )
        role = Role(
            self.broker,
            self.clock,
            GROUP,
            shape.protocol,
            {INTAKE: IntakePlan(RequestReader(policy), is_fixed, shape.geometry, 3_600_000)},
            shape.tick_ms,
            shape.most,
            shape.memory_budget_bytes,
            shape.max_poll_ms,
        )
        self._process = partial(Process, role, disturb=self._step, on_event=self._note)
        self.processes = [self._new(f"p{number}") for number in range(shape.processes)]
        self._reader = self._read()

    # -- its parts --------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._prepare()
        for topic, count in self.shape.targets:
            self.broker.make_topic(topic, count)

    def _prepare(self) -> None:
        """Make the topics of the intake that are missing, as a start of the service does."""
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        birth = Birth(cluster, admin, GROUP, self.clock)
        partitions, geometry = self.shape.partitions, self.shape.geometry
        give = partial(birth.give, INTAKE, partitions, geometry)
        is_fixed = self.shape.fixed_delay_ms is not None
        make_or_check(TopicAdmin(admin), INTAKE, partitions, 1, geometry, fixed_delay=is_fixed, before_intake=give)
        make_or_check_status(TopicAdmin(admin), INTAKE, 1)
        self.broker.slow_down(INTAKE + JOURNAL, self.shape.journal_fetch_ms)

    def _read(self) -> Consumer:
        cluster = Cluster("fake", {}, self.broker.clients("watcher"))
        reader = cluster.clients.consumer(cluster.reader())
        own = [(INTAKE + suffix, self.shape.partitions) for suffix in (DEAD, RESULTS)]
        topics = [*self.shape.targets, *own]
        reader.incremental_assign([TopicPartition(topic, p, 0) for topic, count in topics for p in range(count)])
        return reader

    def _new(self, name: str, *, instance: str | None = None) -> Process:
        return self._process(name=name, instance=instance or (name if self.shape.static else None))

    # -- what happens in it -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes."""
        for process in self.processes:
            process.start()

    def newcomer(self, name: str, *, instance: str | None = None) -> Process:
        """Start one more process."""
        process = self._new(name, instance=instance)
        self.processes.append(process)
        process.start()
        self.touch()
        return process

    def send(self, messages: int, *, longest_ms: int = 6_000) -> None:
        """Write messages to the intake, due at any time from at once to `longest_ms` ahead, or by its fixed delay."""
        for _ in range(messages):
            if self.shape.fixed_delay_ms is not None:
                self._send_fixed(self.shape.fixed_delay_ms)
                continue
            if self.shape.large and self.random.random() < self.shape.large * self.shape.poison:
                self.send_large(LARGE_BYTES, target=None)
                continue
            self._send_one(self.random.choice((0, 40, 300, longest_ms)))
            if self.shape.again and self.random.random() < self.shape.again:
                self.send_again(self.random.choice(self.sent[-20:]), later_ms=self.random.choice((0, 0, 1)))
            if self.sent and self.random.random() < self.shape.cancels:
                self.cancel(self.random.choice(self.sent[-20:]))

    def send_due(self, due_ms: int) -> None:
        """Write a message to the intake that is due at a time."""
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
        headers = [(ID, id_), (TARGET, b"no-such-topic" if poisoned else target.encode()), when]
        key, value = b"key-%d" % key_number, b"%d" % number
        offset = self.broker.append(INTAKE, key, value, headers, place[1], now_ms)
        due_ms = self._tick_of(now_ms + delay_ms)
        self._note_sent(Sent(id_, place, offset, key, None if poisoned else target, due_ms, value))

    def send_large(
        self, size: int, *, target: str | None, arrives: bool = False, delay_ms: int = 0, codec: bool = True
    ) -> None:
        """Write a large message to the intake.

        Args:
            size: of its value.
            target: where to; None: it does not say.
            arrives: whether it can be delivered; else it can only become a dead letter.
            delay_ms: how long it waits.
            codec: whether its producer compresses, and it is small so; else it is not smaller compressed either.
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
        # A stamp that is far ahead counts as of the time when it is read: not before it was written.
        due_ms = self._tick_of((read_ms if stamp_ms > read_ms + AHEAD_MS else stamp_ms) + delay_ms)
        offset = self.broker.append(INTAKE, key, value, [(ID, id_), *([(PARTITION, b"x")] * poisoned)], place[1])
        self.clock.jump(self.leader_behind_ms)
        if not poisoned:
            # No record is due before the one in front of it.
            due_ms = self._last_due_ms[place] = max(due_ms, self._last_due_ms.get(place, 0))
        self._note_sent(Sent(id_, place, offset, key, None if poisoned else self.shape.targets[0][0], due_ms, value))

    def _tick_of(self, due_ms: int) -> int:
        """When a message is due that names a time: at the first tick that is not before it."""
        return -(-due_ms // self.shape.tick_ms) * self.shape.tick_ms

    @property
    def _number(self) -> int:
        """Of the next message, which is its value: no two have the same."""
        return len(self.sent) + self._forgotten

    def _note_sent(self, message: Sent) -> None:
        self.sent.append(message)
        self._unread.setdefault(message.place, []).append(message)
        self._waiting[message.source] = _Waiting(message)
        self._known.send(message)

    def send_again(self, message: Sent, *, later_ms: int = 0) -> None:
        """Write a message to the intake that has the id of another, and its target, and is due with it, or later."""
        due_ms = self._tick_of(message.due_ms + later_ms)
        value = b"%d" % self._number
        target = (message.target or "no-such-topic").encode()
        headers = [(ID, message.id), (TARGET, target), (DELIVER_AT, b"%d" % due_ms)]
        offset = self.broker.append(INTAKE, message.key, value, headers, message.place[1], self.clock.now_ms())
        self._note_sent(
            replace(message, offset=offset, value=value, due_ms=due_ms, ends=None, in_time=False, was_known=False)
        )

    def cancel(self, message: Sent) -> None:
        """Write a cancel to the intake; of one that is done, too, or is cancelled already."""
        intake, partition = message.place
        handle = f"1.{intake}.{partition}.{message.due_ms}.{message.id.decode()}".encode()
        offset = self.broker.append(intake, None, None, [(CANCEL, handle)], partition, self.clock.now_ms())
        cancel = SentCancel(message.place, offset, message)
        self.cancels.append(cancel)
        self._unread.setdefault(message.place, []).append(cancel)

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        self.run_until(lambda: False, for_ms)

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> bool:
        """Go on until something holds; whether it came to that in time."""
        ends_ms = self.clock.monotonic_ms() + within_ms
        while not (holds := condition()) and self.clock.monotonic_ms() < ends_ms:
            self.round()
        return holds

    def round(self) -> None:
        """One turn of each process that runs."""
        self._restart_who_is_due()
        before_ms = self.clock.monotonic_ms()
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
        """Disturb nothing more, let all that is due arrive, end all processes in good order, and judge."""
        self.disturb = nothing
        self.widen()
        self.run_until(lambda: not self.leaderless and not self.held, LEADERLESS_MS[1] + TRIED_AGAIN_MS)
        self.touch()
        for topic in sorted(self.away):
            self.bring_back(topic)
        self._restart_all_that_must()
        self.run_until(lambda: not self._waiting and not self._restarts, SETTLE_MS)
        self.run(EMPTIED_MS if self.shape.geometry.levels else 1_000)
        # An emptying whose answer was lost is asked for again only when its time-out is over.
        self.run_until(lambda: not self._left_behind(), SETTLE_MS)
        for process in self.processes:
            process.stop()
        self.clock.advance(max(self.shape.marker_lag_ms) + 1)
        while self._watch():
            pass
        delivered, dead, results = self._seen["delivered"], self._seen[DEAD], self._seen[RESULTS]
        report = judge(self.sent, self.cancels, delivered, dead, results, self._repeated)
        if self.shape.fixed_delay_ms is not None:
            judge_log_order(report, self.sent, delivered, dict(self.shape.targets), self._repeated)
        if left := self._left_behind():
            report.faults["left behind"] = left
        if self._stuck:
            report.faults["stuck"] = self._stuck
        refused = [f"{p.name}: {error}" for p in self.processes for error in p.errors if self._unforeseen(error)]
        if refused:
            report.faults["refused"] = refused
        return report

    def _restart_all_that_must(self) -> None:
        """Start who does not run; and begin again where a stub says so, now that the limits are raised."""
        for process in self.processes:
            if self.stubs:
                process.stop()
            if process.worker is None and not any(restart.process is process for restart in self._restarts):
                self.restart(process, 0)

    def _left_behind(self) -> list[str]:
        """Records in buckets when nothing waits any more."""
        geometry = self.shape.geometry
        slots = slots_of(geometry) * self.shape.partitions
        places = [(wheel_topic(INTAKE, level), p) for level in range(1, geometry.levels + 1) for p in range(slots)]
        return [f"{topic}/{p}: {records}" for topic, p in places if (records := len(self.broker.records(topic, p)))]

    def unseen(self) -> list[Sent]:
        """Messages that have not arrived."""
        return [waiting.message for waiting in self._waiting.values()]

    def trace(self) -> list[str]:
        """What the processes had to say, one line each."""
        return [f"{handle} {event} {dict(fields)}" for handle, event, fields in self.events]

    # -- disturbances -----------------------------------------------------------------------------------------------

    def touch(self, for_ms: int = 0) -> None:
        """Something is disturbed, for so long from now on: patience begins anew after it."""
        self.disturbed_ms = max(self.disturbed_ms, self.clock.monotonic_ms() + for_ms)

    def lose_answer(self) -> Fate:
        """Lose the answer of a step; a client may wait its whole time-out for it."""
        self.touch(REQUEST_TIMEOUT_MS)
        return Fate.LOSE_ANSWER

    def crash(self, process: Process, *, back_after_ms: int | None = 300) -> None:
        """End a process as kill -9 does, between two turns."""
        process.crash()
        self._crashed(process, back_after_ms)

    def crash_here(self, process: Process, *, back_after_ms: int | None = 300) -> None:
        """End a process as kill -9 does, in the middle of a step.

        Raises:
            Crash: always.
        """
        process.crash()
        self._crashed(process, back_after_ms)
        raise Crash

    def pause_here(self, process: Process, for_ms: int, *, frozen: bool) -> None:
        """Hold a process in the middle of a step, while all else goes on.

        Args:
            process: the one.
            for_ms: how long.
            frozen: as by SIGSTOP, its heartbeats too; else its threads in the client library go on.
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
        """Lower the limit of a topic beside the intake: it takes small batches alone."""
        self._narrowed.add(suffix)
        self.broker.configure(INTAKE + suffix, max_message_bytes=str(limit_bytes))

    def widen(self) -> None:
        """Put the limits of the topics beside the intake back, and forbid nothing of what a process may write."""
        for suffix in sorted(self._narrowed):
            self.broker.configure(INTAKE + suffix, max_message_bytes=str(WIDE_BYTES))
        self._narrowed.clear()
        self.broker.throttle(None)
        self.touch()

    def take_away(self, topic: str, *, markers_wait: bool = True) -> None:
        """Take a target's leaders away: what is for it waits.

        Args:
            topic: the target.
            markers_wait: whether transactions that it is part of can't end before they are back.
        """
        self.away.add(topic)
        self.broker.take_away(topic, markers_wait=markers_wait)

    def bring_back(self, topic: str) -> None:
        """Bring a target's leaders back."""
        self.away.discard(topic)
        self.broker.bring_back(topic)
        self.touch()

    def own_logs(self) -> list[tuple[Place, Place]]:
        """All partitions beside the intake, each with the partition of the intake that it belongs to."""
        geometry = self.shape.geometry
        places = [(INTAKE, partition) for partition in range(self.shape.partitions)]
        return [(log, place) for place in places for log in logs_of(place, geometry) if log != place]

    def lose_leader(self, log: Place, place: Place, for_ms: int) -> None:
        """Take the leader of a partition beside the intake away, for so long: its partition of the intake waits alone.

        Args:
            log: which.
            place: the partition of the intake.
            for_ms: until the leader is back.
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
        """Write a record that is not the service's into a partition's journal, and mend that after so long.

        Args:
            place: the partition of the intake; whoever takes it over meanwhile can't.
            for_ms: until then.
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
        """Whether what is due in a partition of the intake can't fire, by nobody's fault.

        Who was interrupted in a transaction whose end waits for a leader can't be shut out before that is there.
        """
        return (
            place in self.held
            or place in self.leaderless.values()
            or (bool(self.leaderless or self.away) and any(map(self._was_interrupted, self.broker.ending)))
        )

    def hide(self, topic: str, for_ms: int) -> None:
        """Have a broker know nothing of a topic for a while."""
        self.broker.hide(topic)
        self.clock.call_at(self.clock.monotonic_ms() + for_ms, lambda: self.broker.hide(topic, hidden=False))
        self.touch(for_ms)

    def _was_interrupted(self, transactional_id: str) -> bool:
        """Whether the process of an id was interrupted, or is gone."""
        alive = {process.instance or process.handle for process in self.processes if process.worker is not None}
        name = transactional_id.removeprefix(f"{GROUP}.")
        return not any(name.startswith(f"{one}-") for one in alive - self._interrupted)

    def restart(self, process: Process, after_ms: int) -> None:
        """Start a process again after a while."""
        self._restarts.append(_Restart(self.clock.monotonic_ms() + after_ms, process))

    def make_anew(self, *suffixes: str) -> None:
        """Topics of the intake are deleted and made anew, as by somebody who thinks them his own.

        Args:
            suffixes: of their names; the empty one is the intake's: nothing is promised of what was sent to it before.
        """
        self.widen()  # or the start refuses topics that take so little
        for suffix in suffixes:
            self.broker.delete_topic(INTAKE + suffix)
        self._prepare()
        if "" in suffixes:
            self._forget(list(self.sent))
            for kept in (self.cancels, self._unread, self._last_due_ms, self._owners):
                kept.clear()
        self.touch()

    def _forget(self, messages: Sequence[Sent]) -> None:
        """Expect no more of messages; others will stand in their places."""
        self._former.update(message.id for message in messages)
        self._forgotten += len(messages)
        for message in messages:
            self.sent.remove(message)
            self._known.forget(message)
            self._waiting.pop(message.source, None)
        for kind, seen in self._seen.items():
            self._seen[kind] = [one for one in seen if one.id not in self._former]

    def lose_end(self, partition: int, end: int) -> None:
        """What a partition of the intake holds from an offset on is lost; nothing is promised of it."""
        place = (INTAKE, partition)
        self.broker.truncate(INTAKE, end, partition)
        self._forget([message for message in self.sent if message.place == place and message.offset >= end])
        self._unread[place] = [one for one in self._unread.get(place, []) if one.offset < end]
        self.touch()

    def until_refused(self) -> str | None:
        """Run one process alone, as an operator who looks; why it does not serve all, or None where it does."""
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
        """What a start with `--adopt` does: what was sent so far may come once more, and behind what came before.

        Returns:
            Why, for each partition that was adopted.
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

    def _restart_who_is_due(self) -> None:
        now_ms = self.clock.monotonic_ms()
        for restart in [one for one in self._restarts if one.at_ms <= now_ms]:
            self._restarts.remove(restart)
            if restart.process.worker is None:
                restart.process.start()
                self.touch()

    def _step(self, process: Process, step: Step) -> Fate | None:
        return self.disturb(process, step)

    # -- what is noted ----------------------------------------------------------------------------------------------

    def _note(self, process: Process, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((process.handle, event, fields))
        if event == "taken_over":
            place = (fields["topic"], fields["partition"])
            self._owners[place] = process.handle
            self._known.take_over(place)

    def _accept(self, process: Process) -> None:
        """Note which messages their owner has read in time, and how far the targets reached then."""
        now_ms = self.clock.now_ms()
        ends: Mapping[Place, int] | None = None
        for place, state in process.states.items():
            if self._owners.get(place) != process.handle:
                continue
            unread = self._unread.get(place, [])
            while unread and unread[0].offset < state.position:
                message = unread.pop(0)
                latest_ms = max(now_ms, self._latest_ms)
                if isinstance(message, SentCancel):
                    cancelled = message.message
                    # What it is for stands in front of it, and was read before it; nothing of that was due so far.
                    after_ms = latest_ms - cancelled.due_ms
                    message.in_time = after_ms < 0 and cancelled.target is not None
                    message.may_know = after_ms < self.shape.geometry.width_ms
                    continue
                # With less memory what was delivered is forgotten before its time.
                is_ample = self.shape.memory_budget_bytes >= AMPLE_BYTES
                message.in_time = latest_ms < message.due_ms and is_ample
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
        """Read what has become visible, and complain about what should have; whether there was anything to read."""
        wall_ms, now_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        self._latest_ms = max(self._latest_ms, wall_ms)
        records = self._reader.consume(1_000, 0)
        for record in records:
            if record.error() is not None:
                continue  # an end was reached
            topic = record.topic() or ""
            suffix = topic.removeprefix(INTAKE) if topic.startswith(INTAKE) else "delivered"
            headers: Any = record.headers()
            if (stub := dict(headers or []).get(STUB)) is not None:
                self.stubs.append(stub)
                if (waiting := self._waiting.get(_source_of(headers))) is not None:
                    waiting.has_stub = True
                continue
            id_: Any = record.key() if suffix == RESULTS else dict(headers or []).get(ID, b"")
            if id_ in self._former:
                self.survivors.add(id_)
                continue
            where = (topic, record.partition() or 0)
            value = record.value()
            source = json.loads(value or b"")["source"] if suffix == RESULTS else _source_of(headers)
            stamp_ms = record.timestamp()[1]
            seen = Seen(id_, where, record.offset() or 0, stamp_ms, self._latest_ms, now_ms, value, source)
            self._seen[suffix].append(seen)
            if suffix == "delivered" and (waiting := self._waiting.get(source)) is not None:
                self._known.deliver(waiting.message)
            if suffix != RESULTS or b'"fired"' not in (value or b""):  # that goes with a delivery, which is to be seen
                self._waiting.pop(source, None)
        if not self._paused:
            self._complain(wall_ms, now_ms)
        return bool(records)

    def _complain(self, wall_ms: int, now_ms: int) -> None:
        """Note what should have become visible by now."""
        for waiting in self._waiting.values():
            message = waiting.message
            is_early = message.due_ms > wall_ms
            if is_early or waiting.has_stub or message.target in self.away or self._is_held(message.place):
                waiting.due_since_ms = None
            elif waiting.due_since_ms is None:
                waiting.due_since_ms = now_ms
            elif not waiting.told and now_ms - max(waiting.due_since_ms, self.disturbed_ms) >= self._patience_ms:
                waiting.told = True
                self._stuck.append(f"{self._patience_ms} ms: {waiting.message}")

    @property
    def _patience_ms(self) -> int:
        catch_up_ms = CATCH_UP_MS if self.shape.geometry == LARGE_LEVELS else 0
        return PATIENCE_MS + catch_up_ms + (LONG_JOURNAL_MS if self.shape.journal_fetch_ms else 0)

    @staticmethod
    def _unforeseen(error: Exception) -> bool:
        return not isinstance(error, MembershipLostError)
