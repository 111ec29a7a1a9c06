"""The intake's journal pointer: where a recovery must begin to read the journal.

Rule: all that is done above the low watermark was journalled at or after the pointer. About once a second a pair is
noted: the position that the intake has reached, and an end of the journal from before. What is read at or above that
position was not done yet, so it is journalled behind that end. For a watermark the last pair at or below it serves.

    pairs (0, 0) (500, 40) (900, 80)       low 620 -> pointer 40: what is done above 620 was read after 500

After a recovery the old pointer stays until the watermark has passed all that the recovery found done: those were
journalled before.
"""

from bisect import bisect_right


class JournalPointer:
    """Pairs of intake position and journal end.

    Args:
        low: the low watermark to begin with.
        pointer: the pointer that goes with it.
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
            position: the next offset of the intake to be read, now.
            journal_end: an end of the journal, asked for before now.
        """
        if position >= self._found_end and position > self._positions[-1] and journal_end > self._ends[-1]:
            self._positions.append(position)
            self._ends.append(journal_end)

    def sum_up(self, journal_end: int) -> None:
        """All that is done above the low watermark is said again, in the journal at or behind an end of it."""
        del self._positions[1:]
        self._ends = [max(journal_end, *self._ends)]

    def at(self, low: int) -> int:
        """The pointer that goes with a low watermark."""
        return self._ends[max(bisect_right(self._positions, low) - 1, 0)]

    def trim(self, low: int) -> None:
        """Forget pairs that no watermark from `low` on can need."""
        drop = bisect_right(self._positions, low) - 1
        if drop > 0:
            del self._positions[:drop]
            del self._ends[:drop]
