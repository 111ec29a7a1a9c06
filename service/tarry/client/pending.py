"""Records in flight to an intake, and their receipts."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from tarry.client.receipt import CancelReceipt, NameCancelReceipt, Receipt, ScheduleReceipt
from tarry.client.record import IntakeRecord, to_topic
from tarry.errors import BrokerError, ConfigError, RetriableError, UsageError
from tarry.handle import Handle
from tarry.kafka.errors import PASSING, translate

ReceiptT = TypeVar("ReceiptT")

_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

MAYBE_WRITTEN = "it may or may not have been written"
"""Ends the text of an error after which it is unknown whether a record was written."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class IntakeTopic:
    """The intake that messages are sent to.

    Args:
        topic: the topic of an intake without a fixed delay and without a dialect.
        tick_ms: the service's `wheel.tick_ms`; the due times in handles are rounded up to it.

    Raises:
        HeaderError: `topic` is not a legal topic name.
        ConfigError: `tick_ms` is not a whole number of at least 1.
    """

    topic: str
    tick_ms: int

    def __post_init__(self) -> None:
        to_topic(self.topic, "intake")
        if not isinstance(self.tick_ms, int) or self.tick_ms < 1:
            raise ConfigError(f"tick_ms: must be a whole number, at least 1: {self.tick_ms!r}")

    def receipt(self, record: IntakeRecord, timestamp_ms: int, partition: int, offset: int) -> Receipt:
        """Return the receipt of a message that the intake holds.

        Args:
            record: the message's record.
            timestamp_ms: the record's timestamp, epoch milliseconds.
            partition: its partition.
            offset: its offset.
        """
        due_ms = record.due_ms(timestamp_ms, self.tick_ms)
        handle = Handle(self.topic, partition, due_ms, record.id)
        return Receipt(record.id, handle, _EPOCH + timedelta(milliseconds=due_ms), offset)


class Pending(ABC, Generic[ReceiptT]):
    """A record that is queued in a producer; its delivery report arrives while the producer is polled.

    Args:
        topic: the intake.
        timestamp_ms: the record's timestamp, epoch milliseconds.
    """

    __slots__ = ("_topic", "error", "offset", "partition", "ran_out_unsent", "timestamp_ms")

    def __init__(self, topic: str, timestamp_ms: int) -> None:
        self._topic = topic
        self.timestamp_ms = timestamp_ms
        self.error: KafkaError | None = None
        self.partition = -1
        self.offset = -1
        self.ran_out_unsent = False
        """Whether the record timed out before the topic's metadata was known, so that it was never sent."""

    @property
    def is_reported(self) -> bool:
        """Whether there is a delivery report, of success or failure."""
        return self.partition >= 0 or self.error is not None

    @property
    def is_purged(self) -> bool:
        """Whether the record was purged from the producer's queue, unsent."""
        return self.error is not None and self.error.code() == KafkaError._PURGE_QUEUE

    @property
    def found_no_topic(self) -> bool:
        """Whether the record was refused because its topic or partition does not exist."""
        return self.error is not None and self.error.code() in _NO_TOPIC

    def receipt(self) -> ReceiptT:
        """Return the receipt of the acknowledged record. In a transaction it is valid only after the commit.

        Raises:
            UsageError: there is no delivery report: the transaction is not committed, or the producer has
                `delivery.report.only.error`.
            RetriableError: no acknowledgement in time; the record may or may not have been sent.
            BrokerError: Kafka refused the record.
        """
        if self.error is not None:
            raise refusal(self.error, self._topic)
        if not self.is_reported:
            raise UsageError(
                f"no delivery report for {self._topic} yet: call receipt() after commit_transaction(), and do not set"
                " delivery.report.only.error"
            )
        return self._receipt()

    @abstractmethod
    def _receipt(self) -> ReceiptT: ...

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Note the delivery report."""
        if error is not None:
            self.error = error
            # librdkafka chooses a partition as soon as it knows the topic's metadata.
            self.ran_out_unsent = error.code() == KafkaError._MSG_TIMED_OUT and message.partition() is None
            return
        kind, timestamp_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            # The topic has LogAppendTime: the service adds the delay to the broker's timestamp.
            self.timestamp_ms = timestamp_ms
        offset = message.offset()
        self.offset = -1 if offset is None else offset
        partition = message.partition()
        self.partition = 0 if partition is None else partition


class PendingMessage(Pending[Receipt]):
    """A message in flight; call `receipt()` when it is acknowledged.

    Args:
        intake: where it goes.
        record: the record.
        timestamp_ms: the record's timestamp, epoch milliseconds.
    """

    __slots__ = ("_intake", "_record")

    def __init__(self, intake: IntakeTopic, record: IntakeRecord, timestamp_ms: int) -> None:
        super().__init__(intake.topic, timestamp_ms)
        self._intake = intake
        self._record = record

    @property
    def id(self) -> str:
        """The message's `tarry-id`, known before the acknowledgement."""
        return self._record.id

    def _receipt(self) -> Receipt:
        return self._intake.receipt(self._record, self.timestamp_ms, self.partition, self.offset)


class PendingSchedule(Pending[ScheduleReceipt]):
    """A schedule in flight; call `receipt()` when it is acknowledged.

    Args:
        topic: the intake.
        id: the schedule's id.
        timestamp_ms: the record's timestamp, epoch milliseconds.
    """

    __slots__ = ("id",)

    def __init__(self, topic: str, id: str, timestamp_ms: int) -> None:  # noqa: A002 - as in the receipt
        super().__init__(topic, timestamp_ms)
        self.id = id
        """The schedule's id, known before the acknowledgement."""

    def _receipt(self) -> ScheduleReceipt:
        return ScheduleReceipt(self.id, self._topic, self.partition, self.offset)


class PendingCancel(Pending[CancelReceipt]):
    """A cancel in flight; call `receipt()` when it is acknowledged.

    Args:
        handle: the message to cancel.
        timestamp_ms: the record's timestamp, epoch milliseconds.
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle, timestamp_ms: int) -> None:
        super().__init__(handle.topic, timestamp_ms)
        self._handle = handle

    def _receipt(self) -> CancelReceipt:
        return CancelReceipt(self._handle, self.offset)


class PendingNameCancel(Pending[NameCancelReceipt]):
    """A cancel by name in flight; call `receipt()` when it is acknowledged.

    Args:
        topic: the intake.
        timestamp_ms: the record's timestamp, epoch milliseconds.
    """

    __slots__ = ()

    def _receipt(self) -> NameCancelReceipt:
        return NameCancelReceipt(self._topic, self.partition, self.offset)


def refusal(error: KafkaError, topic: str) -> BrokerError:
    """Translate the error of one record; only a fatal error means that the producer is lost."""
    doing = f"send to {topic}"
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return RetriableError(
            f"could not {doing}: not acknowledged in time; {MAYBE_WRITTEN}", error.name(), may_be_done=True
        )
    if error.name() in PASSING and not error.fatal():
        return RetriableError(f"could not {doing}: {error.str()}; {MAYBE_WRITTEN}", error.name(), may_be_done=True)
    refused = translate(error, doing)
    # librdkafka does not mark the error as fatal for a record that it refuses because of an earlier fatal error.
    is_lost = error.fatal() or error.code() == KafkaError._FATAL
    return refused if is_lost or isinstance(refused, RetriableError) else BrokerError(str(refused), refused.code)
