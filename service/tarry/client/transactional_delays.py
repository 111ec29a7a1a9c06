"""Delayed messages in the application's own Kafka transactions.

The application's records, its consumer offsets and the delayed messages become visible together, or not at all.
"""

from datetime import datetime, timedelta
from uuid import UUID

from confluent_kafka import KafkaException, Producer

from tarry.client.forking import keep_in_children
from tarry.client.pending import (
    IntakeTopic,
    PendingCancel,
    PendingMessage,
    PendingNameCancel,
    PendingSchedule,
    refusal,
)
from tarry.client.receipt import DelayedMessage, MessageHeaders, OnlyIf, RepeatedMessage
from tarry.client.sending import Sender, by_partitioner, with_room
from tarry.clock import Clock, SystemClock
from tarry.core.murmur2 import partition_of
from tarry.handle import Handle
from tarry.kafka.errors import error_of

_METADATA_WITHIN_S = 30.0
"""How long to wait for the intake's metadata, in seconds."""


class TransactionalDelays:
    """Adds delayed messages and cancels to the open transaction of the application's producer.

    Thread-safe, as the producer is. The application keeps control of the producer: this class never begins, commits or
    aborts a transaction, and never closes the producer. It chooses the partition of a key itself, with the Java
    clients' partitioner (murmur2), whatever partitioner the producer has.

    Example:
        delays = TransactionalDelays(producer)
        producer.begin_transaction()
        pending = delays.send("orders", b"...", key=b"order-17", delay=timedelta(minutes=15))
        producer.commit_transaction()
        handle = pending.receipt().handle

    Args:
        producer: the application's transactional producer.
        intake: the topic of an intake without a fixed delay and without a dialect.
        tick_ms: the service's `wheel.tick_ms`; the due times in handles are rounded up to it.
        clock: gives the timestamps of the records.

    Raises:
        HeaderError: `intake` is not a legal topic name.
        ConfigError: `tick_ms` is not a whole number of at least 1.
    """

    def __init__(
        self, producer: Producer, intake: str = "tarry.delayed", *, tick_ms: int = 1, clock: Clock | None = None
    ) -> None:
        self._producer = producer
        self._intake = intake
        self._partitions = 0
        keep_in_children(self)
        self._sender = Sender(producer, IntakeTopic(intake, tick_ms), clock or SystemClock(), self._partition_of)

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
        name: str | bytes | None = None,
        only_if: OnlyIf | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> PendingMessage:
        """Add a message to the open transaction.

        The call blocks only while the producer's queue is full; it serves delivery reports meanwhile. The first message
        with a key asks the brokers for the number of the intake's partitions.

        Args:
            target: the topic to deliver to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: encoded like `value`.
            delay: how long from now, not from the commit. Give either `delay` or `at`.
            at: the due time, a datetime with a time zone.
            id: the message's UUID; None: a random one.
            headers: the application's own headers, which are delivered unchanged.
            partition: the partition of the target; None: chosen by the key.
            name: 1 to 255 bytes of UTF-8. At most one message of a key and a name waits at a time: this one replaces
                the one that waits, which is never delivered then.
            only_if: "absent": skip this message if one of its name waits; "present": if none does.
            expires_at: the latest time of a delivery, a datetime with a time zone; after it, the message becomes a dead
                letter (`expired`).
            window: the message is due later than `delay` or `at` by less than this; see `DelayedProducer.send`.

        Returns:
            A pending message; call its `receipt()` after the commit.

        Raises:
            HeaderError: the message could never be delivered; the transaction is unchanged.
            BrokerError: the producer refuses the message, for example because no transaction is open.
        """
        message = DelayedMessage(
            target, value, key, delay, at, id, headers, partition, name, only_if, expires_at, window
        )
        return with_room(self._producer, lambda: self._sender.send(message))

    def repeat(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes,
        *,
        name: str | bytes,
        every: timedelta | None = None,
        cron: str | None = None,
        zone: str | None = None,
        first: datetime | None = None,
        only_if: OnlyIf | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as the header is called
        headers: MessageHeaders | None = None,
        partition: int | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> PendingSchedule:
        """Add a schedule to the open transaction: a message that is delivered again and again.

        Args:
            target: the topic to deliver to.
            value: the payload of each occurrence; text is sent as UTF-8, None as Kafka's null.
            key: encoded like `value`; it must not be None.
            name: 1 to 255 bytes of UTF-8. At most one message of a key and a name waits at a time: this schedule
                replaces the one that waits, be it a schedule or a single message.
            every: the interval, whole milliseconds, at least a second. Give either `every` or `cron`.
            cron: five fields (minute, hour, day, month, weekday), such as "0 9 * * MON-FRI".
            zone: the zone of `cron`, such as "Europe/Berlin"; None: UTC.
            first: the time from which `every` counts, a datetime with a time zone; None: the epoch, so that a schedule
                that is sent again is due at the same times.
            only_if: "absent": skip this schedule if a message of its name waits; "present": if none does.
            id: the schedule's UUID; None: a random one. After a `RetriableError`, send again with the same id.
            headers: the application's own headers, which are delivered unchanged with each occurrence.
            partition: the partition of the target; None: chosen by the key.
            expires_at: the end of the schedule, a datetime with a time zone: an occurrence that would be later becomes
                a dead letter (`expired`).
            window: each occurrence is due later by the same part of this window, which follows from the schedule's id.

        Returns:
            A pending schedule; call its `receipt()` after the commit.

        Raises:
            HeaderError: the schedule could never be accepted; the transaction is unchanged.
            BrokerError: as `send`.
        """
        message = RepeatedMessage(
            target, value, key, name, every, cron, zone, first, only_if, id, headers, partition, expires_at, window
        )
        return with_room(self._producer, lambda: self._sender.repeat(message))

    def clients(self) -> list[object]:
        """Return the producer, which a forked process inherits."""
        return [self._producer]

    def cancel(self, handle: Handle | str) -> PendingCancel:
        """Add a cancel to the open transaction; a cancel and a `send` in one transaction reschedule a message.

        Returns:
            A pending cancel; call its `receipt()` after the commit.

        Raises:
            HeaderError: the text is not a handle, or it belongs to another intake; the transaction is unchanged.
            BrokerError: as `send`.
        """
        return with_room(self._producer, lambda: self._sender.cancel(handle))

    def cancel_named(self, key: str | bytes, name: str | bytes) -> PendingNameCancel:
        """Add a cancel of the message that waits under a name of a key to the open transaction.

        Returns:
            A pending cancel; call its `receipt()` after the commit.

        Raises:
            HeaderError: the name is empty or longer than 255 bytes, or the key is None; the transaction is unchanged.
            BrokerError: as `send`.
        """
        return with_room(self._producer, lambda: self._sender.cancel_named(key, name))

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
