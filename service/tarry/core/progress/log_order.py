"""Due times that follow the order of a log, and the one that a recovery must know.

With a fixed delay no record is due before the one in front of it. Log-append time can step back when a partition's
leader moves, so due times are held up to the highest so far; and a recovery, which begins in the middle of the log,
must know the due time of the record just below its begin.

Idea: due times only rise, so what is kept is where each begins. Records of one millisecond share one entry.

    offset 3 4 5 8 9    due 10 30 30 30 40      begins 3: 10, 4: 30, 9: 40      below 8 it is 30, below 4 it is 10

Cost: 16 bytes an entry, however many records there are; at most a thousand entries for a second of the log.

**Stamps that are ahead.** One stamp of a clock that is an hour ahead would hold up all behind it for an hour. So a
stamp that is far ahead of the time when it is read counts as of that moment: of the latest that it may be then, as a
clock that is behind would take all stamps for ahead. The log does not say when that was: a
recovery reads it later, and gives it, and what it holds up, a later due time. That keeps the order as long as nothing
behind it is filed with the due time of before. So while such a record is held in memory and not done, nothing behind
it is filed.
"""

from array import array
from bisect import bisect_left

AHEAD_MS = 10_000
"""By how much a stamp may be ahead of the time when it is read, and count as it is: so far clocks may differ."""

_ENTRY_BYTES = 16
_LEAST_CUT = 1_024
"""Entries that are forgotten and still there, at most; and no more than those that are kept."""


def is_ahead(timestamp_ms: int, now_ms: int) -> bool:
    """Whether a stamp is so far ahead that it counts as of the time when it is read."""
    return timestamp_ms > now_ms + AHEAD_MS


class LogOrder:
    """The due times of a partition with a fixed delay.

    Args:
        below_ms: the due time of the record below the first, if there is any.
    """

    __slots__ = ("_ahead", "_begins", "_below_ms", "_due_ms", "_first", "_last_ms")

    def __init__(self, below_ms: int | None) -> None:
        self._below_ms = self._last_ms = below_ms
        self._begins = array("q")
        self._due_ms = array("q")
        self._ahead = array("q")
        """Offsets of records whose stamps were ahead, from the low watermark on."""
        self._first = 0
        """The entries in front of it are forgotten."""

    @property
    def size_bytes(self) -> int:
        """How much memory it takes."""
        return _ENTRY_BYTES * len(self._begins) + _ENTRY_BYTES // 2 * len(self._ahead)

    def next(self, offset: int, due_ms: int) -> int:
        """The due time of the next record: its own, or that of the one in front of it."""
        last_ms = self._last_ms
        if last_ms is not None and due_ms <= last_ms:
            return last_ms
        self._begins.append(offset)
        self._due_ms.append(due_ms)
        self._last_ms = due_ms
        return due_ms

    def note_ahead(self, offset: int) -> None:
        """The stamp of a record was far ahead."""
        self._ahead.append(offset)

    def first_ahead(self, low: int) -> int | None:
        """The first such record at or above an offset; None where there is none."""
        at = bisect_left(self._ahead, low)
        return self._ahead[at] if at < len(self._ahead) else None

    def below(self, low: int) -> int | None:
        """The due time of the last record below an offset; None where there was none yet."""
        at = bisect_left(self._begins, low, self._first)
        return self._due_ms[at - 1] if at > self._first else self._below_ms

    def trim(self, low: int) -> None:
        """Forget what is below an offset that is committed."""
        self._below_ms = self.below(low)
        self._first = bisect_left(self._begins, low, self._first)
        if self._ahead:
            del self._ahead[: bisect_left(self._ahead, low)]
        if self._first > max(_LEAST_CUT, len(self._begins) // 2):
            del self._begins[: self._first], self._due_ms[: self._first]
            self._first = 0
