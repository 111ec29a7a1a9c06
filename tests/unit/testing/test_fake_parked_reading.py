"""Reading parked messages again from the parked logs, on the fake cluster."""

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tarry.core.batch import FiledRun
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import FILED, filed_headers
from tarry.core.window.parked import PARK_AFTER_MS
from tarry.errors import LogError
from tarry.headers import DELAY_MS, TARGET
from tarry.kafka.reader import Reader
from tarry.service.worker.budget import PARKED_SHARE
from tarry.service.worker.parked_reading import MOST_AT_ONCE, ParkedReading
from tarry.timer import TimingWheel
from tests.unit.testing.stage import TopicStage

if TYPE_CHECKING:
    from tarry.core.message import Headers, HeldMessage

LOG = "in.parked"
PARTITIONS = MOST_AT_ONCE + 1
VALUE = bytes(1_000)


class Outage:
    """Partitions of an intake whose messages for the targets `out` and `other` are in the parked logs."""

    def __init__(self, stage: TopicStage, budget_bytes: int = 1 << 30) -> None:
        self.stage = stage
        self.now_ms = stage.clock.now_ms()
        self.readers: list[Reader] = []
        self.closed: list[Reader] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        stage.broker.make_topic(LOG, PARTITIONS)
        self.states = [self._state(number) for number in range(PARTITIONS)]
        self.reading = ParkedReading(
            self._new_reader, budget_bytes, lambda event, **fields: self.events.append((event, fields))
        )
        self.reading.share(self.states)

    def _new_reader(self) -> Reader:
        closed = self.closed

        class Told(Reader):
            def close(self) -> None:
                closed.append(self)
                super().close()

        self.readers.append(Told(self.stage.cluster("worker"), print))
        return self.readers[-1]

    def _state(self, number: int) -> PartitionState:
        start_ms = self.now_ms // 1_000 * 1_000 + 1_000
        checkpoint = Checkpoint(("w",), False, Geometry(1_000, 10, 1), (start_ms,), (start_ms,), (0,))
        reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
        recovered = Recovered(0, checkpoint, DoneSet(), 0)
        return PartitionState("in", number, reader, False, partial(TimingWheel, 1, 64), recovered, self.now_ms)

    def park(self, number: int, *targets: str, lost: int = -1, damaged: int = -1) -> None:
        """Let messages for these targets become due while they are away, and file them to the parked log.

        Args:
            number: the partition.
            targets: the target of each message.
            lost: the offset in the intake of one that the brokers lose.
            damaged: that of one whose record is written as by a later version.
        """
        state = self.states[number]
        for offset, target in enumerate(targets, state.position):
            headers: Headers = [(TARGET, target.encode()), (DELAY_MS, b"0")]
            state.arrivals.accept(offset, self.now_ms, b"%d" % offset, VALUE, headers, self.now_ms)
        state.collect(self.now_ms)
        batch = state.take(100, self.now_ms, {"out", "other"})
        state.settle(batch)
        state.confirm(batch)
        filing = state.take_to_file(100, self.now_ms + PARK_AFTER_MS, only="parked")
        assert len(filing) == len(targets)
        state.journal_of(filing)
        for message, source in filing.records:
            at = self.stage.broker.end(LOG, number)
            headers = filed_headers(message)  # type: ignore[assignment]  # all values are bytes
            if message.sequence == damaged:
                headers = [(FILED, b"\x09" + (headers[-1][1] or b"")[1:])]
            self._write(number, message, headers, is_lost=message.sequence == lost)
            filing.runs.append(FiledRun(source, at, at + 1, 1))
        state.confirm_filed(filing)
        assert state.parked.read_bytes == 0

    def _write(self, number: int, message: "HeldMessage", headers: "Headers", *, is_lost: bool) -> None:
        if not is_lost:
            self.stage.broker.append(LOG, message.original_key, message.value, headers, number)
            return
        producer = self.stage.producer()
        producer.begin_transaction()
        producer.produce(LOG, message.value, message.original_key, number, headers=[*headers])
        producer.flush(30)
        producer.abort_transaction(30)

    def turn(self) -> None:
        for _ in range(50):
            self.reading.turn()
            self.stage.clock.advance(5)

    def taken(self, number: int, target: str = "out") -> list[int]:
        """Return what can be tried now, by offset in the intake."""
        return [message.sequence for message in self.states[number].parked.take(target, 100, self.now_ms).due]


@pytest.fixture
def outage(stage: TopicStage) -> Outage:
    return Outage(stage)


def test_the_messages_of_one_target_come_back_in_order_and_no_others(outage: Outage) -> None:
    outage.park(0, "out", "other", "out", "out")
    outage.reading.want(outage.states[0], "out")
    outage.turn()
    assert outage.taken(0) == [0, 2, 3]
    assert outage.taken(0, "other") == []
    assert outage.events == []


def test_a_partition_is_read_for_one_target_after_the_other(outage: Outage) -> None:
    outage.park(0, "out", "other")
    outage.reading.want(outage.states[0], "out")
    outage.reading.want(outage.states[0], "other")
    outage.turn()
    assert (outage.taken(0), outage.taken(0, "other")) == ([0], [])
    outage.reading.want(outage.states[0], "other")
    outage.turn()
    assert outage.taken(0, "other") == [1]
    assert len(outage.readers) == 1


def test_only_some_partitions_are_read_at_a_time(outage: Outage) -> None:
    for number in range(PARTITIONS):
        outage.park(number, "out")
    for state in outage.states:
        outage.reading.want(state, "out")
    outage.turn()
    assert [outage.taken(number) for number in range(PARTITIONS)] == [[0]] * MOST_AT_ONCE + [[]]
    outage.reading.want(outage.states[MOST_AT_ONCE], "out")
    outage.turn()
    assert outage.taken(MOST_AT_ONCE) == [0]


def test_the_share_of_memory_is_divided_among_the_partitions(outage: Outage) -> None:
    for state in outage.states:
        assert state.parked.limit_bytes == int((1 << 30) * PARKED_SHARE) // PARTITIONS


def test_as_much_is_read_as_the_partition_has_room_for(stage: TopicStage) -> None:
    outage = Outage(stage, budget_bytes=int(2 * len(VALUE) * PARTITIONS / PARKED_SHARE))
    outage.park(0, *["out"] * 5)
    read: list[int] = []
    for _ in range(3):
        outage.reading.want(outage.states[0], "out")
        outage.turn()
        batch = outage.states[0].parked.take("out", 100, outage.now_ms)
        read.append(len(batch.due))
        outage.states[0].settle(batch)
        outage.states[0].confirm_parked(batch)
    assert read == [2, 2, 1]


def test_one_message_is_read_however_little_room_there_is(stage: TopicStage) -> None:
    outage = Outage(stage, budget_bytes=1)
    for number in (0, 1):
        outage.park(number, "out", "out")
        outage.reading.want(outage.states[number], "out")
    outage.turn()
    assert [outage.taken(number) for number in (0, 1)] == [[0], [0]]


def test_what_was_read_for_another_target_takes_room_too(stage: TopicStage) -> None:
    outage = Outage(stage, budget_bytes=int(2 * len(VALUE) * PARTITIONS / PARKED_SHARE))
    outage.park(0, "out", "out", "other", "other")
    for target in ("out", "other"):
        outage.reading.want(outage.states[0], target)
        outage.turn()
    assert (outage.taken(0), outage.taken(0, "other")) == ([0, 1], [2])


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_messages_that_the_log_has_lost_are_reported_and_the_others_come_back(outage: Outage, lost: int) -> None:
    outage.park(0, "out", "out", "out", lost=lost)
    outage.reading.want(outage.states[0], "out")
    outage.turn()
    assert outage.taken(0) == [offset for offset in range(3) if offset != lost]
    assert outage.events == [
        ("parked_messages_missing", {"topic": LOG, "partition": 0, "target": "out", "messages": 1}),
    ]


def test_a_record_of_a_later_version_is_an_error_of_its_partition(outage: Outage) -> None:
    outage.park(0, "out", "out", damaged=1)
    outage.reading.want(outage.states[0], "out")
    with pytest.raises(LogError, match=r"^in.parked/0 at offset 1: .* version 9") as caught:
        outage.turn()
    assert caught.value.log == ("in", 0)


def test_a_record_of_a_later_version_is_not_passed_by_and_others_of_its_fetch_are_not_lost(outage: Outage) -> None:
    outage.park(0, "out", "out", damaged=1)
    outage.park(1, "out", "out", "out")
    for number in (0, 1):
        outage.reading.want(outage.states[number], "out")
    for _ in range(2):  # it may take more than one try to give the partition up
        with pytest.raises(LogError, match="version 9"):
            outage.turn()
    outage.reading.stop()
    outage.reading.want(outage.states[1], "out")
    outage.turn()
    assert outage.taken(1) == [0, 1, 2]
    assert outage.events == []


def test_after_a_stop_all_is_read_from_the_start_by_another_reader(outage: Outage) -> None:
    outage.park(0, "out")
    outage.reading.want(outage.states[0], "out")
    outage.reading.stop()
    assert outage.closed == outage.readers
    outage.turn()
    assert outage.taken(0) == []
    outage.reading.want(outage.states[0], "out")
    outage.turn()
    assert outage.taken(0) == [0]
    assert len(outage.readers) == 2
