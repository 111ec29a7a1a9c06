"""The delayed producer: sends messages that arrive later.

It writes records with the request headers to an intake, as any producer could, and takes care of what is easily
forgotten: see `tarry.client.connection`.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self
from uuid import UUID

from tarry.client.connection import REPORTS_WITHIN_S, WINDOW, Connection, Options
from tarry.client.forking import Origin, close_before_forks
from tarry.client.pending import Pending, PendingMessage, ReceiptT
from tarry.client.receipt import CancelReceipt, DelayedMessage, MessageHeaders, Receipt, RescheduleReceipt
from tarry.client.sending import POLL_S, Wait, serve_reports, with_room
from tarry.clock import Clock
from tarry.errors import FatalError, RetriableError, UsageError
from tarry.handle import Handle


class DelayedProducer:
    """Sends messages that are delivered to their targets later.

    A context manager; its exit waits for what is still on its way. For one thread at a time. A process that is forked
    while there is one has a connection of its own, from its first call on; what is on its way stays with the parent.

    Example:
        with DelayedProducer("localhost:9092") as producer:
            receipt = producer.send("orders", b"...", key=b"order-17", delay=timedelta(minutes=15))

    Args:
        bootstrap_servers: Kafka's, `HOST:PORT`, several with commas.
        intake: the topic of an intake whose delay is given by headers.
        options: librdkafka's properties, for security and the like.
        tick_ms: the service's `wheel.tick_ms`: handles name due times rounded up to it.
        timeout_s: how long an acknowledgement is waited for.
        transactional_id: for `reschedule`, one producer's own; with one that a process keeps over its restarts, what
            it left open when it was killed ends with its next `reschedule`, not after half a minute. None: random.
        clock: for the records' timestamps.

    Raises:
        HeaderError: the intake's name is no topic name.
        ConfigError: an option would break a promise, or librdkafka does not know it.
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
        self._intake = intake
        self._has_id = transactional_id is not None
        self._connect = partial(
            Connection,
            bootstrap_servers,
            intake,
            options,
            tick_ms=tick_ms,
            timeout_s=timeout_s,
            transactional_id=transactional_id,
            clock=clock,
        )
        self._connection: Connection | None = self._connect()
        self._is_closed = False
        self._origin = Origin()
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
            partition: of the target, to deliver to; None: by the key.

        Returns:
            The receipt, with the handle.

        Raises:
            HeaderError: it could never be delivered: a negative delay, a naive datetime, and so on.
            RetriableError: not acknowledged in time: it may or may not have been sent.
            BrokerError: Kafka refused it.
        """
        message = DelayedMessage(target, value, key, delay, at, id, headers, partition)
        wait = self._wait()
        return self._receipt(self._hand_over(message, wait), wait)

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
        waiting: deque[PendingMessage] = deque()
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
            with suppress(FatalError):  # the next one raises it, behind the receipts that are there
                self._serve_reports(0)
            while waiting and (waiting[0].is_reported or len(waiting) >= WINDOW):
                yield self._receipt(waiting.popleft())
        while waiting:
            yield self._receipt(waiting.popleft())

    def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Ask for a message to be cancelled, and wait until the broker has that.

        The service decides: it is cancelled if it has not fired. `OutcomeReader.of_cancel` waits for the answer, which
        comes at once or, where the message is still beyond the hot window, shortly before it is due.

        Args:
            handle: from the message's receipt; of this producer's intake.

        Raises:
            HeaderError: it is no handle, or one of another intake.
            RetriableError: not acknowledged in time: it may or may not have been sent.
            BrokerError: Kafka refused it.
        """
        wait = self._wait()
        connection = self._open()
        return self._receipt(with_room(connection.producer, lambda: connection.sender.cancel(handle), wait), wait)

    def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, in one transaction, and wait until that is committed.

        The service decides whether the cancel came in time, as for `cancel`. If it did not, both are delivered:
        `OutcomeReader.of_cancel` of the receipt's `cancel` then says `cancel-too-late`.

        Args:
            handle: of the message that is to be cancelled, in this producer's intake.
            message: what to send, to this producer's intake. Its id may be the one of the cancelled message, for
                readers that deduplicate by it, with another due time.

        Raises:
            HeaderError: no handle, or one of another intake, or a message that could never be delivered.
            RetriableError: not in time: nothing was sent, or, as the text then says, it may be committed or not.
            FatalError: another producer took the transactional id.
            ConfigError: an option does not go with transactions.
            UsageError: this process was forked since, and the `transactional_id` is its parent's.
            BrokerError: Kafka refused it, and nothing was sent.
        """
        connection = self._open()
        if self._has_id and self._origin.is_elsewhere:
            raise UsageError("the transactional_id is that of the process that this one was forked from: make one here")
        return connection.rescheduler.reschedule(handle, message)

    def close(self) -> None:
        """Wait for what is still on its way, and end. A second call does nothing.

        Raises:
            RetriableError: some of it was not acknowledged in time.
        """
        self._is_closed = True
        connection, self._connection = self._connection, None
        if connection is not None and not connection.origin.is_elsewhere:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _close_unused(self) -> None:
        """Before a fork: close the connection where nothing was sent by it; the next call makes it again."""
        connection = self._connection
        if connection is not None and not connection.origin.is_elsewhere and connection.is_unused:
            self._connection = None
            connection.producer.close()

    def _hand_over(self, message: DelayedMessage, wait: Wait) -> PendingMessage:
        connection = self._open()
        return with_room(connection.producer, lambda: connection.sender.send(message), wait)

    def _receipt(self, pending: Pending[ReceiptT], wait: Wait | None = None) -> ReceiptT:
        """Wait for a record's report, if it is not there; so long, or as long as a call may take."""
        while not pending.is_reported:
            wait = wait or self._wait()
            if wait.is_over:
                raise RetriableError(f"could not send to {self._intake}: no report in time; it may or may not be there")
            try:
                self._serve_reports(POLL_S)
            except FatalError:
                if not pending.is_reported:
                    raise
        return pending.receipt()

    def _serve_reports(self, timeout_s: float) -> None:
        serve_reports(self._open().producer, timeout_s)

    def _wait(self) -> Wait:
        """The bound of a call: the library tells of a message whose time is over within a second or two."""
        return Wait(self._open().timeout_s + REPORTS_WITHIN_S)

    def _open(self) -> Connection:
        """The connection; in a process that was forked since, one of its own."""
        if self._is_closed:
            raise FatalError("the producer is closed")
        if self._connection is None or self._connection.origin.is_elsewhere:
            self._connection = self._connect()
        return self._connection
