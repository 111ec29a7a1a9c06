"""The delayed producer for asyncio.

`confluent_kafka.aio` is not used: its producer refuses headers (2.16), and gathers messages for up to a second. Here
each message goes to librdkafka at once, which gathers by itself. One thread serves the reports of all messages, and
wakes the event loop once for all that have come; one more, if anything is re-scheduled, waits for transactions.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from tarry.client.connection import REPORTS_WITHIN_S, Connection, Options
from tarry.client.pending import Pending, ReceiptT
from tarry.client.receipt import CancelReceipt, DelayedMessage, MessageHeaders, Receipt, RescheduleReceipt
from tarry.client.sending import is_empty, serve_reports
from tarry.clock import Clock
from tarry.errors import BrokerError, FatalError, RetriableError, UsageError
from tarry.handle import Handle


class AsyncDelayedProducer:
    """Sends messages that are delivered to their targets later, any number at once on one event loop.

    An asynchronous context manager; its exit waits for what is still on its way. For the tasks of one event loop.
    Messages go out in the order in which their `send` began to run, as tasks do in the order in which they were made;
    so messages of one key keep their order also where nobody waits for the first before sending the second. Where the
    producer's queue is full, `send` waits for its turn.

    In a process that is forked while there is one, it refuses: make one there.

    A `send`, `cancel` or `reschedule` that is cancelled while it waits for Kafka may have gone out all the same.

    Example:
        async with AsyncDelayedProducer("localhost:9092") as producer:
            receipts = await asyncio.gather(
                *(producer.send("orders", order, delay=timedelta(minutes=15)) for order in orders)
            )

    Args:
        bootstrap_servers: as of `DelayedProducer`, and so are the others.
        intake: where messages are sent.
        options: librdkafka's properties.
        tick_ms: the service's `wheel.tick_ms`.
        timeout_s: how long an acknowledgement is waited for.
        transactional_id: for `reschedule`.
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
        self._reported: deque[Pending[Any]] = deque()
        self._connection = Connection(
            bootstrap_servers,
            intake,
            options,
            tick_ms=tick_ms,
            timeout_s=timeout_s,
            transactional_id=transactional_id,
            clock=clock,
            on_report=self._reported.append,
        )
        self._transactions = ThreadPoolExecutor(1, "tarry-transactions")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Pending[Any], asyncio.Future[None]] = {}
        self._turn = asyncio.Lock()
        self._has_room = asyncio.Event()
        self._is_closed = False
        self._unreached: BrokerError | None = None
        """Why what was queued has been given up, where it was."""
        self._given_up: set[Pending[Any]] = set()
        """What was handed over before that, and has no report yet."""
        self._is_refusing = False
        """Whether nobody answered, and who waits has yet to be given up."""
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
    ) -> Receipt:
        """Send one message, and wait until the broker has it, as `DelayedProducer.send`."""
        message = DelayedMessage(target, value, key, delay, at, id, headers, partition)
        return await self._acknowledged(lambda: self._connection.sender.send(message))

    async def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Ask for a message to be cancelled, and wait until the broker has that, as `DelayedProducer.cancel`."""
        return await self._acknowledged(lambda: self._connection.sender.cancel(handle))

    async def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, in one transaction, as `DelayedProducer.reschedule`.

        One after the other: a producer has one transaction at a time.
        """
        return await self._live_loop().run_in_executor(self._transactions, self._reschedule, handle, message)

    async def close(self) -> None:
        """Wait for what is still on its way, and end. What waits for its turn is refused.

        Raises:
            RetriableError: some of it was not acknowledged in time.
        """
        self._is_closed = True
        if self._end is not None and not self._connection.origin.is_elsewhere:
            await asyncio.shield(self._end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _acknowledged(self, hand_over: Callable[[], Pending[ReceiptT]]) -> ReceiptT:
        """Hand over a record when it is its turn, and wait for its report."""
        async with self._turn:
            pending = await self._handed_over(hand_over)
            # Before anything else runs on the loop: the report may be there already.
            reported = self._waiting[pending] = self._live_loop().create_future()
        try:
            # The library tells of a message whose time is over within a second or two.
            async with asyncio.timeout(self._connection.timeout_s + REPORTS_WITHIN_S):
                await reported
        except TimeoutError as error:
            self._waiting.pop(pending, None)
            raise RetriableError("could not send: no report in time; it may or may not be there") from error
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
        if self._is_closed:  # since it was its turn
            raise FatalError("the producer is closed")
        return self._connection.rescheduler.reschedule(handle, message)

    def _live_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, and at the first call the thread that serves reports."""
        if self._is_closed:
            raise FatalError("the producer is closed")
        self._connection.origin.check("producer")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            self._end = loop.create_future()
            # A program that forgets to close must end all the same.
            Thread(target=self._serve, args=(loop,), name="tarry-reports", daemon=True).start()
        elif self._loop is not loop:
            raise UsageError("the producer belongs to another event loop: make one for each")
        return loop

    # -- in the thread that serves reports --------------------------------------------------------------------------

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve reports until the end, then wait for what is on its way."""
        failure: BrokerError | None = None
        try:
            while not self._is_closed and not loop.is_closed():
                lost: FatalError | None = None
                try:
                    self._reach(loop)
                    serve_reports(self._connection.producer)
                except FatalError as error:
                    lost = error
                self._pass_on(loop)  # first of all what is acknowledged
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
        """See that there is a cluster, once something waits; else who waits is told, and nothing of it is sent.

        Meanwhile nobody is told anything: so those that were given up have their reports before the next time.
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
        """Tell the event loop what has been reported, all at once."""
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
            # Who waited may have been cancelled; or the producer was lost before this report came.
            if reported is None or reported.done():
                continue
            if unreached is not None:
                reported.set_exception(unreached)
            else:
                reported.set_result(None)
        self._has_room.set()

    def _is_unreached(self, pending: Pending[Any]) -> bool:
        """Whether a record was not sent because nobody answered; the library may have given it up by itself before."""
        if pending.is_purged:
            return True
        is_missing = self._unreached is not None and self._unreached.code == "UNKNOWN_TOPIC_OR_PART"
        return pending in self._given_up and (pending.ran_out_unsent or (is_missing and pending.found_no_topic))

    def _refuse(self, error: BrokerError) -> None:
        """Nobody answers: give up what is queued. What was sent meanwhile is told of by its own report."""
        if not self._connection.is_reached:
            self._unreached = error
            self._given_up = set(self._waiting)
            # Here, where they are handed over: so nobody's who comes later.
            self._connection.producer.purge(in_flight=False, blocking=False)
        self._is_refusing = False

    def _fail(self, error: BrokerError) -> None:
        for reported in self._waiting.values():
            if not reported.done():
                reported.set_exception(error)
        self._waiting.clear()
        self._has_room.set()

    def _finish(self, failure: BrokerError | None) -> None:
        self._is_closed = True  # nobody serves reports any more
        self._fail(failure or RetriableError("the producer was closed before this was acknowledged"))
        if self._end is not None and not self._end.done():
            if failure is None:
                self._end.set_result(None)
            else:
                self._end.set_exception(failure)


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # On a loop that is closed nobody waits any more.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
