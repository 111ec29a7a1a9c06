"""The delayed producer: sends messages that the service delivers later.

It writes records with the request headers to an intake, as any Kafka producer can, with the settings that exactly-once
delivery needs (see `tarry.client.connection`).
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID

from tarry.client.closing import Closing
from tarry.client.connection import REPORTS_WITHIN_S, WINDOW, Connection, ProducerSettings
from tarry.client.forking import CreatingProcess, close_before_forks
from tarry.client.pending import MAYBE_WRITTEN, IntakeTopic, Pending, ReceiptT
from tarry.client.receipt import (
    CancelReceipt,
    DelayedMessage,
    MessageHeaders,
    NameCancelReceipt,
    OnlyIf,
    Receipt,
    RepeatedMessage,
    RescheduleReceipt,
    ScheduleReceipt,
)
from tarry.client.sending import POLL_S, Wait, serve_reports, with_room
from tarry.clock import Clock
from tarry.errors import FatalError, RetriableError, UsageError
from tarry.handle import Handle
from tarry.kafka.settings import Options


class DelayedProducer(Closing):
    """Sends messages that the service delivers to their targets later.

    A context manager: its exit waits until all sent messages are acknowledged. Not thread-safe: only one thread may
    call it at a time. A forked process opens its own connection at its first call; messages in flight stay with the
    parent process.

    Example:
        with DelayedProducer("localhost:9092") as producer:
            receipt = producer.send("orders", b"...", key=b"order-17", delay=timedelta(minutes=15))

    Args:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        intake: the topic of an intake without a fixed delay and without a dialect.
        options: librdkafka properties, for example for security.
        tick_ms: the service's `wheel.tick_ms`; the due times in handles are rounded up to it.
        timeout_s: how long to wait for an acknowledgement, in seconds.
        transactional_id: for `reschedule`; must be unique to this producer. With an id that stays the same over
            restarts, the next `reschedule` aborts a transaction that a killed process left open; otherwise the
            transaction stays open for half a minute. None: a random id.
        clock: gives the timestamps of the records.

    Raises:
        HeaderError: `intake` is not a legal topic name.
        ConfigError: an option would break a guarantee, or librdkafka does not know it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        intake: str = "tarry.delayed",
        options: Options | None = None,
        *,
        tick_ms: int = 1,
        timeout_s: float = 30.0,
        transactional_id: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = ProducerSettings(
            bootstrap_servers, IntakeTopic(intake, tick_ms), options, timeout_s, transactional_id, clock
        )
        self._connection: Connection | None = Connection(self._settings)
        self._is_closed = False
        self._origin = CreatingProcess()
        close_before_forks(self._close_unused)

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
    ) -> Receipt:
        """Send one message, and wait until the brokers have acknowledged it.

        Args:
            target: the topic to deliver to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: encoded like `value`; messages of one key and target keep their order.
            delay: how long from now, rounded up to milliseconds. Give either `delay` or `at`.
            at: the due time, a datetime with a time zone; the service delivers a message with a past time at once.
            id: the message's UUID; None: a random one. After a `RetriableError`, send again with the same id, key and
                `at` (and `window`), so that the service or a reader can recognise the duplicate.
            headers: the application's own headers, which are delivered unchanged.
            partition: the partition of the target; None: chosen by the key.
            name: 1 to 255 bytes of UTF-8. At most one message of a key and a name waits at a time: this one replaces
                the one that waits, which is never delivered then.
            only_if: "absent": skip this message if one of its name waits; "present": if none does.
            expires_at: the latest time of a delivery, a datetime with a time zone; after it, the message becomes a dead
                letter (`expired`).
            window: the message is due later than `delay` or `at` by less than this. The part of the window follows from
                the id, so it is in the receipt's due time.

        Returns:
            The receipt, with the message's handle.

        Raises:
            HeaderError: the message could never be delivered: a negative delay or a naive datetime, for example.
            RetriableError: no acknowledgement in time; the message may or may not have been sent.
            BrokerError: Kafka refused the message.
        """
        message = DelayedMessage(
            target, value, key, delay, at, id, headers, partition, name, only_if, expires_at, window
        )
        wait = self._wait()
        return self._receipt(self._hand_over(message, wait), wait)

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
    ) -> ScheduleReceipt:
        """Begin a schedule, a message that is delivered again and again; wait until the brokers have acknowledged it.

        An occurrence has the schedule's key, value and headers. The service delivers one after the other. If one is
        late, the occurrences that became due meanwhile are left out. `cancel_named(key, name)` ends the schedule, and
        so does a message or schedule that replaces it.

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
            The receipt. `OutcomeReader.await_outcome` of it waits for the end of the schedule.

        Raises:
            HeaderError: the schedule could never be accepted: it has neither `every` nor `cron`, for example.
            RetriableError: no acknowledgement in time; the schedule may or may not have been sent.
            BrokerError: Kafka refused the record.
        """
        message = RepeatedMessage(
            target, value, key, name, every, cron, zone, first, only_if, id, headers, partition, expires_at, window
        )
        wait = self._wait()
        return self._receipt(self._hand_over(message, wait), wait)

    @overload
    def send_many(self, messages: Iterable[DelayedMessage]) -> Iterator[Receipt]: ...

    @overload
    def send_many(self, messages: Iterable[RepeatedMessage]) -> Iterator[ScheduleReceipt]: ...

    @overload
    def send_many(
        self, messages: Iterable[DelayedMessage | RepeatedMessage]
    ) -> Iterator[Receipt | ScheduleReceipt]: ...

    def send_many(self, messages: Iterable[DelayedMessage | RepeatedMessage]) -> Iterator[Any]:
        """Send messages, and schedules, without waiting for each acknowledgement.

        The iterator is lazy: it sends nothing before the caller asks for the first receipt. If `messages` raises, or a
        message cannot be sent, the iterator first yields the receipts of all earlier messages, then raises. If Kafka
        refuses a message, the exception replaces its receipt; later messages may have been sent.

        Args:
            messages: consumed while receipts are taken, several thousand messages ahead.

        Yields:
            One receipt for each message, in the order of the messages, when it is acknowledged.

        Raises:
            HeaderError: as `send`.
            BrokerError: as `send`.
        """
        waiting: deque[Pending[Any]] = deque()
        remaining = iter(messages)
        while True:
            try:
                try:
                    message = next(remaining)
                except StopIteration:
                    break
                waiting.append(self._hand_over(message, self._wait()))
            except Exception:
                while waiting:
                    yield self._receipt(waiting.popleft())
                raise
            with suppress(FatalError):  # the next message raises it, after the receipts of the acknowledged ones
                self._serve_reports(0)
            while waiting and (waiting[0].is_reported or len(waiting) >= WINDOW):
                yield self._receipt(waiting.popleft())
        while waiting:
            yield self._receipt(waiting.popleft())

    def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Send a cancel for a message, and wait until the brokers have acknowledged it.

        The service decides: it cancels the message if the message has not fired. `OutcomeReader.of_cancel` waits for
        the outcome. The service writes it at once or, if the message is not due soon (within 5 to 25 s by default),
        shortly before the message is due.

        Args:
            handle: from the message's receipt; it must belong to this producer's intake.

        Raises:
            HeaderError: the text is not a handle, it belongs to another intake, or it is that of a schedule, which
                `cancel_named` cancels.
            RetriableError: no acknowledgement in time; the cancel may or may not have been sent.
            BrokerError: Kafka refused the cancel.
        """
        wait = self._wait()
        connection = self._open()
        return self._receipt(with_room(connection.producer, lambda: connection.sender.cancel(handle), wait), wait)

    def cancel_named(self, key: str | bytes, name: str | bytes) -> NameCancelReceipt:
        """Cancel the message that waits under a name of a key, and wait until the brokers have acknowledged the cancel.

        The service decides when it reads the cancel, at once and finally: `OutcomeReader.await_outcome` of the receipt
        returns `cancelled`, or `cancel-too-late` if no message of the name waited.

        Args:
            key: the key of the message.
            name: its name.

        Raises:
            HeaderError: the name is empty or longer than 255 bytes, or the key is None.
            RetriableError: no acknowledgement in time; the cancel may or may not have been sent.
            BrokerError: Kafka refused the cancel.
        """
        wait = self._wait()
        sender, producer = self._open().sender, self._open().producer
        return self._receipt(with_room(producer, lambda: sender.cancel_named(key, name), wait), wait)

    def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, in one transaction, and wait until it is committed.

        The service decides whether the cancel came in time, as for `cancel`. If it came too late, the service delivers
        both messages, and `OutcomeReader.of_cancel` of the receipt's `cancel` yields `cancel-too-late`.

        Args:
            handle: the message to cancel, in this producer's intake.
            message: the message to send to this producer's intake. It may have the id of the cancelled message, for
                readers that deduplicate by id, but then needs another due time.

        Raises:
            HeaderError: the text is not a handle, or it belongs to another intake; or the new message could never be
                delivered.
            RetriableError: the time is over. If it is `may_be_done`, nobody knows whether the messages were sent;
                otherwise nothing was sent.
            FatalError: another producer has taken the transactional id.
            ConfigError: an option does not work with transactions.
            UsageError: this process was forked from the one that made the producer, with an explicit
                `transactional_id`.
            BrokerError: Kafka refused; nothing was sent.
        """
        connection = self._open()
        if self._settings.transactional_id is not None and self._origin.is_forked:
            raise UsageError("the transactional_id belongs to the parent process: create a producer in this one")
        return connection.rescheduler.reschedule(handle, message)

    def close(self) -> None:
        """Wait until all sent messages are acknowledged, then close. A second call does nothing.

        Raises:
            RetriableError: some messages were not acknowledged in time.
        """
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None and not connection.origin.is_forked:
            connection.close()

    def _close_unused(self) -> None:
        """Before a fork: close the connection if it was never used; the next call opens a new one."""
        connection = self._connection
        if connection is not None and not connection.origin.is_forked and connection.is_unused:
            self._connection = None
            connection.producer.close()

    @overload
    def _hand_over(self, message: DelayedMessage, wait: Wait) -> Pending[Receipt]: ...

    @overload
    def _hand_over(self, message: RepeatedMessage, wait: Wait) -> Pending[ScheduleReceipt]: ...

    def _hand_over(self, message: DelayedMessage | RepeatedMessage, wait: Wait) -> Pending[Any]:
        connection = self._open()
        producer, sender = connection.producer, connection.sender
        if isinstance(message, RepeatedMessage):
            return with_room(producer, lambda: sender.repeat(message), wait)
        return with_room(producer, lambda: sender.send(message), wait)

    def _receipt(self, pending: Pending[ReceiptT], wait: Wait | None = None) -> ReceiptT:
        """Wait for a record's delivery report within `wait`, by default the limit of a call."""
        while not pending.is_reported:
            wait = wait or self._wait()
            if wait.is_over:
                to = self._settings.intake.topic
                raise RetriableError(
                    f"could not send to {to}: no delivery report in time; {MAYBE_WRITTEN}", may_be_done=True
                )
            try:
                self._serve_reports(POLL_S)
            except FatalError:
                if not pending.is_reported:
                    raise
        return pending.receipt()

    def _serve_reports(self, timeout_s: float) -> None:
        serve_reports(self._open().producer, timeout_s)

    def _wait(self) -> Wait:
        """Return the limit of one call: librdkafka reports a timed-out message up to two seconds late."""
        return Wait(self._open().timeout_s + REPORTS_WITHIN_S)

    def _open(self) -> Connection:
        """Return the connection; open a new one in a forked process."""
        if self._is_closed:
            raise FatalError("the producer is closed")
        if self._connection is None or self._connection.origin.is_forked:
            self._connection = Connection(self._settings)
        return self._connection
