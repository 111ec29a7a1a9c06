"""The log of one partition: records, transaction markers, and what a reader can see of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from zlib import compress

StoredHeaders = list[tuple[str | bytes, bytes | None]]
"""Headers in their order. A name that is not UTF-8, which a log may contain, is bytes."""

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 12


def until_nul(name: str | bytes) -> str | bytes:
    """Return what the client library writes and reads of a header's name: all before its first NUL."""
    if isinstance(name, str):
        return name.partition("\0")[0]
    before, nul, _ = name.partition(b"\0")
    try:
        return before.decode() if nul else name
    except UnicodeDecodeError:
        return before


class RecordKind(Enum):
    """The kind of an entry in a log."""

    DATA = auto()
    COMMIT = auto()
    ABORT = auto()


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a reader receives it.

    Attributes:
        offset: its offset in the partition.
        key: its key, or None.
        value: its value, or None.
        headers: its headers in their order; None if there are none.
        timestamp_ms: its timestamp: the producer's or the log-append time, by the topic's configuration.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    headers: StoredHeaders | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A record before it is in a log."""

    key: bytes | None
    value: bytes | None
    headers: StoredHeaders | None
    timestamp_ms: int

    @property
    def size(self) -> int:
        """Its approximate size in an uncompressed batch, in bytes."""
        size = RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        return size + sum(2 + len(name) + len(value or b"") for name, value in self.headers or ())

    @property
    def content(self) -> bytes:
        """Key, value and headers, concatenated."""
        names = [(name if isinstance(name, bytes) else name.encode(), value) for name, value in self.headers or ()]
        headers = b"".join(name + (value or b"") for name, value in names)
        return (self.key or b"") + (self.value or b"") + headers


def batch_bytes(drafts: list[Draft], *, compressed: bool) -> int:
    """Return the size of a batch as the brokers see it, which is after compression."""
    if compressed:
        return BATCH_OVERHEAD_BYTES + len(compress(b"".join(draft.content for draft in drafts), 1))
    return BATCH_OVERHEAD_BYTES + sum(draft.size for draft in drafts)


@dataclass(slots=True)
class Entry:
    """The entry at an offset.

    Attributes:
        record: the record; a marker has neither key nor value.
        kind: data or marker.
        producer: the id of the producer in whose transaction it is; None outside of transactions.
        aborted: whether that transaction was aborted.
    """

    record: Record
    kind: RecordKind
    producer: int | None
    aborted: bool = False


@dataclass(slots=True)
class Changes:
    """Counts the changes to the logs of a cluster, so that readers check them only after a change."""

    count: int = 0


_DELETED_KEPT = 1_000


class PartitionLog:
    """A log with the offsets from `start` up to `end`. `end` is also the high watermark: there is no replication.

    Args:
        changes: the counter of changes, which this log shares with the other logs.
    """

    def __init__(self, changes: Changes) -> None:
        self.start = 0
        self._changes = changes
        self._entries: list[Entry] = []
        self._deleted: list[Entry] = []
        self._open: dict[int, list[Entry]] = {}

    @property
    def end(self) -> int:
        """The next offset."""
        return self.start + len(self._entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: the first offset of an open transaction, else the end."""
        if not self._open:
            return self.end
        return min(entries[0].record.offset for entries in self._open.values())

    def open_offsets(self, is_open: Callable[[int], bool]) -> list[int]:
        """Return the offsets of records in transactions of producers for which a condition holds."""
        return [entry.record.offset for id_, entries in self._open.items() if is_open(id_) for entry in entries]

    def append(self, drafts: list[Draft], producer: int | None, stamp_ms: int | None) -> int:
        """Write records.

        Args:
            drafts: the records.
            producer: the id of the producer in whose transaction they are; None outside of transactions.
            stamp_ms: the log-append time, if the topic uses it.

        Returns:
            The offset of the first record.
        """
        self._changes.count += 1
        first = self.end
        for draft in drafts:
            timestamp_ms = draft.timestamp_ms if stamp_ms is None else stamp_ms
            record = Record(self.end, draft.key, draft.value, draft.headers, timestamp_ms)
            entry = Entry(record, RecordKind.DATA, producer)
            self._entries.append(entry)
            if producer is not None:
                self._open.setdefault(producer, []).append(entry)
        return first

    def mark(self, producer: int, stamp_ms: int, *, commit: bool) -> None:
        """Write the marker that ends a producer's transaction here."""
        self._changes.count += 1
        for entry in self._open.pop(producer, ()):
            entry.aborted = not commit
        marker = Record(self.end, None, None, None, stamp_ms)
        self._entries.append(Entry(marker, RecordKind.COMMIT if commit else RecordKind.ABORT, producer))

    def trim(self, below: int) -> None:
        """Delete the entries below an offset."""
        self._changes.count += 1
        gone = self._entries[: max(0, below - self.start)]
        self._deleted = [*self._deleted, *gone][-_DELETED_KEPT:]
        del self._entries[: len(gone)]
        self.start = max(self.start, below)

    def mend(self, offset: int, value: bytes) -> None:
        """Replace the value of a record, if the log still has it."""
        if offset >= self.start:
            self._changes.count += 1
            entry = self._entries[offset - self.start]
            entry.record = replace(entry.record, value=value)

    def truncate(self, end: int) -> None:
        """Drop the entries from offset `end` on, including those of open transactions."""
        self._changes.count += 1
        del self._entries[max(0, end - self.start) :]
        kept = {producer: [e for e in entries if e.record.offset < end] for producer, entries in self._open.items()}
        self._open = {producer: entries for producer, entries in kept.items() if entries}

    def undelete(self) -> None:
        """Restore recently deleted entries. A broker writes the log start offset to disk only once a minute."""
        self._changes.count += 1
        self._entries[:0] = self._deleted
        self.start -= len(self._deleted)
        self._deleted = []

    def read(self, position: int, most: int, *, committed: bool) -> tuple[list[Record], int]:
        """Read from an offset.

        Args:
            position: the offset, within the log.
            most: the largest number of records.
            committed: whether to read only up to the last stable offset, without aborted records.

        Returns:
            The records and the next offset, which is after markers and records that are left out.
        """
        found: list[Record] = []
        end = self.stable_end if committed else self.end
        while position < end and len(found) < most:
            entry = self._entries[position - self.start]
            if entry.kind is RecordKind.DATA and not (committed and entry.aborted):
                found.append(entry.record)
            position += 1
        # The position also passes entries that this reader never sees.
        while position < end and not self._is_visible(self._entries[position - self.start], committed=committed):
            position += 1
        return found, position

    def since(self, timestamp_ms: int) -> tuple[int, int]:
        """Return the first offset with a timestamp at or after a time, and its timestamp; -1 and -1 if none."""
        for entry in self._entries:
            if entry.record.timestamp_ms >= timestamp_ms:
                return entry.record.offset, entry.record.timestamp_ms
        return -1, -1

    @staticmethod
    def _is_visible(entry: Entry, *, committed: bool) -> bool:
        return entry.kind is RecordKind.DATA and not (committed and entry.aborted)
