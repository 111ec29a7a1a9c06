"""A whole world in one thread: a fake cluster, processes of the service, senders, readers, and time.

Nothing here reads a real clock or the machine's randomness: the same seed gives the same run, step by step. Time moves
where a client waits, and where nobody is there to wait.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from confluent_kafka import Consumer, TopicPartition

from tarry.core.checkpoint import Geometry
from tarry.core.intake_policy import IntakePolicy
from tarry.core.levels import slots_of
from tarry.core.request_reader import RequestReader
from tarry.errors import MembershipLostError
from tarry.headers import CANCEL, DELAY_MS, DELIVER_AT, ID, PARTITION, TARGET
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.place import Place
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, RESULTS, TopicAdmin, wheel_topic
from tarry.testing.fake import FakeBroker, Fate, Step
from tarry.testing.manual_clock import ManualClock
from tarry.testing.simulation.oracle import Report, Seen, Sent, SentCancel, judge, judge_log_order
from tarry.testing.simulation.process import Crash, Disturbance, Process, Role
from tarry.worker.plan import IntakePlan

INTAKE = "in"
GROUP = "group"
NO_LEVELS = Geometry(20_000, 10, 0)
SMALL_LEVELS = Geometry(400, 2, 3)
"""Three levels, with buckets of 0.4, 0.8 and 1.6 s: all of them turn within seconds."""

LARGE_LEVELS = Geometry(2_000, 2, 2)
"""Two levels, for a cluster whose transactions take up to a second each."""

KEYS = 6
IDLE_MS = 10
PATIENCE_MS = 14_000
"""How long a message that is due may take to be seen while nothing disturbs: a session's 6 s, and a take-over."""
CATCH_UP_MS = 45_000
"""And longer where buckets are to be closed one after the other, each by a commit or two that take a second."""
SETTLE_MS = 90_000
EMPTIED_MS = 12_000
"""By then every bucket's time is over, and it is emptied."""
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
        most: messages a transaction.
        memory_budget_bytes: of a process.
        poison: the share of messages that can only become dead letters.
        cancels: how many come with a message.
        geometry: of the overflow wheel.
        fixed_delay_ms: of the intake, which has the first target then; None: its messages say when and where.
    """

    protocol: Literal["classic", "consumer"] = "classic"
    static: bool = False
    partitions: int = 2
    processes: int = 2
    targets: tuple[tuple[str, int], ...] = (("orders", 2), ("bills", 1))
    marker_lag_ms: tuple[int, int] = (0, 0)
    latency_ms: tuple[int, int] = (0, 1)
    fetch_most: int = 20
    most: int = 20
    memory_budget_bytes: int = 1 << 30
    poison: float = 0.05
    cancels: float = 0.0
    geometry: Geometry = NO_LEVELS
    fixed_delay_ms: int | None = None


def nothing(_process: Process, _step: Step) -> None:
    """Disturb nothing."""


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
        self.leader_behind_ms = 0
        """How far the clock of the intake's leader is behind; log-append time is by that."""
        self._latest_ms = 0
        self.disturbed_ms = 0
        """Monotonic: when the last disturbance ended."""
        self._unread: dict[Place, list[Sent | SentCancel]] = {}
        self._accepted: set[bytes] = set()
        self._waiting: dict[bytes, _Waiting] = {}
        self._owners: dict[Place, str] = {}
        self._stuck: list[str] = []
        self._restarts: list[_Restart] = []
        self._seen: dict[str, list[Seen]] = {"delivered": [], DEAD: [], RESULTS: []}
        self._paused = 0
        self._last_due_ms: dict[Place, int] = {}
        self._build()
        is_fixed = shape.fixed_delay_ms is not None
        target = shape.targets[0][0] if is_fixed else None
        reader = RequestReader(IntakePolicy(topic=INTAKE, fixed_delay_ms=shape.fixed_delay_ms, fixed_target=target))
        role = Role(
            self.broker,
            self.clock,
            GROUP,
            shape.protocol,
            {INTAKE: IntakePlan(reader, is_fixed, shape.geometry, 3_600_000)},
            shape.most,
            shape.memory_budget_bytes,
        )
        self._process = partial(Process, role, disturb=self._step, on_event=self._note)
        self.processes = [self._new(f"p{number}") for number in range(shape.processes)]
        self._reader = self._read()

    # -- its parts --------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.admin())
        birth = Birth(cluster, admin, GROUP, self.clock)
        partitions, geometry = self.shape.partitions, self.shape.geometry
        give = partial(birth.give, INTAKE, partitions, geometry, adopt=False)
        is_fixed = self.shape.fixed_delay_ms is not None
        make_or_check(TopicAdmin(admin), INTAKE, partitions, 1, geometry, fixed_delay=is_fixed, before_intake=give)
        for topic, count in self.shape.targets:
            self.broker.make_topic(topic, count)

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
            self._send_one(self.random.choice((0, 40, 300, longest_ms)))
            if self.sent and self.random.random() < self.shape.cancels:
                self._cancel(self.random.choice(self.sent[-20:]))

    def send_due(self, due_ms: int) -> None:
        """Write a message to the intake that is due at a time."""
        self._send_one(0, due_ms)

    def _send_one(self, longest_ms: int, due_ms: int | None = None) -> None:
        choose = self.random
        number = len(self.sent)
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
        message = Sent(id_, place, offset, key, None if poisoned else target, now_ms + delay_ms, value)
        self._note_sent(message)

    def _send_fixed(self, delay_ms: int) -> None:
        """Write a message to an intake with a fixed delay, some without a key."""
        choose = self.random
        key_number = choose.randrange(KEYS)
        place = (INTAKE, key_number % self.shape.partitions)
        id_ = str(uuid.UUID(int=choose.getrandbits(128), version=4)).encode()
        poisoned = choose.random() < self.shape.poison
        key, value = b"key-%d" % key_number if choose.random() < 0.6 else None, b"%d" % len(self.sent)
        self.clock.jump(-self.leader_behind_ms)
        due_ms = self.clock.now_ms() + delay_ms
        offset = self.broker.append(INTAKE, key, value, [(ID, id_), *([(PARTITION, b"x")] * poisoned)], place[1])
        self.clock.jump(self.leader_behind_ms)
        if not poisoned:
            # No record is due before the one in front of it.
            due_ms = self._last_due_ms[place] = max(due_ms, self._last_due_ms.get(place, 0))
        self._note_sent(Sent(id_, place, offset, key, None if poisoned else self.shape.targets[0][0], due_ms, value))

    def _note_sent(self, message: Sent) -> None:
        self.sent.append(message)
        self._unread.setdefault(message.place, []).append(message)
        self._waiting[message.id] = _Waiting(message)

    def _cancel(self, message: Sent) -> None:
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
        self.touch()
        for topic in sorted(self.away):
            self.bring_back(topic)
        for process in self.processes:
            if process.worker is None and not any(restart.process is process for restart in self._restarts):
                self.restart(process, 0)
        self.run_until(lambda: not self._waiting and not self._restarts, SETTLE_MS)
        self.run(EMPTIED_MS if self.shape.geometry.levels else 1_000)
        for process in self.processes:
            process.stop()
        self.clock.advance(max(self.shape.marker_lag_ms) + 1)
        while self._watch():
            pass
        report = judge(self.sent, self.cancels, self._seen["delivered"], self._seen[DEAD], self._seen[RESULTS])
        if self.shape.fixed_delay_ms is not None:
            judge_log_order(report, self.sent, self._seen["delivered"], dict(self.shape.targets))
        if left := self._left_behind():
            report.faults["left behind"] = left
        if self._stuck:
            report.faults["stuck"] = self._stuck
        refused = [f"{p.name}: {error}" for p in self.processes for error in p.errors if self._unforeseen(error)]
        if refused:
            report.faults["refused"] = refused
        return report

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
        self._paused += 1
        if frozen:
            self.broker.freeze(process.handle)
        self.run(for_ms)
        if frozen:
            self.broker.thaw(process.handle)
        process.paused = False
        self._paused -= 1
        self.touch()

    def take_away(self, topic: str) -> None:
        """Take a target's leaders away: what is for it waits."""
        self.away.add(topic)
        self.broker.take_away(topic)

    def bring_back(self, topic: str) -> None:
        """Bring a target's leaders back."""
        self.away.discard(topic)
        self.broker.bring_back(topic)
        self.touch()

    def restart(self, process: Process, after_ms: int) -> None:
        """Start a process again after a while."""
        self._restarts.append(_Restart(self.clock.monotonic_ms() + after_ms, process))

    def _crashed(self, process: Process, back_after_ms: int | None) -> None:
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
            self._owners[fields["topic"], fields["partition"]] = process.handle

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
                if isinstance(message, SentCancel):
                    cancelled = message.message
                    message.in_time = (
                        now_ms < cancelled.due_ms and cancelled.id in self._accepted and cancelled.target is not None
                    )
                    continue
                self._accepted.add(message.id)
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
            id_: Any = record.key() if suffix == RESULTS else dict(headers or [])[ID]
            where = (topic, record.partition() or 0)
            value = record.value()
            seen = Seen(id_, where, record.offset() or 0, record.timestamp()[1], self._latest_ms, now_ms, value)
            self._seen[suffix].append(seen)
            if suffix != RESULTS or b'"cancelled"' in (value or b""):
                self._waiting.pop(id_, None)
        if self._paused:
            return bool(records)
        for waiting in self._waiting.values():
            if waiting.message.due_ms > wall_ms or waiting.message.target in self.away:
                waiting.due_since_ms = None
            elif waiting.due_since_ms is None:
                waiting.due_since_ms = now_ms
            elif not waiting.told and now_ms - max(waiting.due_since_ms, self.disturbed_ms) >= self._patience_ms:
                waiting.told = True
                self._stuck.append(f"{self._patience_ms} ms: {waiting.message}")
        return bool(records)

    @property
    def _patience_ms(self) -> int:
        return PATIENCE_MS if self.shape.geometry != LARGE_LEVELS else PATIENCE_MS + CATCH_UP_MS

    @staticmethod
    def _unforeseen(error: Exception) -> bool:
        return not isinstance(error, MembershipLostError)
