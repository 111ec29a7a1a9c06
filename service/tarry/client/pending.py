"""Records on their way to an intake, and the receipts that they become."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from tarry.client.receipt import CancelReceipt, Receipt
from tarry.client.record import IntakeRecord, to_topic
from tarry.errors import BrokerError, ConfigError, RetriableError, UsageError
from tarry.handle import Handle
from tarry.kafka.errors import PASSING, translate

ReceiptT = TypeVar("ReceiptT")

_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Intake:
    """Where messages are sent.

    Args:
        topic: of an intake whose delay is given by headers.
        tick_ms: the service's `wheel.tick_ms`: handles name due times rounded up to it.

    Raises:
        HeaderError: the topic's name is none.
        ConfigError: the tick has no length.
    """

    topic: str
    tick_ms: int

    def __post_init__(self) -> None:
        to_topic(self.topic, "intake")
        if not isinstance(self.tick_ms, int) or self.tick_ms < 1:
            raise ConfigError(f"tick_ms: a whole number, at least 1: {self.tick_ms!r}")


class Pending(ABC, Generic[ReceiptT]):
    """A record that a producer has taken; its report comes while somebody polls the producer.

    Args:
        topic: where it goes.
        timestamp_ms: the record's.
    """

    __slots__ = ("_topic", "error", "offset", "partition", "ran_out_unsent", "timestamp_ms")

    def __init__(self, topic: str, timestamp_ms: int) -> None:
        self._topic = topic
        self.timestamp_ms = timestamp_ms
        self.error: KafkaError | None = None
        self.partition = -1
        self.offset = -1
        self.ran_out_unsent = False
        """Whether its time was over before anything was known of its topic, so that it could be sent to nobody."""

    @property
    def is_reported(self) -> bool:
        """Whether the broker has answered, or the producer given up."""
        return self.partition >= 0 or self.error is not None

    @property
    def is_purged(self) -> bool:
        """Whether the producer has given it up, and had never sent it."""
        return self.error is not None and self.error.code() == KafkaError._PURGE_QUEUE

    @property
    def found_no_topic(self) -> bool:
        """Whether it was refused because its topic, or its partition, is not there."""
        return self.error is not None and self.error.code() in _NO_TOPIC

    def receipt(self) -> ReceiptT:
        """The receipt, once there is one; in a transaction it counts when that is committed.

        Raises:
            UsageError: there is no report of it: the transaction is not committed, or the producer keeps reports back.
            RetriableError: not acknowledged in time: it may or may not have been sent.
            BrokerError: Kafka refused it.
        """
        if self.error is not None:
            raise refusal(self.error, self._topic)
        if not self.is_reported:
            raise UsageError(
                f"no report yet of what was sent to {self._topic}: a receipt is there after commit_transaction(),"
                " and with delivery.report.only.error never"
            )
        return self._receipt()

    @abstractmethod
    def _receipt(self) -> ReceiptT: ...

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take the producer's report."""
        if error is not None:
            self.error = error
            # A partition is chosen as soon as the topic's are known.
            self.ran_out_unsent = error.code() == KafkaError._MSG_TIMED_OUT and message.partition() is None
            return
        kind, timestamp_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            # The topic stamps its records itself, and the service counts from that.
            self.timestamp_ms = timestamp_ms
        offset = message.offset()
        self.offset = -1 if offset is None else offset
        partition = message.partition()
        self.partition = 0 if partition is None else partition


class PendingMessage(Pending[Receipt]):
    """A message on its way.

    Args:
        intake: where it goes.
        record: what it is.
        timestamp_ms: the record's.
    """

    __slots__ = ("_intake", "_record")

    def __init__(self, intake: Intake, record: IntakeRecord, timestamp_ms: int) -> None:
        super().__init__(intake.topic, timestamp_ms)
        self._intake = intake
        self._record = record

    @property
    def id(self) -> str:
        """The message's `tarry-id`, known before any receipt."""
        return self._record.id

    def _receipt(self) -> Receipt:
        due_ms = self._record.due_ms(self.timestamp_ms, self._intake.tick_ms)
        return Receipt(
            id=self._record.id,
            handle=Handle(self._intake.topic, self.partition, due_ms, self._record.id),
            due=_EPOCH + timedelta(milliseconds=due_ms),
            offset=self.offset,
        )


class PendingCancel(Pending[CancelReceipt]):
    """A cancel on its way.

    Args:
        handle: what it cancels.
        timestamp_ms: the record's.
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle, timestamp_ms: int) -> None:
        super().__init__(handle.topic, timestamp_ms)
        self._handle = handle

    def _receipt(self) -> CancelReceipt:
        return CancelReceipt(self._handle, self.offset)


def refusal(error: KafkaError, topic: str) -> BrokerError:
    """Kafka's refusal of one record; the producer lives on, unless the error says otherwise."""
    doing = f"send to {topic}"
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return RetriableError(f"could not {doing}: not acknowledged in time; it may or may not be there", error.name())
    if error.name() in PASSING and not error.fatal():
        return RetriableError(f"could not {doing}: {error.str()}; it may or may not be there", error.name())
    refused = translate(error, doing)
    # What is refused because the producer was lost before does not call itself fatal.
    is_lost = error.fatal() or error.code() == KafkaError._FATAL
    return refused if is_lost or isinstance(refused, RetriableError) else BrokerError(str(refused), refused.code)
