"""The delayed producer: sends messages that arrive later.

It writes records with the request headers to an intake, as any producer could, and takes care of what is easily
forgotten: idempotent, acknowledged by all replicas, one request in flight so that a retry never overtakes, Java's
partitioner so that a key has one partition whoever sends it, and a timestamp of its own, so that the due time is known
as soon as the broker has acknowledged.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import Self
from uuid import UUID

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from tarry.client.receipt import CancelReceipt, DelayedMessage, MessageHeaders, Receipt
from tarry.client.record import IntakeRecord, to_record
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, ConfigError, FatalError, HeaderError, RetriableError
from tarry.handle import Handle
from tarry.headers import CANCEL, is_legal_topic
from tarry.kafka.errors import error_of, translate
from tarry.kafka.settings import Cluster
from tarry.units import shown

#: Messages that `send_many` has sent and not yet seen acknowledged, at most.
_WINDOW = 10_000
#: Reports are served as they come; this bounds the wait only where none comes.
_POLL_S = 0.1
#: librdkafka's number for: let the partitioner decide.
_BY_KEY = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_OPTIONS: Mapping[str, str | int | float | bool] = MappingProxyType({})

# What the promises rest on.
_PROMISED = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
    "partitioner": "murmur2_random",
    # A misspelt intake must not become a topic.
    "allow.auto.create.topics": False,
}
_OTHER_NAMES = (
    "bootstrap.servers",
    "delivery.timeout.ms",
    "max.in.flight",
    "request.required.acks",
    "transactional.id",
)


class _Pending:
    """A message that was sent; its report comes from librdkafka while somebody polls."""

    __slots__ = ("error", "offset", "partition", "record", "timestamp_ms")

    def __init__(self, record: IntakeRecord, timestamp_ms: int) -> None:
        self.record = record
        self.timestamp_ms = timestamp_ms
        self.error: KafkaError | None = None
        self.partition = -1
        self.offset = -1

    @property
    def is_reported(self) -> bool:
        return self.partition >= 0 or self.error is not None

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.error = error
            return
        kind, timestamp_ms = message.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            # The topic stamps its records itself, and the service counts from that.
            self.timestamp_ms = timestamp_ms
        offset = message.offset()
        self.offset = -1 if offset is None else offset
        partition = message.partition()
        self.partition = 0 if partition is None else partition


class DelayedProducer:
    """Sends messages that are delivered to their targets later.

    A context manager; its exit waits for what is still on its way. For one thread at a time.

    Example:
        with DelayedProducer("localhost:9092") as producer:
            receipt = producer.send("orders", b"...", key=b"order-17", delay=timedelta(minutes=15))

    Args:
        bootstrap_servers: Kafka's, `HOST:PORT`, several with commas.
        intake: the topic of an intake whose delay is given by headers.
        options: librdkafka's properties, for security and the like.
        tick_ms: the service's `wheel.tick_ms`: handles name due times rounded up to it.
        timeout_s: how long an acknowledgement is waited for.
        clock: for the records' timestamps.

    Raises:
        HeaderError: the intake's name is no topic name.
        ConfigError: an option would break a promise, or librdkafka does not know it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        intake: str = "tarry.delayed",
        options: Mapping[str, str | int | float | bool] | None = None,
        *,
        tick_ms: int = 1,
        timeout_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        if not is_legal_topic(intake):
            raise HeaderError(f"intake: not a legal topic name: {shown(intake)}")
        if tick_ms < 1:
            raise ConfigError(f"tick_ms: at least 1: {tick_ms}")
        options = options or _NO_OPTIONS
        for name in options:
            if name in _PROMISED or name in _OTHER_NAMES:
                raise ConfigError(f"options: {name} may not be set: its value is part of what is promised")
        properties = {
            "linger.ms": 1,
            "topic.metadata.propagation.max.ms": 5_000,
            "queue.buffering.max.messages": 2 * _WINDOW,
            **Cluster(bootstrap_servers, options).client(),
            **_PROMISED,
            "message.timeout.ms": max(1, int(timeout_s * 1_000)),
        }
        try:
            self._producer: Producer | None = Producer(properties)
        except KafkaException as exception:
            raise ConfigError(f"options: {error_of(exception).str()}") from exception
        self._intake = intake
        self._tick_ms = tick_ms
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()

    def send(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as the header is called
        headers: MessageHeaders | None = None,
    ) -> Receipt:
        """Send one message, and wait until the broker has it.

        Args:
            target: the topic to deliver to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: the key, likewise; messages of one key and target keep their order.
            delay: how long from now, rounded up to milliseconds; exactly one of this and `at`.
            at: when, a datetime with its zone; one that has passed is delivered at once.
            id: the message's UUID; None: a random one. What may or may not have been sent is best sent again with
                the same id, key and `at`, so that the service or a reader can tell the duplicate.
            headers: the application's own, which travel untouched.

        Returns:
            The receipt, with the handle.

        Raises:
            HeaderError: it could never be delivered: a negative delay, a naive datetime, and so on.
            RetriableError: not acknowledged in time: it may or may not have been sent.
            BrokerError: Kafka refused it.
        """
        pending = self._produce(DelayedMessage(target, value, key, delay, at, id, headers))
        return self._receipt(pending)

    def send_many(self, messages: Iterable[DelayedMessage]) -> Iterator[Receipt]:
        """Send messages without waiting for each.

        Nothing is sent before the first receipt is asked for. An exception from `messages`, or for one that can't
        be sent, comes after the receipts of all that were sent before it. Where Kafka refuses a message, the
        exception comes in its place, and those behind it may have been sent.

        Args:
            messages: read as receipts are taken, some thousand ahead.

        Yields:
            Receipts in the order of the messages, each when it is there.

        Raises:
            HeaderError: as `send`.
            BrokerError: as `send`.
        """
        waiting: deque[_Pending] = deque()
        remaining = iter(messages)
        while True:
            try:
                message = next(remaining, None)
                if message is None:
                    break
                waiting.append(self._produce(message))
            except Exception:
                while waiting:
                    yield self._receipt(waiting.popleft())
                raise
            self._poll(0)
            while waiting and (waiting[0].is_reported or len(waiting) >= _WINDOW):
                yield self._receipt(waiting.popleft())
        while waiting:
            yield self._receipt(waiting.popleft())

    def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Ask for a message to be cancelled, and wait until the broker has that.

        The service decides: it is cancelled if it has not fired. `OutcomeReader.of_cancel` waits for the answer, which
        comes at once or, where the message is still beyond the hot window, shortly before it is due.

        Args:
            handle: from the message's receipt; of any intake.

        Raises:
            HeaderError: it is no handle.
            RetriableError: not acknowledged in time: it may or may not have been sent.
            BrokerError: Kafka refused it.
        """
        parsed = Handle.parse(str(handle))
        record = IntakeRecord(None, None, [(CANCEL, str(parsed).encode())], parsed.id, None, parsed.due_ms)
        pending = self._hand_over(record, parsed.topic, parsed.partition)
        self._await(pending, parsed.topic)
        return CancelReceipt(parsed, pending.offset)

    def close(self) -> None:
        """Wait for what is still on its way, and end. A second call does nothing.

        Raises:
            RetriableError: some of it was not acknowledged in time.
        """
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # The message time-out ends every wait; the second more lets the reports of that come in.
        unacknowledged = producer.flush(self._timeout_s + 1.0)
        if unacknowledged:
            raise RetriableError(f"{unacknowledged} messages to {self._intake} were not acknowledged")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _produce(self, message: DelayedMessage) -> _Pending:
        """Hand a message to librdkafka."""
        return self._hand_over(to_record(message, self._clock.now_ms()), self._intake)

    def _hand_over(self, record: IntakeRecord, topic: str, partition: int = _BY_KEY) -> _Pending:
        """Hand a record to librdkafka, waiting while its queue is full."""
        timestamp_ms = self._clock.now_ms()
        pending = _Pending(record, timestamp_ms)
        while True:
            try:
                self._open_producer().produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=pending.report,
                    timestamp=timestamp_ms,
                    headers=list(record.headers),
                )
            except BufferError:
                self._poll(_POLL_S)
            except KafkaException as exception:
                raise self._refusal(error_of(exception), topic) from exception
            else:
                return pending

    def _receipt(self, pending: _Pending) -> Receipt:
        """Wait for a message's report."""
        self._await(pending, self._intake)
        due_ms = pending.record.due_ms(pending.timestamp_ms, self._tick_ms)
        return Receipt(
            id=pending.record.id,
            handle=Handle(self._intake, pending.partition, due_ms, pending.record.id),
            due=_EPOCH + timedelta(milliseconds=due_ms),
            offset=pending.offset,
        )

    def _await(self, pending: _Pending, topic: str) -> None:
        while not pending.is_reported:
            self._poll(_POLL_S)
        if pending.error is not None:
            raise self._refusal(pending.error, topic)

    def _poll(self, timeout_s: float) -> None:
        self._open_producer().poll(timeout_s)

    def _open_producer(self) -> Producer:
        if self._producer is None:
            raise FatalError("the producer is closed")
        return self._producer

    def _refusal(self, error: KafkaError, topic: str) -> BrokerError:
        """Kafka's refusal of one message; the producer lives on, unless the error says otherwise."""
        doing = f"send to {topic}"
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return RetriableError(
                f"could not {doing}: not acknowledged within {self._timeout_s:g} s; it may or may not be there",
                error.name(),
            )
        refusal = translate(error, doing)
        return (
            refusal if error.fatal() or isinstance(refusal, RetriableError) else BrokerError(str(refusal), refusal.code)
        )
