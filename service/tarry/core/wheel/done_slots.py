"""Slots of the overflow wheel that are done: they are to be emptied, once nobody would read them any more.

    done       the next checkpoint names the slot as one to be emptied, no longer as one to be read
    noted      that checkpoint is committed: who takes over from now on does not read it
    emptied    its records are deleted up to its end

Whoever is taking over before it is noted would be reading what is deleted: a deletion asks for no membership.
"""

from collections.abc import Callable, Iterable, Mapping

from tarry.core.progress.checkpoint import EmptyingSlot
from tarry.core.progress.source import Source


class DoneSlots:
    """The slots of one partition that are done and not emptied.

    Args:
        entries: what the checkpoint of a take-over says of them.
    """

    __slots__ = ("_ends", "_noted")

    def __init__(self, entries: Iterable[EmptyingSlot]) -> None:
        self._ends = {Source(entry.level, entry.slot): entry.end for entry in entries}
        self._noted = dict(self._ends)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def ends(self) -> Mapping[Source, int]:
        """Up to where each of them is done."""
        return self._ends

    def add(self, source: Source, end: int) -> None:
        """A slot is done up to an offset."""
        self._ends[source] = end

    def noted(self) -> Callable[[], None]:
        """What is to be called once a checkpoint of now is committed."""
        ends = dict(self._ends)

        def confirm() -> None:
            self._noted = ends

        return confirm

    @property
    def is_unnoted(self) -> bool:
        """Whether something is done, and may be emptied once a checkpoint says so."""
        return any(self._noted.get(source) != end for source, end in self._ends.items())

    def to_empty(self) -> dict[Source, int]:
        """Slots to be emptied, and up to where: the last committed checkpoint does not need them any more."""
        return {source: end for source, end in self._ends.items() if self._noted.get(source) == end}

    def emptied(self, source: Source, end: int) -> None:
        """A slot was emptied up to an offset."""
        if self._ends.get(source) == end:
            del self._ends[source]

    def entries(self) -> tuple[EmptyingSlot, ...]:
        """What a checkpoint says of them."""
        return tuple(EmptyingSlot(*source, end) for source, end in self._ends.items())
