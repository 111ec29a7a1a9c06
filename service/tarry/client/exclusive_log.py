"""Finds the last committed record of a partition.

It need not be at the end of the log: control records and any number of aborted records may follow it, and a compacted
log has gaps anywhere. A reader never gets those offsets, so stepping back one offset at a time finds nothing. Instead
the log is read from further and further before its end until a record arrives: 64 offsets, 256 more, and so on. Usually
the first read finds it. With n offsets of aborted records after it, about 4/3 n offsets are read, a few times each.
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
    """The end of a partition's log.

    Args:
        last: the last committed record; None if there is none.
        start: the first offset of the log.
        end: the offset after all records that were seen.
    """

    last: LastRecord | None
    start: int
    end: int


class LogTail:
    """Looks at the end of a partition's log.

    Args:
        cluster: the Kafka cluster.
        place: the partition.
        clock: measures the time-outs.
    """

    def __init__(self, cluster: Cluster, place: Place, clock: Clock) -> None:
        self._cluster = cluster
        self._place = place
        self._clock = clock
        self._offsets = Offsets(cluster.clients.admin(cluster.admin()), "tarry-writer", cluster)

    def look(self, *, stable: bool) -> LogEnd:
        """Find the last committed record.

        Args:
            stable: True: look below the last stable offset only. False: look below the high watermark, and wait until
                no open transaction hides records.

        Raises:
            UsageError: the partition does not exist.
            RetriableError: the brokers do not answer, or another producer's transaction stays open for a minute.
        """
        place = self._place
        if not self._offsets.existing([place]):
            raise UsageError(f"topic {place[0]} has no partition {place[1]}, or does not exist: check both")
        end = self._offsets.ends([place], committed=stable)[place]
        # Fetched after the end, so it may be beyond the end if the log was trimmed in between.
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
        """Return its librdkafka clients."""
        return self._offsets.clients()

    def close(self) -> None:
        """Close its clients."""
        self._offsets.close()


def _last(reader: Reader, place: Place, start: int, end: int) -> LastRecord | None:
    """Return the last record that a read_committed reader gets between two offsets, or after them."""
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
