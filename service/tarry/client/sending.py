"""Handing records to a producer: the step that every face of the client shares."""

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tarry.client.forking import Origin
from tarry.client.pending import Intake, Pending, PendingCancel, PendingMessage, refusal
from tarry.client.receipt import DelayedMessage
from tarry.client.record import IntakeRecord, to_cancel, to_handle, to_record
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, RetriableError
from tarry.handle import Handle
from tarry.kafka.errors import error_of, producer_errors

POLL_S = 0.1
"""Reports are served as they come; this bounds a wait only where none comes."""

_Taken = TypeVar("_Taken")
_PendingT = TypeVar("_PendingT", bound=Pending[Any])


def by_partitioner(key: bytes | None) -> int:  # noqa: ARG001 - the other ways to choose need it
    """What librdkafka takes for: let the producer's partitioner decide."""
    return -1


class Sender:
    """Hands the records of one intake to a producer, and does not wait for anything.

    For any thread, as the producer is.

    Args:
        producer: whose.
        intake: where messages go.
        clock: for the records' timestamps: the due time is known as soon as the broker has acknowledged.
        partition_of: chooses the partition of a key; -1 for the producer's own choice.
        on_report: called by who polls when a record's report is there.
        reach: called before a record is handed over; what it raises is raised in its place.
    """

    def __init__(
        self,
        producer: Producer,
        intake: Intake,
        clock: Clock,
        partition_of: Callable[[bytes | None], int] = by_partitioner,
        on_report: Callable[[Pending[Any]], None] | None = None,
        reach: Callable[[], None] = lambda: None,
    ) -> None:
        self._origin = Origin()
        self._reach = reach
        self._producer = producer
        self._intake = intake
        self._clock = clock
        self._partition_of = partition_of
        self._on_report = on_report

    def send(self, message: DelayedMessage) -> PendingMessage:
        """Hand over a message.

        Raises:
            HeaderError: it could never be delivered.
            BufferError: the producer's queue is full: there is room after some reports.
            BrokerError: the producer refuses it.
        """
        timestamp_ms = self._clock.now_ms()
        record = to_record(message, timestamp_ms)
        pending = PendingMessage(self._intake, record, timestamp_ms)
        return self._hand_over(pending, record, self._intake.topic, self._partition_of(record.key))

    def cancel(self, handle: Handle | str) -> PendingCancel:
        """Hand over a cancel.

        Raises:
            HeaderError: it is no handle, or one of another intake.
            BufferError: as `send`.
            BrokerError: as `send`.
        """
        parsed = to_handle(handle, self._intake.topic)
        pending = PendingCancel(parsed, self._clock.now_ms())
        return self._hand_over(pending, to_cancel(parsed), parsed.topic, parsed.partition)

    def _hand_over(self, pending: _PendingT, record: IntakeRecord, topic: str, partition: int) -> _PendingT:
        self._origin.check("producer")
        self._reach()
        on_report = self._on_report
        if on_report is None:
            on_delivery = pending.report
        else:

            def on_delivery(error: KafkaError | None, message: Message) -> None:
                pending.report(error, message)
                on_report(pending)

        try:
            self._producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                on_delivery=on_delivery,
                timestamp=pending.timestamp_ms,
                headers=list(record.headers),
            )
        except KafkaException as exception:
            raise refusal(error_of(exception), topic) from exception
        return pending


def serve_reports(producer: Producer, timeout_s: float = POLL_S) -> None:
    """Serve the producer's reports; wait at most so long for the first.

    Raises:
        FatalError: the producer is lost.
    """
    with producer_errors("send"):
        producer.poll(timeout_s)


class Wait:
    """A bound of a wait, by the machine's clock.

    Args:
        within_s: how long it may last, from now on.
    """

    def __init__(self, within_s: float) -> None:
        self._clock = SystemClock()
        self._ends_ms = self._clock.monotonic_ms() + int(within_s * 1_000)

    @property
    def is_over(self) -> bool:
        """Whether it has lasted for so long."""
        return self._clock.monotonic_ms() >= self._ends_ms


def with_room(producer: Producer, hand_over: Callable[[], _Taken], wait: Wait | None = None) -> _Taken:
    """Hand something over, waiting while the producer's queue is full.

    Args:
        producer: whose.
        hand_over: raises BufferError where there is no room.
        wait: the bound; None: there is none.

    Raises:
        RetriableError: there was no room in time, and nothing was sent.
        FatalError: the producer is lost.
        BrokerError: there will never be room for it.
    """
    was_empty = False
    while True:
        try:
            return hand_over()
        except BufferError:
            was_empty = is_empty(producer, was_empty=was_empty)
            if wait is not None and wait.is_over:
                raise RetriableError("could not send: no room in the producer's queue in time") from None
            if not was_empty:
                serve_reports(producer)


def is_empty(producer: Producer, *, was_empty: bool) -> bool:
    """After a refusal for want of room: whether nothing is on its way, so that it is to be tried again at once.

    Raises:
        BrokerError: nothing was the last time either: there will never be room for it.
    """
    if len(producer):
        return False
    if was_empty:
        raise BrokerError("could not send: larger than all of the producer's queue", "_QUEUE_FULL")
    return True
