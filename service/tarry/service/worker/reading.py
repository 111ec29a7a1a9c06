"""Reading the intakes: records go to the state of their partition, as long as memory has room for messages.

While too many messages wait to be filed, reading goes on, and what is due far in the future is passed over: it is read
again later (`second_reading`). Where nothing may be passed over, reading pauses.

The same consumer reads the logs of pauses (`pausing`), which no backpressure stops.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Message

from tarry.core.partition import PartitionState
from tarry.errors import LogError
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import read_headers, saved_headers
from tarry.kafka.types import Place
from tarry.service.worker.budget import KNOWN_SHARE, PAUSE_AT, RESUME_AT, is_behind, is_full
from tarry.service.worker.context import Context
from tarry.service.worker.counting import count_placed, count_received
from tarry.service.worker.pausing import Pausing
from tarry.service.worker.steady_clock import SteadyClock

READ_MOST = 5_000

MOST_READS = 4
"""How often to read in one turn while messages are passed over and more of them come at once."""

HELD_UP_MS = 1_000
"""When reading has waited for so long for messages to be filed, only the logs of pauses are read.

Before, nothing is, because a pause of the consumer drops what was fetched and not read.
"""


class Reading:
    """Reads the intakes of one process.

    Args:
        reader: the consumer.
        intakes: all topics that it reads.
        budget_bytes: the memory for held messages.
        most_to_file: when more messages than this wait to be filed, others are passed over.
        pausing: takes the records of the logs of pauses.
        clock: wall time.
        context: the log and the metrics.
    """

    def __init__(
        self,
        reader: Reader,
        intakes: Iterable[str],
        budget_bytes: int,
        most_to_file: int,
        pausing: Pausing,
        clock: SteadyClock,
        context: Context,
    ) -> None:
        self._reader = reader
        self._intakes = list(intakes)
        self._budget_bytes = budget_bytes
        self._most_to_file = most_to_file
        self._pausing = pausing
        self._clock = clock
        self._tally = context.tally
        self._on_event = context.on_event
        self._is_full = False
        """Whether reading must be paused because memory exceeds the budget."""
        self._held_up_since_ms: int | None = None
        """Since when nothing is read because too many messages wait to be filed; monotonic."""
        self._is_held_up = False
        """Whether reading must be paused because that lasts."""
        self._is_paused = False
        """Whether reading is paused, for one cause or both."""
        self._is_quiet = False
        """Whether the last read found nothing."""
        self.is_hurried = False
        """Whether messages are passed over, and more records than one turn reads are there already."""

    def open(self, starts: Mapping[Place, int], others: Iterable[Place]) -> None:
        """Begin to read partitions.

        Args:
            starts: the offsets to begin at.
            others: partitions that are read already; they resume too, because a replay is never paused.
        """
        if self._is_paused:
            self._is_paused = self._is_full = self._is_held_up = False
            self._held_up_since_ms = None
            self._reader.resume(others)
        self._reader.open(starts)

    def shut(self, places: Iterable[Place]) -> None:
        """Stop reading partitions."""
        self._reader.shut(places)

    @property
    def is_quiet(self) -> bool:
        """Whether the last read found nothing, so that the next one returns with the first record."""
        return self._is_quiet and not self._is_paused

    def turn(self, states: Mapping[Place, PartitionState], wait_ms: int) -> None:
        """Read records, or wait for them; read nothing while too many messages wait that cannot be passed over.

        Args:
            states: the states that take the records.
            wait_ms: the longest wait.
        """
        self.is_hurried = False
        self._keep_within_budget(states)
        must_wait = self._must_wait(states.values())
        self._note_wait(must_wait=must_wait)
        self._pause_or_resume(states)
        if self._is_held_up:
            self._read(states, wait_ms)
            return
        if must_wait:
            self._clock.sleep(wait_ms / 1000)
            return
        for _ in range(MOST_READS):
            is_more = self._read(states, 0 if self.is_hurried else wait_ms)
            self.is_hurried = is_more and any(state.passed_over.span for state in states.values())
            if not self.is_hurried:
                break

    def _note_wait(self, *, must_wait: bool) -> None:
        """Note for how long reading waits for messages to be filed."""
        if not must_wait:
            self._held_up_since_ms, self._is_held_up = None, False
            return
        now_ms = self._clock.monotonic_ms()
        if self._held_up_since_ms is None:
            self._held_up_since_ms = now_ms
        elif self._pausing.is_reading and now_ms - self._held_up_since_ms >= HELD_UP_MS:
            self._is_held_up = True

    def _pause_or_resume(self, states: Iterable[Place]) -> None:
        """Pause reading if there is a cause; resume it if none is left."""
        must_pause = self._is_full or self._is_held_up
        if must_pause and not self._is_paused:
            self._reader.pause(states)
        elif self._is_paused and not must_pause:
            self._reader.resume(states)
        self._is_paused = must_pause

    def _must_wait(self, states: Collection[PartitionState]) -> bool:
        """Let far messages be passed over if too many wait; return whether reading must wait nevertheless."""
        now_ms, most = self._clock.now_ms(), self._most_to_file
        behind = is_behind(states, most)
        others = [state for state in states if not state.pass_over(is_behind=behind, now_ms=now_ms)]
        if any(state.passed_over.span for state in others):  # they must be read again before anything is added
            return True
        return is_behind(others, most) or is_behind(states, PAUSE_AT * most)

    def _read(self, states: Mapping[Place, PartitionState], wait_ms: int) -> bool:
        """Read once; return whether there is more to read at once."""
        # To wait for many records makes batches under load. The first record after a pause does not wait for others.
        read = self._reader.read_first if self._is_quiet else self._reader.read
        try:
            records, reached = read(READ_MOST, wait_ms / 1000)
        except LogError as error:
            if not self._pausing.lost(error.log):
                raise
            return False
        self._is_quiet = not records
        if not records and not reached:
            return False
        held = [state.held for state in states.values()]
        if self._accept(records, states):
            records = [record for record in records if (record.topic() or "") in self._intakes]
        for place, position in reached.items():
            if place in states:
                states[place].arrivals.reach(position)
        self._pausing.reach(reached)
        count_received(self._tally, self._intakes, records)
        count_placed(self._tally, list(states.values()), held)
        return len(records) == READ_MOST

    def _accept(self, records: Sequence[Message], states: Mapping[Place, PartitionState]) -> bool:
        """Take in records; return whether some are of logs of pauses."""
        has_others = False
        now_ms, latest_ms = self._clock.now_ms(), self._clock.latest_ms()
        topic, partition, state = None, None, None
        for record in records:
            if record.partition() != partition or record.topic() != topic:  # records of a partition come in runs
                topic, partition = record.topic() or "", record.partition() or 0
                state = states.get((topic, partition))
            if state is None:
                has_others = self._pausing.accept(record) or has_others
                continue
            offset = record.offset() or 0
            try:
                headers = read_headers(record)
            except SystemError as error:  # a header name that is not UTF-8
                saved = saved_headers(record, error)
                state.arrivals.accept_unreadable(offset, record.key(), record.value(), saved)
                continue
            stamp_ms = record.timestamp()[1]
            state.arrivals.accept(offset, stamp_ms, record.key(), record.value(), headers, now_ms, latest_ms)
        return has_others

    def _keep_within_budget(self, states: Mapping[Place, PartitionState]) -> None:
        """Note whether memory exceeds the budget; never during a replay: without its end nothing fires."""
        share = int(self._budget_bytes * KNOWN_SHARE) // max(1, len(states))
        for state in states.values():
            state.shed_known(share)
        if self._is_full:
            if not is_full(states.values(), self._budget_bytes * RESUME_AT):
                self._is_full = False
                self._on_event("reading_resumed", held_bytes=_memory_of(states.values()))
        elif is_full(states.values(), self._budget_bytes) and not any(one.is_replaying for one in states.values()):
            self._is_full = True
            self._on_event("reading_paused", held_bytes=_memory_of(states.values()), budget_bytes=self._budget_bytes)


def _memory_of(states: Iterable[PartitionState]) -> int:
    return sum(state.memory_bytes for state in states)
