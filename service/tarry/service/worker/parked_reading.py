"""Reading parked messages again from the parked log, when their target is back.

A separate reader reads the log of a partition, for one target of it at a time: a little in every turn of the loop,
without waiting.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tarry.core.partition import PartitionState
from tarry.core.progress.source import PARKED
from tarry.errors import LogError
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place
from tarry.service.worker.budget import PARKED_SHARE

if TYPE_CHECKING:
    from tarry.core.window.parked import WantedMessages

READ_MOST = 5_000

MOST_AT_ONCE = 4
"""How many partitions are read again at a time."""


class ParkedReading:
    """Reads parked messages again.

    Args:
        new_reader: makes a consumer without a group.
        budget_bytes: the memory for all held messages.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, new_reader: Callable[[], Reader], budget_bytes: int, on_event: Callable[..., None]) -> None:
        self._on_event = on_event
        self._new_reader = new_reader
        self._share_bytes = int(budget_bytes * PARKED_SHARE)
        self._most_bytes = self._share_bytes
        self._reader: Reader | None = None
        self._under_way: dict[Place, tuple[PartitionState, WantedMessages]] = {}
        """What is read of each parked log."""
        self._fault: LogError | None = None
        """Why nothing more is read until `stop`: the reading has stopped halfway."""

    def share(self, states: Sequence[PartitionState]) -> None:
        """Divide the share of memory evenly among the partitions; what exceeds it is filed to the parked log."""
        self._most_bytes = self._share_bytes // len(states)
        for state in states:
            state.parked.limit_bytes = self._most_bytes

    def want(self, state: PartitionState, topic: str) -> None:
        """Begin to read the next messages for a target of a partition, if they are in the parked log.

        Nothing happens while the partition is being read already, or too many others are.

        Raises:
            RetriableError: refused for now; ask again.
        """
        log = level_log_of(state.place, PARKED)
        if log in self._under_way or len(self._under_way) >= MOST_AT_ONCE:
            return
        wanted = state.parked.wanted(topic, self._most_bytes - state.parked.read_bytes)  # at least one message
        if wanted is not None:
            if self._reader is None:
                self._reader = self._new_reader()
            self._reader.open({log: wanted.start})
            self._under_way[log] = state, wanted

    def turn(self) -> None:
        """Read on, without waiting.

        Raises:
            RetriableError: refused for now; go on.
            LogError: a log no longer holds the offset to read next, or a later version of tarry has written there;
                raised until `stop`.
        """
        if self._fault is not None:
            raise self._fault
        if self._reader is None or not self._under_way:
            return
        records, reached = self._reader.read(READ_MOST, 0)
        for record in records:
            log = (record.topic() or "", record.partition() or 0)
            if log in self._under_way:
                state, wanted = self._under_way[log]
                try:
                    wanted.accept(record.offset() or 0, record.key(), record.value(), headers_of(record))
                except ValueError as error:
                    why = f"{log[0]}/{log[1]} at offset {record.offset()}: {error}"
                    self._fault = LogError(why, state.place)
                    raise self._fault from error
        for log, position in reached.items():
            if log in self._under_way:
                self._under_way[log][1].reach(position)
        for log in [log for log, (_, wanted) in self._under_way.items() if wanted.is_complete]:
            self._end(log)

    def _end(self, log: Place) -> None:
        state, wanted = self._under_way.pop(log)
        if self._reader is not None:
            self._reader.shut([log])
        if (missing := state.parked.restore(wanted)) > 0:
            # They cannot be delivered any more, and a take-over would find the same: so all others go on.
            self._on_event(
                "parked_messages_missing", topic=log[0], partition=log[1], target=wanted.topic, messages=missing
            )

    def stop(self) -> None:
        """Stop all reading: the partitions are given up, or all of them are taken over again."""
        self._under_way.clear()
        self._fault = None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
