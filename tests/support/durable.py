"""The state that Kafka stores of one partition of an intake, as plain lists: all that a new owner knows.

Only commits write it, as transactions do. An aborted transaction leaves offsets that no reader gets, and each
transaction leaves a marker in every log to which it wrote.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tarry.core.batch import Settlement
from tarry.core.message import Headers
from tarry.core.progress.checkpoint import decode_checkpoint
from tarry.core.progress.journal import Copy, IndexEntry, decode_entry
from tarry.core.progress.origin import UNKNOWN
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.recovery import Kept, Recovery, is_later
from tarry.core.progress.source import PARKED

NOTED_AFTER_MS = 60_000


@dataclass(slots=True)
class Store:
    """The group's offset with its metadata, and the journal's committed records."""

    offset: tuple[int, str] | None = None
    journal: list[tuple[int, bytes]] = field(default_factory=list)
    journal_start: int = 0
    journal_end: int = 0

    def commit(self, settled: Settlement) -> None:
        """Commit a transaction with an offset of the intake."""
        self.offset = (settled.low, settled.metadata)
        for record in settled.before:
            self.journal.append((self.journal_end, record))
            self.journal_end += 1
        self.commit_without_offset(settled.journal)

    def commit_without_offset(self, *records: bytes) -> None:
        """Commit a transaction of parked or filed messages, which has no offset of the intake."""
        for record in records:
            self.journal.append((self.journal_end, record))
            self.journal_end += 1
        self.journal_end += 1  # the marker of the transaction

    def abort(self) -> None:
        """Abort a transaction."""
        self.journal_end += 2

    def trim(self, below: int) -> None:
        """Delete the journal's records below an offset."""
        self.journal_start = max(self.journal_start, below)
        self.journal = [(offset, record) for offset, record in self.journal if offset >= below]

    def last_copy(self) -> Kept:
        """Return the copy that a recovery uses if the group's offsets are lost."""
        found: Kept | None = None
        for _, value in self.journal:
            if isinstance(record := decode_entry(value), Copy):
                copy = record.low, decode_checkpoint(record.checkpoint)
                found = copy if is_later(copy, found) else found
        assert found is not None
        return found

    def begin(self, writer: str) -> Recovery:
        """Return the checkpoint of a new owner, who commits the stored one in its own name."""
        low, checkpoint = (
            self.last_copy() if self.offset is None else (self.offset[0], decode_checkpoint(self.offset[1]))
        )
        recovery = Recovery(low, checkpoint, (writer,))
        self.offset = (recovery.low, recovery.checkpoint.encode())
        return recovery

    def read_into(self, recovery: Recovery, spoil: Callable[[bytes], bytes | None] = lambda value: value) -> None:
        """Read the part of the journal that a recovery needs.

        Args:
            recovery: takes its records.
            spoil: returns what is left of a record of the index, if anything is.
        """
        begin = recovery.checkpoint.reads_from
        assert self.journal_start <= begin <= self.journal_end
        for offset, value in self.journal:
            if offset < begin:
                continue
            found = decode_entry(value)
            if not isinstance(found, IndexEntry):
                recovery.journal.take(found)
            elif (spoilt := spoil(value)) is not None:
                recovery.journal.take(decode_entry(spoilt))


@dataclass(frozen=True, slots=True)
class Filed:
    """A record of a level's log."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class LevelLog:
    """The log of a level.

    Attributes:
        start: the first offset that it holds.
        end: its high watermark.
        records: the records by offset; missing offsets are markers and aborted records.
        back: offsets of deleted records that are there again.
    """

    start: int = 0
    end: int = 0
    records: dict[int, Filed] = field(default_factory=dict)
    back: set[int] = field(default_factory=set)
    _before: tuple[int, int, dict[int, Filed]] | None = None
    """The time of the last deletion, with start and records before it: it may not be on the broker's disk yet."""

    @property
    def left(self) -> int:
        """The number of records that were never deleted."""
        return len(self.records.keys() - self.back)

    def write(self, records: list[Filed], *, commit: bool) -> int:
        """Append a transaction's records and its marker; return the offset of the first one."""
        first = self.end
        if commit:
            self.records.update(enumerate(records, first))
        self.end += len(records) + 1
        return first

    def trim(self, below: int, now_ms: int) -> None:
        """Delete the records below an offset."""
        assert below <= self.end
        self._before = now_ms, self.start, self.records
        self.start = max(self.start, below)
        self.records = {offset: record for offset, record in self.records.items() if offset >= below}

    def forget_the_deletion(self, now_ms: int) -> None:
        """Undo the last deletion: the broker was killed before it wrote the log start offset to disk."""
        if self._before is not None and now_ms - self._before[0] < NOTED_AFTER_MS:
            _, self.start, records = self._before
            self.back.update(records.keys() - self.records.keys())
            self.records = records | self.records
            self._before = None


def recover(
    store: Store,
    levels: Mapping[int, LevelLog],
    replay_end: int,
    writer: str,
    spoil: Callable[[bytes], bytes | None] = lambda value: value,
) -> Recovered:
    """Build the state that a take-over finds.

    Args:
        store: offsets and journal.
        levels: the logs of the levels; `PARKED` is the parked log.
        replay_end: the end of the intake.
        writer: the transactional id of the new owner.
        spoil: returns what is left of a record of the index, if anything is.
    """
    recovery = store.begin(writer)
    store.read_into(recovery, spoil)
    spans = {level: (log.start, log.end) for level, log in levels.items()}
    assert PARKED not in levels or recovery.journal.parked.reached <= levels[PARKED].end, "the parked log lost its end"
    return recovery.recovered(replay_end, spans, store.journal_end, UNKNOWN)
