"""The delayed producer for asyncio.

It does not use `confluent_kafka.aio`, whose producer refuses headers (2.16) and batches messages for up to a second.
Here each message goes to librdkafka at once, which batches by itself. One thread serves the delivery reports of all
messages and wakes the event loop once for all reports that have arrived. A second thread, started by the first
`reschedule`, waits for transactions.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from threading import Thread
from typing import Any
from uuid import UUID

from tarry.client.closing import AsyncClosing
from tarry.client.connection import REPORTS_WITHIN_S, Connection, ProducerSettings
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
from tarry.client.sending import is_empty, serve_reports
from tarry.clock import Clock
from tarry.errors import BrokerError, FatalError, RetriableError, UsageError
from tarry.handle import Handle
from tarry.kafka.settings import Options


class AsyncDelayedProducer(AsyncClosing):
    """Sends messages that the service delivers to their targets later; any number of sends may run concurrently.

    An asynchronous context manager: its exit waits until all sent messages are acknowledged. All its callers must be
    tasks of one event loop. Messages go out in the order in which their `send` began to run; tasks begin to run in the
    order in which they were created. So messages of one key keep their order even when the caller does not await the
    first before it sends the second. When the producer's queue is full, `send` waits for its turn.

    In a forked process it raises `UsageError`: create a new one there.

    If a task is cancelled while it waits in `send`, `cancel` or `reschedule`, the record may be sent nevertheless.

    Example:
        async with AsyncDelayedProducer("localhost:9092") as producer:
            receipts = await asyncio.gather(
                *(producer.send("orders", order, delay=timedelta(minutes=15)) for order in orders)
            )

    Args:
        bootstrap_servers: this and the other arguments are those of `DelayedProducer`.
        intake: the topic of an intake without a fixed delay and without a dialect.
        options: librdkafka properties.
        tick_ms: the service's `wheel.tick_ms`.
        timeout_s: how long to wait for an acknowledgement, in seconds.
        transactional_id: for `reschedule`.
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
        self._reported: deque[Pending[Any]] = deque()
        settings = ProducerSettings(
            bootstrap_servers, IntakeTopic(intake, tick_ms), options, timeout_s, transactional_id, clock
        )
        self._connection = Connection(settings, self._reported.append)
        self._transactions = ThreadPoolExecutor(1, "tarry-transactions")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Pending[Any], asyncio.Future[None]] = {}
        self._turn = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._is_closed = False
        self._unreached: BrokerError | None = None
        """Why the queued records were purged: the cluster could not be reached. None: it never happened."""
        self._given_up: set[Pending[Any]] = set()
        """The records that were handed over before the purge and have no delivery report yet."""
        self._is_refusing = False
        """Whether the cluster could not be reached and the event loop has not purged the queued records yet."""
        self._end: asyncio.Future[None] | None = None

    async def send(
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
        """Send one message, and wait until the brokers have acknowledged it, as `DelayedProducer.send`."""
        message = DelayedMessage(
            target, value, key, delay, at, id, headers, partition, name, only_if, expires_at, window
        )
        return await self._acknowledged(lambda: self._connection.sender.send(message))

    async def repeat(
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
        """Begin a schedule, and wait until the brokers have acknowledged it, as `DelayedProducer.repeat`."""
        message = RepeatedMessage(
            target, value, key, name, every, cron, zone, first, only_if, id, headers, partition, expires_at, window
        )
        return await self._acknowledged(lambda: self._connection.sender.repeat(message))

    async def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Send a cancel, and wait until the brokers have acknowledged it, as `DelayedProducer.cancel`."""
        return await self._acknowledged(lambda: self._connection.sender.cancel(handle))

    async def cancel_named(self, key: str | bytes, name: str | bytes) -> NameCancelReceipt:
        """Cancel the message that waits under a name of a key, as `DelayedProducer.cancel_named`."""
        return await self._acknowledged(lambda: self._connection.sender.cancel_named(key, name))

    async def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, in one transaction, as `DelayedProducer.reschedule`.

        Concurrent calls run one after the other: a producer has one transaction at a time.
        """
        return await self._live_loop().run_in_executor(self._transactions, self._reschedule, handle, message)

    async def close(self) -> None:
        """Wait until all sent messages are acknowledged, then close. Calls that still wait for their turn fail.

        Raises:
            RetriableError: some messages were not acknowledged in time.
        """
        self._is_closed = True
        if self._end is not None and not self._connection.origin.is_forked:
            await asyncio.shield(self._end)

    async def _acknowledged(self, hand_over: Callable[[], Pending[ReceiptT]]) -> ReceiptT:
        """Hand over a record when it is its turn, and wait for its delivery report."""
        async with self._turn:
            pending = await self._handed_over(hand_over)
            # Before any other task runs on the loop: the report may have arrived already.
            reported = self._waiting[pending] = self._live_loop().create_future()
        try:
            # librdkafka reports a timed-out message up to two seconds late.
            async with asyncio.timeout(self._connection.timeout_s + REPORTS_WITHIN_S):
                await reported
        except TimeoutError as error:
            self._waiting.pop(pending, None)
            raise RetriableError(
                f"could not send: no delivery report in time; {MAYBE_WRITTEN}", may_be_done=True
            ) from error
        return pending.receipt()

    async def _handed_over(self, hand_over: Callable[[], Pending[ReceiptT]]) -> Pending[ReceiptT]:
        was_empty = False
        while True:
            self._live_loop()
            try:
                return hand_over()
            except BufferError:
                was_empty = is_empty(self._connection.producer, was_empty=was_empty)
                if not was_empty:
                    self._has_room.clear()
                    await self._has_room.wait()

    def _reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        if self._is_closed:  # closed while the call waited for its turn
            raise FatalError("the producer is closed")
        return self._connection.rescheduler.reschedule(handle, message)

    def _live_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop; the first call starts the thread that serves delivery reports."""
        if self._is_closed:
            raise FatalError("the producer is closed")
        self._connection.origin.check("producer")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._end = loop.create_future()
            # A daemon: a program that forgets to close the producer must still end.
            Thread(target=self._serve, args=(loop,), name="tarry-reports", daemon=True).start()
        elif self._loop is not loop:
            raise UsageError("the producer belongs to another event loop: create one for each loop")
        return loop

    # -- in the thread that serves reports --------------------------------------------------------------------------

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve delivery reports until the producer is closed, then wait for the records in flight."""
        failure: BrokerError | None = None
        try:
            while not self._is_closed and not loop.is_closed():
                lost: FatalError | None = None
                try:
                    self._reach(loop)
                    serve_reports(self._connection.producer)
                except FatalError as error:
                    lost = error
                self._pass_on(loop)  # acknowledged records first
                if lost is not None:
                    _call(loop, partial(self._fail, lost))
            self._transactions.shutdown()
            self._connection.close()
        except BrokerError as error:
            failure = error
        finally:
            self._pass_on(loop)
            _call(loop, partial(self._finish, failure))

    def _reach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check that the cluster answers, once records wait; if it does not, fail their callers and send nothing.

        No delivery reports are served during the check. So it runs only when all purged records have their reports.
        """
        connection = self._connection
        is_busy = self._is_refusing or self._given_up
        if not connection.is_reached and not is_busy and len(connection.producer):
            try:
                connection.reach()
            except BrokerError as error:
                self._is_refusing = True
                _call(loop, partial(self._refuse, error))

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand all new delivery reports to the event loop, in one call."""
        if self._reported:
            batch = list(self._reported)
            self._reported.clear()
            _call(loop, partial(self._settle, batch))

    # -- on the event loop ------------------------------------------------------------------------------------------

    def _settle(self, batch: list[Pending[Any]]) -> None:
        for pending in batch:
            reported = self._waiting.pop(pending, None)
            unreached = self._unreached if self._is_unreached(pending) else None
            self._given_up.discard(pending)
            # The waiting task may have been cancelled, or the producer may have failed before this report arrived.
            if reported is None or reported.done():
                continue
            if unreached is not None:
                reported.set_exception(unreached)
            else:
                reported.set_result(None)
        self._has_room.set()

    def _is_unreached(self, pending: Pending[Any]) -> bool:
        """Whether a record was not sent because the cluster did not answer.

        librdkafka may have dropped the record before the purge did.
        """
        if pending.is_purged:
            return True
        is_missing = self._unreached is not None and self._unreached.code == "UNKNOWN_TOPIC_OR_PART"
        return pending in self._given_up and (pending.ran_out_unsent or (is_missing and pending.found_no_topic))

    def _refuse(self, error: BrokerError) -> None:
        """Purge the queued records: the cluster does not answer. Records sent meanwhile get their own reports."""
        if not self._connection.is_reached:
            self._unreached = error
            self._given_up = set(self._waiting)
            # On the event loop, where records are handed over: so the purge cannot hit the record of a later call.
            self._connection.producer.purge(in_flight=False, blocking=False)
        self._is_refusing = False

    def _fail(self, error: BrokerError) -> None:
        for reported in self._waiting.values():
            if not reported.done():
                reported.set_exception(error)
        self._waiting.clear()
        self._has_room.set()

    def _finish(self, failure: BrokerError | None) -> None:
        self._is_closed = True  # the reports thread has ended
        self._fail(failure or RetriableError("the producer was closed before this was acknowledged"))
        if self._end is not None and not self._end.done():
            if failure is None:
                self._end.set_result(None)
            else:
                self._end.set_exception(failure)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # A closed loop raises RuntimeError; it has no waiting tasks.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
