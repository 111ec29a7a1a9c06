"""The journal pointer of a log: from which offset of the journal a recovery must read to know what is done of the log.

All offsets of the log that are done above its low watermark were journalled at or after the pointer. About once a
second a pair is noted: the current position in the log, and an end of the journal that was requested earlier.
Records at or above that position are not read yet, so they will be journalled at or after that end. The pointer for a
watermark is that of the last pair at or below it.

    pairs (0, 0) (500, 40) (900, 80)       low 620 -> pointer 40: offsets done above 620 were read after 500

After a recovery, the old pointer stays until the watermark has passed all offsets that the recovery found done, because
those were journalled earlier.
"""

from bisect import bisect_right


class JournalPointer:
    """Pairs of a position in a log and an end of the journal.

    Args:
        low: the first low watermark.
        pointer: the pointer for it.
        found_end: one above the highest offset that the recovery found done.
    """

    __slots__ = ("_ends", "_found_end", "_positions")

    def __init__(self, low: int, pointer: int, found_end: int) -> None:
        self._positions = [low]
        self._ends = [pointer]
        self._found_end = found_end

    def note(self, position: int, journal_end: int) -> None:
        """Note a pair.

        Args:
            position: the next offset of the log to read, now.
            journal_end: an end of the journal that was requested before now.
        """
        if position >= self._found_end and position > self._positions[-1] and journal_end > self._ends[-1]:
            self._positions.append(position)
            self._ends.append(journal_end)

    def sum_up(self, journal_end: int) -> None:
        """Advance all pointers: the done offsets were journalled again, at or after this end of the journal."""
        del self._positions[1:]
        self._ends = [max(journal_end, *self._ends)]

    def at(self, low: int) -> int:
        """Return the pointer for a low watermark."""
        return self._ends[max(bisect_right(self._positions, low) - 1, 0)]

    def drop_below(self, low: int) -> None:
        """Forget pairs that no watermark from `low` on needs."""
        drop = bisect_right(self._positions, low) - 1
        if drop > 0:
            del self._positions[:drop]
            del self._ends[:drop]
