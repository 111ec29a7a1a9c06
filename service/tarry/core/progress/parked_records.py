"""What the journal says of the parked log: which targets have messages there, and where (`core.window.parked_log`).

Parked records add messages, done records take them away. A number stands for the target in the sources of done records.
"""

from collections.abc import Mapping

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import DoneEntry, ParkedEntry, ParkedRow
from tarry.core.progress.source import PARKED


class FoundParked:
    """What the journal says of one target in the parked log.

    Attributes:
        row: number, first offset and name; `messages` is what is left.
        done: the offsets that are done.
    """

    __slots__ = ("done", "row")

    def __init__(self, row: ParkedRow) -> None:
        self.row = row
        self.done = DoneSet()

    def holds(self, offset: int) -> bool:
        """Whether the message of the target at an offset of the log waits."""
        return offset >= self.row.first and offset not in self.done

    @property
    def reached(self) -> int:
        """An offset that the log must have reached."""
        return max(self.row.first + self.row.messages, self.done.end)


class ParkedRecords:
    """What the journal says of the parked log. Its records are taken in the order of the journal."""

    __slots__ = ("_filed_to", "_found")

    def __init__(self) -> None:
        self._found: dict[int, FoundParked] = {}
        self._filed_to = 0
        """An offset that filings have reached, at least."""

    def take(self, entry: DoneEntry | ParkedEntry) -> None:
        """Take a record."""
        if isinstance(entry, ParkedEntry):
            if entry.is_whole:
                self._found.clear()
            for row in entry.rows:
                self._filed_to = max(self._filed_to, row.first + row.messages)
                self._add(row)
            return
        for (level, number), ranges in entry.ranges.items():
            if level == PARKED and (one := self._found.get(number)) is not None:
                # Offsets below `first` are of messages that were done before any of these was filed.
                done = [(max(first, one.row.first), end) for first, end in ranges if end > one.row.first]
                one.done.add(done)
                one.row = one.row._replace(messages=one.row.messages - sum(end - first for first, end in done))
                if one.row.messages <= 0:
                    del self._found[number]

    def _add(self, row: ParkedRow) -> None:
        one = self._found.get(row.number)
        if one is None or one.row.target != row.target:
            self._found[row.number] = FoundParked(row)
        else:
            one.row = one.row._replace(messages=one.row.messages + row.messages)

    @property
    def found(self) -> Mapping[int, FoundParked]:
        """The targets that have messages there, by number."""
        return self._found

    def by_target(self) -> dict[str, FoundParked]:
        """Return the same by the names of the targets."""
        return {one.row.target: one for one in self._found.values()}

    @property
    def reached(self) -> int:
        """An offset that the log must have reached; 0 if nothing is known."""
        return max([self._filed_to, *(one.reached for one in self._found.values())])
