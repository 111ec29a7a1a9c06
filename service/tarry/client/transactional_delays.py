"""Delayed messages in Kafka transactions of the application's own.

What the application writes, the offsets it has read, and the messages that are to arrive later become visible together,
or not at all.
"""

from datetime import datetime, timedelta
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from tarry.client.forking import keep_in_children
from tarry.client.pending import Intake, PendingCancel, PendingMessage, refusal
from tarry.client.receipt import DelayedMessage, MessageHeaders
from tarry.client.sending import Sender, by_partitioner, with_room
from tarry.clock import Clock, SystemClock
from tarry.handle import Handle
from tarry.kafka.errors import error_of
from tarry.kafka.murmur2 import partition_of

_METADATA_WITHIN_S = 30.0


class TransactionalDelays:
    """Puts delayed messages into the open transaction of a producer, which stays the application's.

    For any thread, as the producer is. It begins, commits, aborts and closes nothing. The partition of a key is chosen
    here, as Java's clients choose it, whatever partitioner the producer has.

    Example:
        producer.begin_transaction()
        pending = messages.send("orders", b"...", key=b"order-17", delay=timedelta(minutes=15))
        producer.commit_transaction()
        handle = pending.receipt().handle

    Args:
        producer: the application's, transactional.
        intake: the topic of an intake whose delay is given by headers.
        tick_ms: the service's `wheel.tick_ms`: handles name due times rounded up to it.
        clock: for the records' timestamps.

    Raises:
        HeaderError: the intake's name is no topic name.
        ConfigError: the tick has no length.
    """

    def __init__(
        self, producer: Producer, intake: str = "tarry.delayed", *, tick_ms: int = 1, clock: Clock | None = None
    ) -> None:
        self._producer = producer
        self._intake = intake
        self._partitions = 0
        keep_in_children(self)
        self._sender = Sender(producer, Intake(intake, tick_ms), clock or SystemClock(), self._partition_of)

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
        partition: int | None = None,
    ) -> PendingMessage:
        """Add a message to the transaction; it waits only while the producer's queue is full, and serves its reports.

        The first message with a key asks the broker for the intake's number of partitions.

        Args:
            target: the topic to deliver to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: the key, likewise.
            delay: how long from now, not from the commit; exactly one of this and `at`.
            at: when, a datetime with its zone.
            id: the message's UUID; None: a random one.
            headers: the application's own, which travel untouched.
            partition: of the target, to deliver to; None: by the key.

        Returns:
            What has its `receipt()` when the transaction is committed.

        Raises:
            HeaderError: it could never be delivered; the transaction is as it was.
            BrokerError: the producer refuses it, because no transaction is open for instance.
        """
        message = DelayedMessage(target, value, key, delay, at, id, headers, partition)
        return with_room(self._producer, lambda: self._sender.send(message))

    def clients(self) -> list[object]:
        """The producer, which a forked process inherits."""
        return [self._producer]

    def cancel(self, handle: Handle | str) -> PendingCancel:
        """Add a cancel to the transaction; together with a `send` that is a re-scheduling.

        Raises:
            HeaderError: it is no handle, or one of another intake; the transaction is as it was.
            BrokerError: as `send`.
        """
        return with_room(self._producer, lambda: self._sender.cancel(handle))

    def _partition_of(self, key: bytes | None) -> int:
        if key is None:
            return by_partitioner(key)
        if not self._partitions:
            self._partitions = self._count_partitions()
        return partition_of(key, self._partitions)

    def _count_partitions(self) -> int:
        try:
            found = self._producer.list_topics(self._intake, _METADATA_WITHIN_S).topics[self._intake]
        except KafkaException as exception:
            raise refusal(error_of(exception), self._intake) from exception
        if found.error is not None:
            raise refusal(found.error, self._intake)
        return len(found.partitions)
