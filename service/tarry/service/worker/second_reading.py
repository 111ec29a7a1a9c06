"""Reading again the messages of the intakes that were passed over, as soon as they can be filed.

A reader of its own, a little in every turn of the loop, without waiting. It pauses while the first reader is behind,
because what is due soon may stand there; while too many messages wait to be filed; and while any wait and memory is
full. It does not wait for memory alone: perhaps nothing fires before the messages that it reads.
"""

from collections.abc import Callable, Collection, Mapping

from tarry.core.partition import PartitionState
from tarry.errors import LogError
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place
from tarry.service.worker.budget import is_behind, is_full
from tarry.service.worker.context import Context
from tarry.service.worker.counting import count_placed

READ_MOST = 5_000


class SecondReading:
    """Reads again what was passed over.

    Args:
        new_reader: makes a consumer without a group.
        most_to_file: it pauses while more messages than this wait to be filed.
        budget_bytes: the memory for held messages.
        context: time and the metrics.
    """

    def __init__(
        self, new_reader: Callable[[], Reader], most_to_file: int, budget_bytes: int, context: Context
    ) -> None:
        self._new_reader = new_reader
        self._most_to_file = most_to_file
        self._budget_bytes = budget_bytes
        self._clock = context.clock
        self._tally = context.tally
        self._reader: Reader | None = None
        self._open: dict[Place, PartitionState] = {}
        self._errors: list[LogError] = []
        """What was found wrong in a fetch, until it is raised."""

    @property
    def is_busy(self) -> bool:
        """Whether there are messages to read again."""
        return bool(self._open)

    def turn(self, states: Mapping[Place, PartitionState], *, is_hurried: bool) -> None:
        """Read on, without waiting.

        Args:
            states: the partitions that are ours now.
            is_hurried: whether the first reader is behind, so that this one waits.

        Raises:
            RetriableError: refused for now; go on.
            LogError: the intake no longer holds a message that was passed over.
        """
        self._errors = [error for error in self._errors if error.log in states]
        if not self._errors:
            self._follow(states)
            if self._reader is not None and self._open and not is_hurried and self._has_room(states.values()):
                self._read(self._reader)
        if self._errors:
            raise self._errors.pop(0)

    def _has_room(self, states: Collection[PartitionState]) -> bool:
        return not is_behind(states, 0 if is_full(states, self._budget_bytes) else self._most_to_file)

    def _follow(self, states: Mapping[Place, PartitionState]) -> None:
        """Stop reading partitions that are not ours any more; begin with those of which something was passed over."""
        self._shut([place for place, state in self._open.items() if states.get(place) is not state])
        begun = {place: state for place, state in states.items() if state.passed_over.span and place not in self._open}
        if begun:
            if self._reader is None:
                self._reader = self._new_reader()
            self._reader.open({place: state.passed_over.position for place, state in begun.items()})
            self._open.update(begun)

    def _read(self, reader: Reader) -> None:
        records, reached = reader.read(READ_MOST, 0)
        now_ms = self._clock.now_ms()
        states = list(self._open.values())
        held = [state.held for state in states]
        positions: dict[Place, int] = dict(reached)
        for record in records:
            place = (record.topic() or "", record.partition() or 0)
            state, offset = self._open.get(place), record.offset() or 0
            if state is None:
                continue
            positions[place] = max(offset + 1, positions.get(place, 0))
            if offset in state.passed_over:
                stamp_ms, key, value, headers = record.timestamp()[1], record.key(), record.value(), headers_of(record)
                try:
                    state.arrivals.accept_again(offset, stamp_ms, key, value, headers, now_ms)
                except ValueError as error:  # another record has its offset
                    self._fail(place, f"{error}: was the topic recreated?")
        count_placed(self._tally, states, held)
        for place, position in positions.items():
            if place in self._open and (missing := self._reach(place, position)):
                self._fail(place, f"{missing} messages that are not filed yet are gone: was data deleted?")

    def _fail(self, place: Place, why: str) -> None:
        """Read a partition no more; the error is raised when the others of the fetch are taken in."""
        self._errors.append(LogError(f"{place[0]}/{place[1]}: {why}", place))
        self._shut([place] if place in self._open else [])

    def _reach(self, place: Place, position: int) -> int:
        """Note the position in a partition; return how many messages are missing below it."""
        passed_over = self._open[place].passed_over
        missing = passed_over.reach(position)
        if not passed_over.span:
            self._shut([place])
        return missing

    def _shut(self, places: list[Place]) -> None:
        for place in places:
            del self._open[place]
        if places and self._reader is not None:
            self._reader.shut(places)

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
