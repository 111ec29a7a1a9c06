"""What is parked stays within its share of memory: beyond it only places are kept, and read again in their turn.

A message holds its partition's low watermark until it is done, and the intake is trimmed below that alone: so its
record is still there. A reader of its own goes over the stretch of the intake in which the places lie, one stretch a
partition, a little in every turn of the loop, and never waits.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tarry.core.partition import PartitionState
from tarry.errors import UsageError
from tarry.kafka.place import Place
from tarry.kafka.reader import Reader

if TYPE_CHECKING:
    from tarry.core.message import Headers
    from tarry.core.parked import Wanted

READ_MOST = 5_000

SHARE = 8
"""Of the memory for messages held, one part in so many is for parked ones, and as much for those being read again."""

MOST_PASSES = 4
"""How many partitions are read again at a time."""


class Rereading:
    """Sheds what is parked and too much, and reads it again.

    Args:
        new_reader: makes a consumer without a group.
        budget_bytes: for all messages held.
    """

    def __init__(self, new_reader: Callable[[], Reader], budget_bytes: int) -> None:
        self._new_reader = new_reader
        self._share_bytes = budget_bytes // SHARE
        self._most_bytes = self._share_bytes
        self._reader: Reader | None = None
        self._passes: dict[Place, tuple[PartitionState, Wanted]] = {}

    def shed(self, states: Sequence[PartitionState]) -> None:
        """Keep what is parked within its share, which partitions divide evenly."""
        for state in states:
            state.shed_parked(self._share_bytes // len(states))
        self._most_bytes = self._share_bytes // len(states)

    def want(self, state: PartitionState, topic: str) -> None:
        """Read again what comes next for a target in a partition, if that is kept by its place and it is its turn.

        Raises:
            RetriableError: refused for now; ask again.
        """
        place = (state.intake, state.partition)
        room_bytes = self._share_bytes - sum(wanted.size_bytes for _, wanted in self._passes.values())
        if place in self._passes or len(self._passes) >= MOST_PASSES or (self._passes and room_bytes <= 0):
            return
        wanted = state.wanted(topic, min(self._most_bytes, room_bytes))
        if wanted is not None:
            if self._reader is None:
                self._reader = self._new_reader()
            self._reader.open({place: wanted.start})
            self._passes[place] = (state, wanted)

    def turn(self) -> None:
        """Read on, without waiting.

        Raises:
            RetriableError: refused for now; go on.
            UsageError: the intake no longer holds a record that is wanted.
        """
        if self._reader is None or not self._passes:
            return
        records, reached = self._reader.read(READ_MOST, 0)
        for record in records:
            place = (record.topic() or "", record.partition() or 0)
            if place not in self._passes:
                continue
            state, wanted = self._passes[place]
            offset = record.offset() or 0
            if wanted.due_ms(offset) is not None:
                headers: Headers | None = record.headers()  # type: ignore[assignment]  # bytes, from the wire
                state.read_again(wanted, offset, record.timestamp()[1], record.key(), record.value(), headers)
            if wanted.is_complete:
                self._end(place)
            elif offset >= wanted.end:
                self._miss(place)
        for place, position in reached.items():
            if place in self._passes and position >= self._passes[place][1].end:
                self._miss(place)

    def stop(self) -> None:
        """Let go of what is being read: the partitions are given up, or all is taken over anew."""
        self._passes.clear()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _end(self, place: Place) -> None:
        state, wanted = self._passes.pop(place)
        self._shut([place])
        state.restore(wanted)

    def _miss(self, place: Place) -> None:
        wanted = self._passes.pop(place)[1]
        self._shut([place])
        raise UsageError(
            f"{place[0]}/{place[1]} no longer holds all records from {wanted.start} to {wanted.end - 1}, "
            "which are not delivered yet: was its data deleted?"
        )

    def _shut(self, places: Iterable[Place]) -> None:
        if self._reader is not None:
            self._reader.shut(places)
