"""One partition's level logs, journal and committed offset as lists, beside the real wheel and progress.

Nothing here is a model of the wheel: it only carries bytes from one owner to the next.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tarry.core.batch import FiledRun
from tarry.core.partition_progress import Progress
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import encode_copy, encode_done, encode_index
from tarry.core.progress.recovered import Recovered
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.overflow import OverflowWheel, Upkeep
from tarry.core.window.parked_log import ParkedLog
from tests.support.durable import Filed, LevelLog, Store, recover
from tests.support.naming import no_names

if TYPE_CHECKING:
    from tarry.core.progress.source import Source

WIDE = Geometry(1_000, 4, 2)
LOTS = 10**9
USUALLY = Upkeep(index_after=1)


@dataclass
class LevelBench:
    geometry: Geometry = WIDE
    closed_ms: tuple[int, ...] = (4_000, 8_000)
    upkeep: Upkeep = USUALLY
    store: Store = field(default_factory=Store)
    levels: dict[int, LevelLog] = field(default_factory=dict)
    due: dict[tuple[int, int], int] = field(default_factory=dict)
    """Due time of each record, by level and offset."""

    def __post_init__(self) -> None:
        birth = Checkpoint(("w",), True, self.geometry, self.closed_ms)
        self.store.journal = [(0, encode_copy(0, birth.encode()))]
        self.store.journal_end = 1
        self.levels = {level: LevelLog() for level in range(1, self.geometry.levels + 1)}
        self.life()

    def life(self, spoil: Callable[[bytes], bytes | None] = lambda record: record) -> Recovered:
        """Take over: the next owner knows the store and the logs only."""
        found = recover(self.store, self.levels, 0, "w", spoil)
        self.wheel = OverflowWheel(found.checkpoint, found.buckets)
        self.wheel.upkeep = self.upkeep
        self.parked = ParkedLog({}, (0, 0), 0, 0)
        intake = IntakeProgress(found, keeps_order=False)
        self.progress = Progress(found.checkpoint, intake, self.wheel, self.parked, no_names())
        return found

    def file(self, level: int, *dues: int, meanwhile: Callable[[], None] = lambda: None) -> list[int]:
        """File records in one transaction, as the service does: sorted by bucket, with the news of earlier ones.

        Args:
            level: the level.
            dues: the due time of each record.
            meanwhile: called when all is in the logs, and before the owner knows that the transaction is committed.
        """
        self.progress.begin_filing()
        news = self.wheel.news(self.wheel.upkeep.tell_from)
        dues = tuple(sorted(dues))
        first = self.levels[level].write([Filed(None, b"", []) for _ in dues], commit=True)
        parts = [*news, *self.wheel.parts_with({level: len(dues)})]
        self.store.commit_without_offset(encode_done({}), encode_index(parts))
        runs: list[FiledRun] = []
        for offset, due_ms in enumerate(dues, first):
            source = self.wheel.source_of(level, due_ms)
            self.due[level, offset] = due_ms
            if runs and runs[-1].source == source:
                runs[-1] = FiledRun(source, runs[-1].first, offset + 1, runs[-1].records + 1)
            else:
                runs.append(FiledRun(source, offset, offset + 1, 1))
        meanwhile()
        self.wheel.filed(runs)
        self.wheel.told(news)
        self.progress.end_filing()
        return list(range(first, first + len(dues)))

    def rest(self, *, sums_up: bool = False, trims: bool = True) -> None:
        self.progress.note_journal_end(self.store.journal_end)
        self.store.commit(self.progress.settle_checkpoint(released=False, sums_up=sums_up))
        self.progress.confirm()
        if trims:
            self.store.trim(self.progress.reads_from)

    def read(self) -> list[tuple[int, int]]:
        """Read all that is to be read; return what is placed: level and offset."""
        placed: list[tuple[int, int]] = []
        for level in self.levels:
            reading = [one for one in self.wheel.to_read(LOTS, 1) if one.level == level]
            for offset in sorted({at for one in reading for run in one.runs for at in range(*run)}):
                if offset not in self.levels[level].records:
                    continue
                due_ms = self.due[level, offset]
                closed = next(
                    (o.range for o in reading if isinstance(o.range, ClosedRange) and o.range.covers(due_ms)), None
                )
                if closed is not None:
                    if closed.read(self.wheel.source_of(level, due_ms), offset):
                        placed.append((level, offset))
                elif any(one.range is None for one in reading):
                    assert self.wheel.survey(level, offset, due_ms), "a message that this process does not know of"
            for one in reading:
                self.wheel.reach_end(one)
        return placed

    def fire(self, *records: tuple[int, int]) -> None:
        """Complete records in a firing transaction."""
        done: dict[Source, list[int]] = {}
        for level, offset in records:
            done.setdefault(self.wheel.source_of(level, self.due[level, offset]), []).append(offset)
        self.store.commit(self.progress.settle(done))
        self.progress.confirm()
        self.progress.make_final()

    def close(self, now_ms: int) -> None:
        self.wheel.close(LOTS, now_ms)
