"""The last committed record of a partition, whatever lies behind it.

A log does not end in its last record: behind it may be the markers of transactions and any number of aborted records,
and where the log is compacted offsets are missing anywhere. A reader never sees those, so going back one offset at a
time finds nothing. The log is read from ever further in front of its end until a record comes: 64 offsets, 256 more,
and so on. Usually the first read finds it; with n offsets of aborted records behind it, 4/3 n are passed over, a few
times each.
"""

from dataclasses import dataclass

from tarry.client.exclusive_record import LastRecord, last_record
from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.trim_tolerant_reader import TrimTolerantReader
from tarry.kafka.types import Place

_FIRST_WIDTH = 64
_GROWTH = 4
_READER_KBYTES = 4_096


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What a look at a partition found.

    Args:
        last: the last committed record; None where there is none.
        start: the first offset that the log held.
        end: the offset behind all that was seen.
    """

    last: LastRecord | None
    start: int
    end: int


class PartitionLog:
    """Looks at the end of a partition.

    Args:
        cluster: where.
        place: the partition.
        clock: for bounds.
    """

    def __init__(self, cluster: Cluster, place: Place, clock: Clock) -> None:
        self._cluster = cluster
        self._place = place
        self._clock = clock
        self._offsets = Offsets(cluster.clients.admin(cluster.admin()), "tarry-writer", cluster)

    def look(self, *, stable: bool) -> LogEnd:
        """Find the last committed record.

        Args:
            stable: only of what no open transaction hides; else what is hidden is waited for.

        Raises:
            UsageError: there is no such partition.
            RetriableError: the brokers do not answer, or another's transaction stays open for a minute.
        """
        place = self._place
        if not self._offsets.existing([place]):
            raise UsageError(f"there is no partition {place[0]}/{place[1]}")
        end = self._offsets.ends([place], committed=stable)[place]
        # Asked for later, so it may lie behind the end where the log was trimmed in between.
        start = self._offsets.starts([place])[place]
        if start >= end:
            return LogEnd(None, start, max(start, end))
        reader = TrimTolerantReader(self._cluster, self._clock)
        try:
            last = _last(reader, place, start, end)
        finally:
            reader.close()
        return LogEnd(last, start, end if last is None else max(end, last.offset + 1))

    def clients(self) -> list[object]:
        """Those that it asks."""
        return self._offsets.clients()

    def close(self) -> None:
        """Close its clients."""
        self._offsets.close()


def _last(reader: Reader, place: Place, start: int, end: int) -> LastRecord | None:
    """The last record that a read_committed reader gets between two offsets, or behind."""
    width = _FIRST_WIDTH
    while start < end:
        begin = max(start, end - width)
        last = None
        for _, record in read_to_ends(reader, {place: begin}, {place: end}):
            last = record
        if last is not None:
            return last_record(last)
        end, width = begin, width * _GROWTH
    return None
