"""Keeping parked messages within their share of memory: beyond it only their places are kept, and read again later.

A message holds back its log's low watermark until it is done, and the intake is trimmed only below that watermark. So
its record still exists, and so does a record in a bucket. A separate reader reads the stretches of these logs that hold
the places: for one target of a partition at a time, a little in every turn of the loop, without waiting.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tarry.core.partition import PartitionState
from tarry.errors import LogError
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from tarry.core.window.parked import WantedPlaces

READ_MOST = 5_000

SHARE = 8
"""Parked messages take one part in `SHARE` of the memory for held messages; messages being read again as much."""

MOST_PASSES = 4
"""How many partitions are read again at a time."""


class Rereading:
    """Drops parked messages that exceed their share of memory, and reads them again.

    Args:
        new_reader: makes a consumer without a group.
        budget_bytes: the memory for all held messages.
    """

    def __init__(self, new_reader: Callable[[], Reader], budget_bytes: int) -> None:
        self._new_reader = new_reader
        self._share_bytes = budget_bytes // SHARE
        self._most_bytes = self._share_bytes
        self._reader: Reader | None = None
        self._passes: dict[PartitionState, WantedPlaces] = {}
        self._logs: dict[Place, tuple[PartitionState, int, int]] = {}

    def shed(self, states: Sequence[PartitionState]) -> None:
        """Drop parked messages from memory beyond their share, which is divided evenly among the partitions."""
        for state in states:
            state.parked.shed(self._share_bytes // len(states))
        self._most_bytes = self._share_bytes // len(states)

    def want(self, state: PartitionState, topic: str) -> None:
        """Begin to read the next messages for a target of a partition again, if memory holds only their places.

        Nothing happens while the partition is being read already, or too many others are.

        Raises:
            RetriableError: refused for now; ask again.
        """
        room_bytes = self._share_bytes - sum(wanted.size_bytes for wanted in self._passes.values())
        if state in self._passes or len(self._passes) >= MOST_PASSES or (self._passes and room_bytes <= 0):
            return
        wanted = state.parked.wanted(topic, min(self._most_bytes, room_bytes))
        if wanted is not None:
            if self._reader is None:
                self._reader = self._new_reader()
            logs = {level_log_of(state.place, level): (level, span) for level, span in wanted.spans.items()}
            self._reader.open({log: start for log, (_, (start, _)) in logs.items()})
            self._passes[state] = wanted
            self._logs.update({log: (state, level, end) for log, (level, (_, end)) in logs.items()})

    def turn(self) -> None:
        """Read on, without waiting.

        Raises:
            RetriableError: refused for now; go on.
            LogError: a log no longer holds a wanted record.
        """
        if self._reader is None or not self._passes:
            return
        records, reached = self._reader.read(READ_MOST, 0)
        for record in records:
            log = (record.topic() or "", record.partition() or 0)
            if log not in self._logs:
                continue
            state, level, end = self._logs[log]
            wanted = self._passes[state]
            offset = record.offset() or 0
            if wanted.place(level, offset) is not None:
                stamp_ms, key, value, headers = record.timestamp()[1], record.key(), record.value(), headers_of(record)
                state.arrivals.read_again(wanted, level, offset, stamp_ms, key, value, headers)
            if wanted.is_complete:
                self._end(state)
                state.parked.restore(wanted)
            elif offset + 1 >= end:
                self._reached(log)
        for log, position in reached.items():
            if log in self._logs and position >= self._logs[log][2]:
                self._reached(log)

    def stop(self) -> None:
        """Stop all reading: the partitions are given up, or all of them are taken over again."""
        self._passes.clear()
        self._logs.clear()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _reached(self, log: Place) -> None:
        """A log was read to its end; if it was the partition's last one, wanted records are missing.

        Raises:
            LogError: they are missing.
        """
        state = self._logs[log][0]
        self._shut([log])
        if any(other is state for other, _, _ in self._logs.values()):
            return
        wanted = self._passes.pop(state)
        raise LogError(
            f"{state.intake}/{state.partition} and its buckets no longer hold all of {len(wanted)} messages for "
            f"{wanted.topic}, which are not delivered yet: was data deleted?",
            state.place,
        )

    def _end(self, state: PartitionState) -> None:
        del self._passes[state]
        self._shut([log for log, (one, _, _) in self._logs.items() if one is state])

    def _shut(self, logs: Sequence[Place]) -> None:
        for log in logs:
            del self._logs[log]
        if self._reader is not None:
            self._reader.shut(logs)
