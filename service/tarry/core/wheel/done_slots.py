"""Slots of the overflow wheel that are done, and whose records are to be deleted once no owner would read them.

    done       the next checkpoint lists the slot as one to empty, no longer as one to read
    noted      that checkpoint is committed: a process that takes over from now on does not read the slot
    emptied    the slot's records are deleted up to its end

Without the step `noted`, a process that takes over could be reading records that the previous owner deletes: the broker
does not check group membership for a deletion.
"""

from collections.abc import Callable, Iterable, Mapping

from tarry.core.progress.checkpoint import EmptyingSlot
from tarry.core.progress.source import Source


class DoneSlots:
    """The slots of one partition that are done and not emptied.

    Args:
        entries: these slots in the checkpoint of the take-over.
    """

    __slots__ = ("_ends", "_noted")

    def __init__(self, entries: Iterable[EmptyingSlot]) -> None:
        self._ends = {Source(entry.level, entry.slot): entry.end for entry in entries}
        self._noted = dict(self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def ends(self) -> Mapping[Source, int]:
        """The end offset of each slot, below which all is done."""
        return self._ends

    def add(self, source: Source, end: int) -> None:
        """Add a slot that is done up to an offset."""
        self._ends[source] = end

    def noted(self) -> Callable[[], None]:
        """Return a function to call when a checkpoint made now is committed."""
        ends = dict(self._ends)

        def confirm() -> None:
            self._noted = ends

        return confirm

    @property
    def is_unnoted(self) -> bool:
        """Whether a slot is done and no committed checkpoint says so yet."""
        return any(self._noted.get(source) != end for source, end in self._ends.items())

    def to_empty(self) -> dict[Source, int]:
        """Return the slots that may be emptied, and up to which offset: the committed checkpoint lists them as done."""
        return {source: end for source, end in self._ends.items() if self._noted.get(source) == end}

    def emptied(self, source: Source, end: int) -> None:
        """Note that a slot was emptied up to an offset."""
        if self._ends.get(source) == end:
            del self._ends[source]

    def entries(self) -> tuple[EmptyingSlot, ...]:
        """Return the entries for a checkpoint."""
        return tuple(EmptyingSlot(*source, end) for source, end in self._ends.items())
