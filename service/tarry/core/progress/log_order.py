"""Due times of an intake with a fixed delay, which follow the order of the log.

With a fixed delay no record is due before a record with a lower offset. Log-append time can step back when the leader
of a partition moves, so a due time is raised to the highest one so far. A recovery begins in the middle of the log, and
so it must know the due time of the record just below its first offset.

Idea: due times only rise, so one entry per due time is kept, with its first offset. Records with the same due time
share an entry.

    offset 3 4 5 8 9    due 10 30 30 30 40      begins 3: 10, 4: 30, 9: 40      below 8 it is 30, below 4 it is 10

Cost: 16 bytes per entry, for any number of records; at most a thousand entries for one second of the log.

**Timestamps that are ahead.** One timestamp from a clock that is an hour ahead would delay all records after it by an
hour. So a timestamp that is far ahead of the time of reading counts as the time of reading. The time of reading is the
later of the local clock and the brokers' time as last reported. Otherwise a local clock that is slow would make all
timestamps look ahead. The log does not store when a record was read. So a recovery, which reads such a record later,
gives it and the records that it delays a later due time than before. This keeps the order only if no record after it
was filed with the earlier due time. So while such a record is in memory and not done, no record after it is filed.
"""

from array import array
from bisect import bisect_left

AHEAD_MS = 10_000
"""How far a timestamp may be ahead of the time of reading and still count: clocks may differ by that much."""

_ENTRY_BYTES = 16
_LEAST_CUT = 1_024
"""Forgotten entries are cut off when there are more than this, and more than half of all."""


def is_ahead(timestamp_ms: int, now_ms: int) -> bool:
    """Whether a timestamp is so far ahead that it counts as the time of reading."""
    return timestamp_ms > now_ms + AHEAD_MS


class LogOrder:
    """The due times of a partition with a fixed delay.

    Args:
        below_ms: the due time of the record just below the first offset to read, or None if there is none.
    """

    __slots__ = ("_ahead", "_begins", "_below_ms", "_due_ms", "_first", "_last_ms")

    def __init__(self, below_ms: int | None) -> None:
        self._below_ms = self._last_ms = below_ms
        self._begins = array("q")
        self._due_ms = array("q")
        self._ahead = array("q")
        """Offsets of records whose timestamps were ahead, from the low watermark on."""
        self._first = 0
        """The index of the first entry that is not forgotten."""

    @property
    def size_bytes(self) -> int:
        """The memory of the entries."""
        return _ENTRY_BYTES * len(self._begins) + _ENTRY_BYTES // 2 * len(self._ahead)

    def next(self, offset: int, due_ms: int) -> int:
        """Return the due time of the next record: its own, or that of the record before it if that is later.

        Args:
            offset: the record's offset.
            due_ms: its timestamp plus the delay.
        """
        last_ms = self._last_ms
        if last_ms is not None and due_ms <= last_ms:
            return last_ms
        self._begins.append(offset)
        self._due_ms.append(due_ms)
        self._last_ms = due_ms
        return due_ms

    def note_ahead(self, offset: int) -> None:
        """Note that the timestamp of the record at an offset was ahead."""
        self._ahead.append(offset)

    def first_ahead(self, low: int) -> int | None:
        """Return the first offset at or above `low` whose timestamp was ahead; None if there is none."""
        at = bisect_left(self._ahead, low)
        return self._ahead[at] if at < len(self._ahead) else None

    def below(self, low: int) -> int | None:
        """Return the due time of the last record below an offset; None if there was none."""
        at = bisect_left(self._begins, low, self._first)
        return self._due_ms[at - 1] if at > self._first else self._below_ms

    def drop_below(self, low: int) -> None:
        """Forget entries below a committed offset."""
        self._below_ms = self.below(low)
        self._first = bisect_left(self._begins, low, self._first)
        if self._ahead:
            del self._ahead[: bisect_left(self._ahead, low)]
        if self._first > max(_LEAST_CUT, len(self._begins) // 2):
            del self._begins[: self._first], self._due_ms[: self._first]
            self._first = 0
