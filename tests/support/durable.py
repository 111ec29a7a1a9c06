"""What Kafka keeps of one partition of an intake, as plain lists: all that a new owner has to go by.

Written at commits alone, as transactions write it. An aborted transaction leaves offsets behind that nobody reads, and
each transaction a marker in every log that it wrote to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tarry.core.batch import Settlement
from tarry.core.message import Headers
from tarry.core.progress.checkpoint import Checkpoint, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import Copy, DoneEntry, Range, decode_entry
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import INTAKE, Source

NOTED_AFTER_MS = 60_000


@dataclass(slots=True)
class Store:
    """The group's offset with its metadata, and the journal's committed records."""

    offset: tuple[int, str] | None = None
    journal: list[tuple[int, bytes]] = field(default_factory=list)
    journal_start: int = 0
    journal_end: int = 0

    def commit(self, settled: Settlement) -> None:
        """A transaction with an offset of the intake."""
        self.offset = (settled.low, settled.metadata)
        for record in settled.summary:
            self.journal.append((self.journal_end, record))
            self.journal_end += 1
        self.commit_without_offset(settled.journal)

    def commit_without_offset(self, record: bytes) -> None:
        """A transaction of parked messages, or a filing."""
        self.journal.append((self.journal_end, record))
        self.journal_end += 2  # the record, and the marker of its transaction

    def abort(self) -> None:
        """A transaction that came to nothing."""
        self.journal_end += 2

    def trim(self, below: int) -> None:
        """Delete what the journal holds below an offset."""
        self.journal_start = max(self.journal_start, below)
        self.journal = [(offset, record) for offset, record in self.journal if offset >= below]

    def last_copy(self) -> Copy:
        """The copy that serves where the group's offsets are lost."""
        copies = [record for _, value in self.journal if isinstance(record := decode_entry(value), Copy)]
        return copies[-1]

    def begin(self, writer: str) -> tuple[int, Checkpoint]:
        """The watermark and the checkpoint that a new owner finds, which it commits in its own name."""
        if self.offset is None:
            copy = self.last_copy()
            self.offset = (copy.low, copy.checkpoint)
        low, text = self.offset
        checkpoint = replace(decode_checkpoint(text), writer=(writer,), released=False)
        self.offset = (low, checkpoint.encode())
        return low, checkpoint

    def done_since(self, pointer: int, low: int) -> dict[Source, DoneSet]:
        """What the journal says is done from an offset of it on, by source."""
        assert self.journal_start <= pointer <= self.journal_end
        ranges: dict[Source, list[Range]] = {INTAKE: []}
        for offset, value in self.journal:
            if offset >= pointer and isinstance(record := decode_entry(value), DoneEntry):
                for source, found in record.ranges.items():
                    ranges.setdefault(source, []).extend(found)
        return {source: DoneSet(found, low if source == INTAKE else 0) for source, found in ranges.items()}


@dataclass(frozen=True, slots=True)
class Filed:
    """A record of a slot, and the start of the bucket that the slot was when it was filed."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    start_ms: int


@dataclass(slots=True)
class SlotLog:
    """The log of a slot.

    Attributes:
        start: the first offset that it holds.
        end: its high watermark.
        records: by offset; what is missing are markers and what was aborted.
        back: offsets of those that were deleted, and are there again.
    """

    start: int = 0
    end: int = 0
    records: dict[int, Filed] = field(default_factory=dict)
    back: set[int] = field(default_factory=set)
    _before: tuple[int, int, dict[int, Filed]] | None = None
    """When anything was deleted last, and the start and the records before it: the disk may not know of it yet."""

    @property
    def left(self) -> int:
        """How many records it holds that nobody had deleted."""
        return len(self.records.keys() - self.back)

    def write(self, records: list[Filed], *, commit: bool) -> None:
        """A transaction's records, and its marker."""
        if commit:
            self.records.update(enumerate(records, self.end))
        self.end += len(records) + 1

    def trim(self, below: int, now_ms: int) -> None:
        """Delete what lies below an offset."""
        assert below <= self.end
        self._before = now_ms, self.start, self.records
        self.start = max(self.start, below)
        self.records = {offset: record for offset, record in self.records.items() if offset >= below}

    def forget_the_deletion(self, now_ms: int) -> None:
        """The broker was killed before it had noted on its disk where the log starts, as it does once a minute."""
        if self._before is not None and now_ms - self._before[0] < NOTED_AFTER_MS:
            _, self.start, records = self._before
            self.back.update(records.keys() - self.records.keys())
            self.records = records | self.records
            self._before = None


def recover(store: Store, slots: Mapping[Source, SlotLog], replay_end: int, writer: str) -> Recovered:
    """What a take-over finds: a slot has been emptied, or is to be, where its checkpoint says so."""
    low, checkpoint = store.begin(writer)
    done = store.done_since(checkpoint.reads_from, low)
    spans = {source: (slot.start, slot.end) for source, slot in slots.items()}
    return Recovered(low, checkpoint, done.pop(INTAKE), replay_end, Buckets(spans, done, store.journal_end))
