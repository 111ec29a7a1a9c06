"""Owners of partitions that obey pauses: processes that come, go, sleep and lose partitions, over one log of pauses.

The rules are the service's own: `Pausing` follows the log, `PartitionState` holds the gate and the messages, and
`obeys` says what is confirmed. The cluster, the group and the loop around them are simple ones of lists: the log may be
away, hidden by a broker, deleted and made again; a foreign transaction may be open in it. Partitions are added and
adopted.

The oracle knows each record and each checkpoint that was committed. From when all checkpoints confirm a pause, no
transaction delivers to its target, until the target is resumed or the pause's time is over.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.pause import Pause
from tarry.core.request.reader import RequestReader
from tarry.errors import FatalError
from tarry.kafka import control, control_log
from tarry.kafka.control_log import AskedControlLog, ControlLog, NoControlLog
from tarry.kafka.topics import Target
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.pausing import LOOK_EVERY_MS, PATIENCE_MS, Pausing
from tarry.testing import ManualClock
from tarry.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from tarry.core.batch import Batch
    from tarry.kafka.reader import Reader

INTAKE, LOG = "in", ("in.control", 0)
TARGETS = ("orders", "bills")
SHAPE = Geometry(20_000, 10, 0)
PROCESSES = 3
MOST_PARTITIONS = 4
TURN_MS = 40
CALM_MS = 3 * LOOK_EVERY_MS
CALM_TURNS = 50

Where = Literal["there", "away", "hidden", "deleted"]


@dataclass(slots=True)
class Entry:
    """A record of the log.

    Attributes:
        pause: what it says.
        fate: `open` or `aborted` if it is of a foreign transaction; else empty.
    """

    pause: Pause
    fate: Literal["", "open", "aborted"] = ""


@dataclass(slots=True)
class Promise:
    """A pause that was written.

    Attributes:
        offset: of its record.
        until_ms: when it ends by itself.
        is_confirmed: whether all checkpoints have confirmed it.
    """

    offset: int
    until_ms: int | None
    is_confirmed: bool = False


@dataclass(slots=True)
class Log:
    """The log of pauses, and what the oracle makes of it."""

    number: int = 0
    where: Where = "there"
    entries: list[Entry] = field(default_factory=list)
    promised: dict[str, Promise] = field(default_factory=dict)
    """The pause of each target that was not resumed since."""

    @property
    def topic_id(self) -> str:
        return f"id-{self.number}"

    @property
    def stable_end(self) -> int:
        return next((at for at, one in enumerate(self.entries) if one.fate == "open"), len(self.entries))

    def answer(self) -> ControlLog | NoControlLog:
        """Return what a broker answers now."""
        if self.where == "there":
            return ControlLog(self.topic_id, 0, self.stable_end)
        return NoControlLog(self.where, is_missing=self.where != "away")

    def write(self, pause: Pause) -> None:
        self.entries.append(Entry(pause))
        if pause.paused:
            before = self.promised.get(pause.target)
            # The one before holds for those who have not read this one.
            is_kept = before is not None and before.is_confirmed and pause.until_ms is None and before.until_ms is None
            self.promised[pause.target] = Promise(len(self.entries) - 1, pause.until_ms, is_confirmed=is_kept)
        else:
            self.promised.pop(pause.target, None)


class Asked:
    """A question about the log: the answer is of some moment after it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._answer: ControlLog | NoControlLog | None = None

    def answer(self) -> ControlLog | NoControlLog | None:
        if self._answer is None:
            if self._world.choose.random() < 0.5:
                self._answer = self._world.log.answer()
            return None
        return self._answer


class Process:
    """A process: its loop, without brokers."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.position: int | None = None
        """The next offset of the log to read; None: it is not open."""
        self.log_number = 0
        self.states: dict[Place, PartitionState] = {}
        self.offsets: Counter[Place] = Counter()
        self.attempt: tuple[PartitionState, str, Batch] | None = None
        self.sleeps = False
        self.pausing = Pausing(
            [INTAKE],
            cast("Reader", self),
            lambda _intake: cast("AskedControlLog", Asked(world)),
            self.ask_others,
            self.commit_checkpoints,
            Context(world.clock, self.note),
        )

    # -- what `Pausing` calls ------------------------------------------------------------------------------------------

    def open(self, starts: Mapping[Place, int]) -> None:
        self.position, self.log_number = starts[LOG], self.world.log.number

    def shut(self, _places: Iterable[Place]) -> None:
        self.position = None

    def ask_others(self, _topics: object) -> Mapping[str, Target]:
        return {LOG[0]: Target(0 if self.world.log.where == "deleted" else 1)}

    def note(self, event: str, **_fields: object) -> None:
        self.world.seen[event] += 1

    def commit_checkpoints(self, states: Sequence[PartitionState]) -> None:
        texts = {state.place: state.settle_checkpoint().metadata for state in states}
        self.world.commit(self, texts, copied=True)
        for state in states:
            state.confirm_checkpoint()

    # -- a turn --------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what a turn of the loop does, in its order."""
        try:
            self.read()
            self.pausing.turn(self.states)
            self.fire()
            self.try_parked()
            self.pausing.confirm(list(self.states.values()), self.is_trying)
        except FatalError:  # of a process that has lost a partition without knowing
            self.world.seen["fenced"] += 1
            self.drop()

    def read(self) -> None:
        log, choose = self.world.log, self.world.choose
        if self.position is None or log.where in {"away", "deleted"} or self.log_number != log.number:
            return
        end = min(log.stable_end, self.position + choose.choice((1, 2, 50)))
        for offset in range(self.position, end):
            entry = log.entries[offset]
            if entry.fate != "aborted":
                self.pausing.accept(cast("Any", _record(offset, entry.pause)))
        self.position = end
        self.pausing.reach({LOG: end})

    def fire(self) -> None:
        """Deliver a message to each target that is not set apart, in one transaction."""
        now_ms, batches = self.world.clock.now_ms(), []
        for place, state in self.states.items():
            for target in TARGETS:
                headers: list[tuple[str, bytes | None]] = [("tarry-target", target.encode()), ("tarry-delay-ms", b"0")]
                state.arrivals.accept(self.offsets[place], now_ms, b"k", b"v", headers, now_ms)
                self.offsets[place] += 1
            if state.collect(now_ms):
                batch = state.take(10, now_ms, self.pausing.paused(INTAKE))
                batches.append((state, batch, state.settle(batch).metadata))
        if batches:
            delivered = [message.target for _, batch, _ in batches for message in batch.due]
            self.world.commit(self, {state.place: text for state, _, text in batches}, delivered)
            for state, batch, _ in batches:
                state.confirm(batch)

    def try_parked(self) -> None:
        """Begin to deliver what is parked for a target, or end that."""
        choose, now_ms = self.world.choose, self.world.clock.now_ms()
        if self.attempt is not None:
            if choose.random() < 0.3:
                (state, target, batch), self.attempt = self.attempt, None
                self.world.commit(self, {state.place: None}, [target] * len(batch))
                state.confirm_parked(batch)
            return
        apart = self.pausing.paused(INTAKE)
        parked = [(one, target) for one in self.states.values() for target in sorted(set(one.parked.targets) - apart)]
        if parked:
            state, target = choose.choice(parked)
            batch = state.take_parked(target, 5, now_ms)
            if len(batch):
                state.journal_of_parked(batch)
                self.attempt = state, target, batch

    def is_trying(self, state: PartitionState, targets: frozenset[str]) -> bool:
        return self.attempt is not None and self.attempt[0] is state and self.attempt[1] in targets

    # -- the group -----------------------------------------------------------------------------------------------------

    def take_over(self, place: Place) -> None:
        """Name itself in the checkpoint, and begin with a closed gate."""
        found = self.world.checkpoints[place]
        named = Checkpoint((f"p{self.number}-fire",), False, SHAPE, obeyed=found.obeyed)
        self.world.checkpoints[place], self.world.owners[place] = named, self
        recovered = Recovered(0, named, DoneSet(), 0)
        reader = RequestReader(IntakePolicy(INTAKE))
        now_ms = self.world.clock.now_ms()
        state = PartitionState(INTAKE, place[1], reader, False, _wheel, recovered, now_ms)
        self.states[place], self.offsets[place] = state, 0
        self.pausing.taken_over({place: state})

    def release(self, place: Place) -> None:
        state = self.states.pop(place)
        if self.attempt is not None and self.attempt[0] is state:
            self.attempt = None
        if self.world.owners.get(place) is self:
            self.world.checkpoints[place] = decode_checkpoint(state.plain_checkpoint(released=True)[1])
            del self.world.owners[place]

    def drop(self) -> None:
        """Take all that is still ours over again, as after a fatal error."""
        self.states.clear()
        self.attempt = None
        for place in [place for place, owner in self.world.owners.items() if owner is self]:
            self.take_over(place)


class World:
    """The log, the group, the processes, and the oracle.

    Args:
        seed: of all choices.
    """

    def __init__(self, seed: int) -> None:
        self.choose = Random(seed)
        self.clock = ManualClock()
        self.log = Log()
        self.seen: Counter[str] = Counter()
        self.checkpoints: dict[Place, Checkpoint] = {}
        self.copies: dict[Place, Checkpoint] = {}
        self.owners: dict[Place, Process] = {}
        self.delivered: Counter[str] = Counter()
        self.processes = [Process(self, number) for number in range(PROCESSES)]
        for _ in range(2):
            self.bear()

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def bear(self) -> None:
        """Add a partition, with its first checkpoint."""
        place = (INTAKE, len(self.checkpoints))
        first = control_log.obeyed_at_first(self.log.answer())
        self.checkpoints[place] = self.copies[place] = Checkpoint((), True, SHAPE, obeyed=first)

    def adopt(self, place: Place) -> None:
        """Lose a partition's checkpoint, and give it another one."""
        if (owner := self.owners.pop(place, None)) is not None:
            owner.drop()
        first = control_log.obeyed_at_first(self.log.answer())
        self.checkpoints[place] = self.copies[place] = Checkpoint((), True, SHAPE, obeyed=first)

    def commit(
        self,
        process: Process,
        texts: Mapping[Place, str | None],
        delivered: Sequence[str] = (),
        *,
        copied: bool = False,
    ) -> None:
        """Commit checkpoints and deliveries, if the process owns the partitions.

        Raises:
            FatalError: it does not.
        """
        if any(self.owners.get(place) is not process for place in texts):
            raise FatalError("fenced")
        now_ms = self.clock.now_ms()
        for target in delivered:
            promise = self.log.promised.get(target)
            is_over = promise is None or (promise.until_ms is not None and now_ms >= promise.until_ms)
            assert is_over or not promise.is_confirmed, f"delivered to {target}, which is paused"  # type: ignore[union-attr]
            self.seen["not confirmed, and delivered"] += not is_over
        self.delivered.update(delivered)
        for place, text in texts.items():
            if text is not None:
                self.checkpoints[place] = decode_checkpoint(text)
                if copied:
                    self.copies[place] = self.checkpoints[place]

    def confirm(self) -> None:
        """See which pauses are confirmed."""
        for promise in self.log.promised.values():
            if not promise.is_confirmed and self.is_confirmed(promise.offset):
                promise.is_confirmed = True
                self.seen["confirmed"] += 1
                self.seen["confirmed without an owner"] += len(self.owners) < len(self.checkpoints)

    def is_confirmed(self, offset: int) -> bool:
        log = self.log
        if log.where == "deleted":
            return False
        # A new partition has no committed offset, so that nothing is confirmed before it has an owner.
        found = [one for one in self.checkpoints.values() if one.writer or one.obeyed is not None]
        if len(found) < len(self.checkpoints):
            return False
        return all(control.obeys(one, log.topic_id, offset, log.stable_end) for one in found)

    # -- what happens --------------------------------------------------------------------------------------------------

    def happen(self) -> None:
        """Let something happen, or nothing."""
        choose, log = self.choose, self.log
        can_write = log.where in {"there", "hidden"}
        often = 1 if log.where == "there" else 5  # while the log cannot be read, take-overs are what matters
        is_known = log.where in {"there", "away"}
        acts: list[tuple[float, Callable[[], None]]] = [
            (0.06 / often if can_write else 0, self.write),
            (0.05, self.rebalance),
            (0.01, self.sleep_or_wake),
            (0.01 * often, self.crash),
            (0.02, self.turn_log),
            (0.01 * often if is_known and len(self.checkpoints) < MOST_PARTITIONS else 0, self.bear),
            (0.005 * often if is_known else 0, lambda: self.adopt(choose.choice([*self.checkpoints]))),
            (0.02 if can_write else 0, self.transact),
        ]
        for share, act in acts:
            if choose.random() < share:
                act()

    def write(self) -> None:
        choose, now_ms = self.choose, self.clock.now_ms()
        is_pause = choose.random() < 0.6
        until_ms = now_ms + choose.choice((500, 5_000)) if is_pause and choose.random() < 0.3 else None
        target = choose.choice(TARGETS)
        self.log.write(Pause(target, is_pause, "", "", now_ms, until_ms))

    def rebalance(self) -> None:
        """Give a partition to a process: released in order before, or torn from one that does not know."""
        place, process = self.choose.choice([*self.checkpoints]), self.choose.choice(self.processes)
        owner = self.owners.get(place)
        if owner is process or process.sleeps:
            return
        if owner is not None and not owner.sleeps and self.choose.random() < 0.7:
            owner.release(place)
            if self.choose.random() < 0.3:
                return  # nobody has it for now
        process.take_over(place)

    def sleep_or_wake(self) -> None:
        process = self.choose.choice(self.processes)
        process.sleeps = not process.sleeps

    def crash(self) -> None:
        number = self.choose.randrange(PROCESSES)
        gone, self.processes[number] = self.processes[number], Process(self, number)
        for place in [place for place, owner in self.owners.items() if owner is gone]:
            self.processes[number].take_over(place)

    def turn_log(self) -> None:
        """Let the log be away, come back, or be deleted and made again."""
        log, choose = self.log, self.choose
        if log.where == "deleted":
            self.log = Log(log.number + 1)
        elif log.where != "there":
            log.where = "there"
        else:
            log.where = choose.choice(("away", "away", "away", "hidden", "hidden", "deleted"))
            if log.where == "deleted":
                log.promised.clear()  # as is documented
        self.seen[log.where] += 1

    def transact(self) -> None:
        """Begin a foreign transaction in the log, or end it."""
        opened = [one for one in self.log.entries if one.fate == "open"]
        if not opened:
            pause = Pause(self.choose.choice(TARGETS), False, "", "", self.clock.now_ms())
            self.log.entries.append(Entry(pause, "open"))
            self.seen["open"] += 1
        for one in opened:
            one.fate = "aborted"

    # -- a run ---------------------------------------------------------------------------------------------------------

    def run(self, turns: int) -> None:
        """Let things happen for some turns; then all is calm, and must come to an end."""
        for _ in range(turns):
            self.happen()
            self.step()
        if self.log.where == "deleted":
            self.turn_log()
        self.log.where = "there"
        if self.choose.random() < 0.5:
            self.transact()
        for process in self.processes:
            process.sleeps = False
        for place in self.checkpoints:
            if place not in self.owners:
                self.processes[0].take_over(place)
        ends_ms = self.clock.monotonic_ms() + CALM_MS
        while self.clock.monotonic_ms() < ends_ms:
            self.step()
            self.clock.advance(1_000)
        states = [state for process in self.processes for state in process.states.values()]
        assert all(state.knows_pauses for state in states), "a gate stays closed"
        assert len(states) >= len(self.checkpoints), "a partition is not served"
        end = self.log.stable_end
        assert not end or self.is_confirmed(end - 1), "what can be read is not confirmed"
        before = self.delivered.copy()
        for _ in range(CALM_TURNS):
            self.step()
        now_ms = self.clock.now_ms()
        for target in TARGETS:
            readable = [one.pause for one in self.log.entries[:end] if one.fate != "aborted"]
            last = next((one for one in reversed(readable) if one.target == target), None)
            is_paused = last is not None and last.holds_at(now_ms)
            assert is_paused != (self.delivered[target] > before[target]), f"{target}: paused is {is_paused}"

    def step(self) -> None:
        for process in self.processes:
            if not process.sleeps:
                process.turn()
            self.confirm()
        longest_ms = TURN_MS * 5 if self.log.where == "there" else PATIENCE_MS // 8
        self.clock.advance(self.choose.choice((1, TURN_MS, longest_ms)))


def _wheel(start_ms: int) -> TimingWheel:
    return TimingWheel(1, 64, start_ms)


def _record(offset: int, pause: Pause) -> SimpleNamespace:
    return SimpleNamespace(
        topic=lambda: LOG[0],
        offset=lambda: offset,
        key=pause.key,
        value=pause.value,
        timestamp=lambda: (1, pause.at_ms),
    )


def run(seed: int, turns: int = 300) -> World:
    """Run a course to its end.

    Raises:
        AssertionError: a promise is broken; the text names the seed.
    """
    world = World(seed)
    try:
        world.run(turns)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world
