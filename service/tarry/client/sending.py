"""Producing intake records: the step that all the client's senders share."""

from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tarry.client.forking import CreatingProcess
from tarry.client.pending import (
    IntakeTopic,
    Pending,
    PendingCancel,
    PendingMessage,
    PendingNameCancel,
    PendingSchedule,
    refusal,
)
from tarry.client.receipt import DelayedMessage, RepeatedMessage
from tarry.client.record import IntakeRecord, to_cancel, to_handle, to_name_cancel, to_record, to_schedule
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, RetriableError
from tarry.handle import Handle
from tarry.kafka.errors import error_of, producer_errors

POLL_S = 0.1
"""The longest wait of one poll, in seconds; a delivery report ends it early."""

_Taken = TypeVar("_Taken")
_PendingT = TypeVar("_PendingT", bound=Pending[Any])


def by_partitioner(key: bytes | None) -> int:  # noqa: ARG001 - other functions of this signature need it
    """Return -1, with which librdkafka uses the producer's partitioner."""
    return -1


class Sender:
    """Produces the records of one intake, without waiting for their delivery reports.

    Thread-safe, as the producer is.

    Args:
        producer: the Kafka producer.
        intake: where messages go.
        clock: gives the timestamps of the records, so that the due time is known at the acknowledgement.
        partition_of: chooses the partition of a key; -1 leaves the choice to the producer.
        on_report: called with each record that has its delivery report, in the thread that polls.
        reach: called before each record; if it raises, nothing is produced.
    """

    def __init__(
        self,
        producer: Producer,
        intake: IntakeTopic,
        clock: Clock,
        partition_of: Callable[[bytes | None], int] = by_partitioner,
        on_report: Callable[[Pending[Any]], None] | None = None,
        reach: Callable[[], None] = lambda: None,
    ) -> None:
        self._origin = CreatingProcess()
        self._reach = reach
        self._producer = producer
        self._intake = intake
        self._clock = clock
        self._partition_of = partition_of
        self._on_report = on_report

    def send(self, message: DelayedMessage, partition: int | None = None) -> PendingMessage:
        """Produce a message.

        Args:
            message: the message.
            partition: of the intake, for one without a key; None: any.

        Raises:
            HeaderError: the message could never be delivered.
            BufferError: the producer's queue is full; delivery reports make room.
            BrokerError: the producer refuses the message.
        """
        timestamp_ms = self._clock.now_ms()
        record = to_record(message, timestamp_ms)
        pending = PendingMessage(self._intake, record, timestamp_ms)
        chosen = self._partition_of(record.key) if partition is None or record.key is not None else partition
        return self._hand_over(pending, record, self._intake.topic, chosen)

    def repeat(self, message: RepeatedMessage) -> PendingSchedule:
        """Produce a schedule.

        Raises:
            HeaderError: the schedule could never be accepted.
            BufferError: as `send`.
            BrokerError: as `send`.
        """
        timestamp_ms = self._clock.now_ms()
        record = to_schedule(message, timestamp_ms)
        pending = PendingSchedule(self._intake.topic, record.id, timestamp_ms)
        return self._hand_over(pending, record, self._intake.topic, self._partition_of(record.key))

    def cancel(self, handle: Handle | str) -> PendingCancel:
        """Produce a cancel.

        Raises:
            HeaderError: it is not a handle, it belongs to another intake, or it is that of a schedule.
            BufferError: as `send`.
            BrokerError: as `send`.
        """
        parsed = to_handle(handle, self._intake.topic)
        pending = PendingCancel(parsed, self._clock.now_ms())
        return self._hand_over(pending, to_cancel(parsed), parsed.topic, parsed.partition)

    def cancel_named(self, key: str | bytes, name: str | bytes) -> PendingNameCancel:
        """Produce a cancel by name.

        Raises:
            HeaderError: the name is none, or the key is null.
            BufferError: as `send`.
            BrokerError: as `send`.
        """
        record = to_name_cancel(key, name)
        pending = PendingNameCancel(self._intake.topic, self._clock.now_ms())
        return self._hand_over(pending, record, self._intake.topic, self._partition_of(record.key))

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
    """Serve the producer's delivery reports; wait at most `timeout_s` for the first.

    Raises:
        FatalError: the producer is lost.
    """
    with producer_errors("send"):
        producer.poll(timeout_s)


class Wait:
    """A deadline for a wait, by the machine's monotonic clock.

    Args:
        within_s: seconds from now to the deadline.
    """

    def __init__(self, within_s: float) -> None:
        self._clock = SystemClock()
        self._ends_ms = self._clock.monotonic_ms() + int(within_s * 1_000)

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self._clock.monotonic_ms() >= self._ends_ms


def with_room(producer: Producer, hand_over: Callable[[], _Taken], wait: Wait | None = None) -> _Taken:
    """Call `hand_over` until the producer's queue has room, serving delivery reports meanwhile.

    Args:
        producer: the producer whose queue may be full.
        hand_over: produces a record; raises BufferError if the queue is full.
        wait: the deadline; None: no deadline.

    Raises:
        RetriableError: the queue had no room in time; nothing was sent.
        FatalError: the producer is lost.
        BrokerError: the record is larger than the whole queue.
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
    """Tell, after a BufferError, whether the queue is empty, so that the caller should try again at once.

    Raises:
        BrokerError: the queue was empty at the last try, too: the record is larger than the whole queue.
    """
    if len(producer):
        return False
    if was_empty:
        raise BrokerError("could not send: larger than the producer's whole queue", "_QUEUE_FULL")
    return True
