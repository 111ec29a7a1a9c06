"""A run whose messages go through all logs of an intake, and what the steps of its owner belong to.

In `through_all_logs`, messages are filed to each level, moved down and filed again. The parked log is filled and
emptied, the index and a summary are written, and all these logs and the journal are trimmed. `Passage` finds out what a
process does from the logs alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tarry.core.progress.checkpoint import decode_checkpoint
from tarry.core.progress.journal import Copy, DoneEntry, IndexEntry, ParkedEntry, decode_entry
from tarry.core.progress.source import PARKED as PARKED_LEVEL
from tarry.core.progress.source import Source
from tarry.core.wheel.filed import read_filed
from tarry.core.wheel.overflow import Upkeep
from tarry.kafka.topics import JOURNAL, PARKED, wheel_topic
from tarry.testing.fake import Step
from tarry.testing.simulation import Process, Shape, World
from tarry.testing.simulation.disturbances import QUIET
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, serving
from tarry.testing.simulation.world import INTAKE, SMALL_LEVELS

if TYPE_CHECKING:
    from typing import Any

AWAY: Final = "bills"
"""The target that is away for a while."""

FILED_AGAIN: Final = "filed again"
FILED_TO_PARKED: Final = "filed to the parked log"
TAKEN_FROM_PARKED: Final = "taken from the parked log"
COPIED: Final = "copied the checkpoint"
TOLD: Final = "told a part of the index"
INDEXED: Final = "told the whole index"
SUMMED_UP: Final = "summed up the journal"

FLOORS: Final = {
    **{f"filed to level {level}": least for level, least in ((1, 1), (2, 4), (3, 10))},
    **{f"moved to level {level}": 8 for level in (1, 2)},
    **{f"trimmed in.wheel-{level}": 1 for level in (1, 2, 3)},
    "trimmed in.parked": 1,
    "trimmed in.journal": 1,
    FILED_AGAIN: 2,
    FILED_TO_PARKED: 5,
    TAKEN_FROM_PARKED: 5,
    COPIED: 10,
    TOLD: 8,
    INDEXED: 2,
    SUMMED_UP: 1,
}
"""How often the owner does each at least in a run without disturbances; a run with less shows nothing."""


def deep(shape: Shape) -> Shape:
    """Return the shape in which all that happens within seconds: one partition, and levels that get old soon."""
    upkeep = Upkeep(refile_from=10, tell_from=4, index_after=10)
    return replace(shape, partitions=1, geometry=SMALL_LEVELS, most=8, upkeep=upkeep, park_after_ms=300)


def through_all_logs(world: World) -> None:
    """Send messages for each level while a target is away. Three are due much later than the others."""
    world.start()
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    world.take_away(AWAY)
    for late_ms in (68_000, 69_000, 70_000):
        world.send_due(world.clock.now_ms() + late_ms)
    for _ in range(12):
        for soonest_ms, latest_ms in ((500, 1_000), (1_100, 1_900), (2_500, 3_500)):
            world.send_due(world.clock.now_ms() + world.random.randint(soonest_ms, latest_ms))
        world.send(1, longest_ms=200)
        world.run(100)
    world.run(4_000)
    # A copy with a summary is written a minute after the last one, if no side transaction is open then.
    for asleep_ms, awake_ms in ((30_000, 1_000), (22_000, 3_000)):
        world.clock.advance(asleep_ms)
        world.touch()
        world.run(awake_ms)
    world.bring_back(AWAY)
    world.run(2_000)
    owner(world).stop()


def owner(world: World) -> Process:
    """Return the process that serves the only partition, or the first one if none does."""
    return next((process for process in world.processes if process.states), world.processes[0])


def owner_of(seed: int, shape: Shape) -> str:
    """Return the name of the process that serves the only partition first."""
    world = World(seed, shape)
    world.start()
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    return owner(world).name


class Kind(NamedTuple):
    """A kind of step.

    Attributes:
        call: the request.
        phase: `before` or `after`.
        deed: what the request does, or its transaction.
    """

    call: str
    phase: str
    deed: str


class Passage:
    """Records the steps of a process and what they belong to, and disturbs nothing.

    Args:
        world: the world; its levels are those of an intake of one partition.
        name: the process.

    Attributes:
        steps: the steps, as in `Recorder`.
        firsts: the first step of each kind: its index. Other kinds of steps are in every run.
        counts: how often the process did each deed: by record, or by request if that deletes records.
    """

    def __init__(self, world: World, name: str) -> None:
        self.steps: list[Step] = []
        self.firsts: dict[Kind, int] = {}
        self.counts: Counter[str] = Counter()
        self._world = world
        self._name = name
        levels = range(1, world.shape.geometry.levels + 1)
        self._levels = {wheel_topic(INTAKE, level): level for level in levels}
        self._topics = [*self._levels, INTAKE + PARKED, INTAKE + JOURNAL]
        self._before: dict[str, list[int]] = {}
        """The offsets in each log before the present request."""
        self._level_of: dict[int, int] = {}
        """The level to which each message was filed last, by its offset in the intake."""
        self._index_pointer: int | None = None
        self._open: defaultdict[str, list[int]] = defaultdict(list)
        """The steps of each open transaction: their indices."""
        self._done: defaultdict[str, set[str]] = defaultdict(set)
        """The deeds of each open transaction."""

    def __call__(self, process: Process, step: Step) -> None:
        """Record a step."""
        if process.name != self._name or step.call in QUIET:
            return
        self.steps.append(step)
        index = len(self.steps) - 1
        if step.call in {"produce", "delete_records"}:
            self._compare(step, index)
        elif step.call in {"send_offsets", "commit_transaction"}:
            self._open[step.transaction].append(index)
        if step.call == "commit_transaction" and step.phase == "after":
            deeds = self._done.pop(step.transaction, set())
            for one in self._open.pop(step.transaction):
                self._note(one, deeds)

    def _note(self, index: int, deeds: set[str]) -> None:
        step = self.steps[index]
        for deed in deeds:
            kind = Kind(step.call, step.phase, deed)
            self.firsts[kind] = min(index, self.firsts.get(kind, index))

    def _compare(self, step: Step, index: int) -> None:
        """Compare the logs before and after a request."""
        records = {topic: self._world.broker.records(topic, committed=False) for topic in self._topics}
        offsets = {topic: [record.offset for record in of_topic] for topic, of_topic in records.items()}
        if step.phase == "before":
            self._before = offsets
            return
        deeds: list[str] = []
        for topic, before in self._before.items():
            for record in records[topic]:
                if record.offset not in before:
                    deeds += self._written(topic, record)
            if not set(before) <= set(offsets[topic]):
                deeds.append(f"trimmed {topic}")
        self.counts.update(deeds)
        self._done[step.transaction].update(deeds)
        for one in (index - 1, index):
            self._note(one, set(deeds))

    def _written(self, topic: str, record: "Any") -> Iterator[str]:
        if topic == INTAKE + JOURNAL:
            yield from self._told(record.value)
        elif topic == INTAKE + PARKED:
            yield FILED_TO_PARKED
        else:
            level = self._levels[topic]
            filed = read_filed(Source(level, 0), record.offset, record.key, record.value, record.headers)
            former = self._level_of.get(filed.sequence)
            self._level_of[filed.sequence] = level
            if former is None:
                yield f"filed to level {level}"
            else:
                yield FILED_AGAIN if former == level else f"moved to level {level}"

    def _told(self, value: bytes | None) -> Iterator[str]:
        entry = decode_entry(value)
        if isinstance(entry, DoneEntry):
            of_parked = (ranges for source, ranges in entry.ranges.items() if source.level == PARKED_LEVEL)
            yield from [TAKEN_FROM_PARKED] * sum(end - first for ranges in of_parked for first, end in ranges)
        elif isinstance(entry, ParkedEntry) and entry.is_whole:
            yield SUMMED_UP
        elif isinstance(entry, IndexEntry) and any(part.runs for part in entry.parts or ()):
            yield TOLD
        elif isinstance(entry, Copy):
            yield COPIED
            former, self._index_pointer = self._index_pointer, decode_checkpoint(entry.checkpoint).index_pointer
            if former not in {None, self._index_pointer}:
                yield INDEXED
