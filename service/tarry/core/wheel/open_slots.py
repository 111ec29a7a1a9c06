"""Slots of the overflow wheel to which messages are filed: where each begins, and which of them hold records.

To close a slot, the service must know its end, and asks the broker for it. But if no message was filed to a slot since
it was emptied, or found empty, it holds no records and is closed without asking. This is so for most slots.
"""

from collections.abc import Mapping

from tarry.core.progress.source import Source


class OpenSlots:
    """The open slots of one partition.

    Args:
        spans: for each slot, as a take-over found it: the first offset that its log holds, and its end.
        emptying: slots to empty, with the offset below which all is done.
    """

    __slots__ = ("_begins", "_filled")

    def __init__(self, spans: Mapping[Source, tuple[int, int]], emptying: Mapping[Source, int]) -> None:
        self._begins = {source: max(start, emptying.get(source, 0)) for source, (start, _) in spans.items()}
        self._filled = {source for source, (_, end) in spans.items() if end > self._begins[source]}

    def begin_of(self, source: Source) -> int:
        """Return the offset of a slot below which all is done."""
        return self._begins.get(source, 0)

    def holds_any(self, source: Source) -> bool:
        """Whether a slot holds records."""
        return source in self._filled

    @property
    def filled(self) -> list[Source]:
        """The slots that hold records, in order."""
        return sorted(self._filled)

    def fill(self, source: Source) -> None:
        """Note that messages are filed to a slot."""
        self._filled.add(source)

    def close(self, source: Source) -> None:
        """Note that a slot is closed: it holds no records of its next turn yet."""
        self._filled.discard(source)

    def done(self, source: Source, end: int) -> None:
        """Note that a slot is done up to an offset."""
        self._begins[source] = max(end, self.begin_of(source))
