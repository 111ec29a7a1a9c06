"""What the records of a partition's journal say together: what is done, parked, and named, and where records are."""

from collections.abc import Mapping, Sequence

from tarry.core.progress.done_set import DoneSet, add_done
from tarry.core.progress.index import IndexRecords
from tarry.core.progress.journal import Copy, DoneEntry, Entry, IndexEntry, LostEnd
from tarry.core.progress.name_records import NameRecords, NamesEntry, ShardEntry
from tarry.core.progress.parked_records import ParkedRecords
from tarry.core.progress.source import INTAKE, PARKED, Source

_NOTHING = DoneSet()


class JournalState:
    """What the journal of a partition says.

    Args:
        low: the low watermark: offsets of the intake below it are left out.
        low_of_levels: for each level the first offset of its log that is not done.
        complete_from: a named message below this offset of the intake may wait although no name says so.

    Attributes:
        parked: what is in the parked log.
        index: where records are in the logs of the levels.
        names: which message waits under each name.
        lost_end: the last log that has lost its end; None: none has.
    """

    __slots__ = ("_complete_from", "_done", "_low", "index", "lost_end", "names", "parked")

    def __init__(self, low: int = 0, low_of_levels: Sequence[int] = (), complete_from: int = 0) -> None:
        self._low = low
        self._complete_from = complete_from
        self.parked = ParkedRecords()
        self.index = IndexRecords(low_of_levels)
        self.names = NameRecords()
        self.lost_end: LostEnd | None = None
        self._done = {INTAKE: DoneSet((), low)}

    @property
    def done(self) -> Mapping[Source, DoneSet]:
        """The offsets that are done, by source: of the intake those above the low watermark, of a bucket all."""
        return self._done

    def take(self, record: Entry) -> None:
        """Take a record of the journal. Its records are taken in order."""
        if isinstance(record, Copy):
            return
        if isinstance(record, IndexEntry):
            self.index.take(record.parts)
            return
        if isinstance(record, LostEnd):
            self.lost_end = record
            return
        if isinstance(record, (NamesEntry, ShardEntry)):
            self.names.take(record)
            return
        self.parked.take(record)
        if isinstance(record, DoneEntry):
            add_done(self._done, {source: one for source, one in record.ranges.items() if source.level != PARKED})

    @property
    def decided_below(self) -> int:
        """An offset of the intake below which each named record was decided."""
        return max(self._low, self.names.below)

    def is_superseded(self, name: bytes | None, offset: int) -> bool:
        """Whether the message at an offset of the intake was replaced or cancelled by its name, if it has one.

        The journal may have been read before the message was decided: then it was not.
        """
        if name is None or offset >= self.decided_below:
            return False
        return self.names.is_superseded(name, offset, self._complete_from)

    def is_done(self, source: Source, offset: int) -> bool:
        """Whether the record at an offset of the intake, or of a bucket, is done."""
        return offset in self._done.get(source, _NOTHING)
