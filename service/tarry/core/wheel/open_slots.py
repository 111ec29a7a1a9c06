"""Slots of the overflow wheel to which messages are filed: where each begins, and which of them hold anything.

To close a slot its end must be known, which a broker has to be asked for; but one that nothing was filed to since it
was emptied, or found empty, holds nothing, and is closed unasked. Most are such.
"""

from collections.abc import Mapping

from tarry.core.progress.source import Source


class OpenSlots:
    """The open slots of one partition.

    Args:
        spans: for each slot that a take-over found the first offset that its log holds, and its end.
        emptying: slots that are to be emptied, and up to where: what lies below is done.
    """

    __slots__ = ("_begins", "_filled")

    def __init__(self, spans: Mapping[Source, tuple[int, int]], emptying: Mapping[Source, int]) -> None:
        self._begins = {source: max(start, emptying.get(source, 0)) for source, (start, _) in spans.items()}
        self._filled = {source for source, (_, end) in spans.items() if end > self._begins[source]}

    def begin_of(self, source: Source) -> int:
        """The offset from which on nothing of a slot is done."""
        return self._begins.get(source, 0)

    def holds_any(self, source: Source) -> bool:
        """Whether something lies in a slot."""
        return source in self._filled

    @property
    def filled(self) -> list[Source]:
        """The slots that hold anything."""
        return sorted(self._filled)

    def fill(self, source: Source) -> None:
        """Take note that a slot is filed to."""
        self._filled.add(source)

    def close(self, source: Source) -> None:
        """Take note that a slot is closed: of its next turn it holds nothing yet."""
        self._filled.discard(source)

    def done(self, source: Source, end: int) -> None:
        """Take note that all of a slot is done up to an offset."""
        self._begins[source] = max(end, self.begin_of(source))
