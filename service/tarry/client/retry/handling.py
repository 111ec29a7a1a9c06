"""Runs the application's handler in a separate thread, so that a slow handler does not cost the group membership."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from tarry.client.receipt import MessageHeaders
from tarry.client.record import to_bytes, to_headers, to_partition, to_topic
from tarry.client.retry.core.message import OutgoingRecord, RetryMessage
from tarry.errors import UsageError

Handler = Callable[[RetryMessage, "HandlerTransaction"], Any]
"""Any callable. An awaitable or a future that it returns is waited for; any other result is ignored."""

Submit = Callable[..., "Future[None]"]
"""Runs a function with its arguments, as `Executor.submit`."""


class HandlerTransaction:
    """Takes the records that a handler sends; they are part of the transaction that commits the handled message."""

    def __init__(self) -> None:
        self.records: list[OutgoingRecord] = []
        """The records so far."""
        self._is_over = False

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        headers: MessageHeaders | None = None,
        *,
        partition: int = -1,
    ) -> None:
        """Send a record when the message is done. If the handler raises, the record is not sent.

        Args:
            topic: the topic to write to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: encoded like `value`.
            headers: the record's headers; their values are encoded like `value`.
            partition: the partition; -1: chosen by the key, as Java clients choose it.

        Raises:
            HeaderError: an argument cannot be sent.
            UsageError: the handler has returned, for example because a task that it left behind calls this.
        """
        if self._is_over:
            raise UsageError("the handler has returned: this record is no part of its message's transaction any more")
        to = partition if partition == -1 else to_partition(partition)
        key, value = to_bytes(key, "key"), to_bytes(value, "value")
        self.records.append(OutgoingRecord(to_topic(topic, "topic"), to, key, value, to_headers(headers)))

    def end(self) -> None:
        """Take no more records: the handler has ended."""
        self._is_over = True


class Running:
    """A call of the handler for one message."""

    def __init__(self, message: RetryMessage, transaction: HandlerTransaction, future: "Future[None]") -> None:
        self.message = message
        self._transaction = transaction
        self._future = future

    def wait(self, timeout_s: float) -> bool:
        """Wait until the handler has ended, at most `timeout_s`; return whether it has."""
        return bool(wait_for([self._future], timeout_s).done)

    def abandon(self) -> None:
        """Ignore the result; if the handler has not begun yet, it will not."""
        self._future.cancel()

    @property
    def error(self) -> BaseException | None:
        """The exception that the handler raised, or None; blocks until the handler has ended."""
        return self._future.exception()

    @property
    def exit(self) -> BaseException | None:
        """The handler's SystemExit or KeyboardInterrupt, or None; blocks until the handler has ended."""
        return self.error if isinstance(self.error, SystemExit | KeyboardInterrupt) else None

    @property
    def produced(self) -> list[OutgoingRecord]:
        """The records that the handler sends."""
        return self._transaction.records


class Handling:
    """Runs the handler, one message at a time.

    Args:
        handler: the application's function.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tarry-handler")
        self._runner: asyncio.Runner | None = None

    def start(self, message: RetryMessage) -> Running:
        """Start the handler for a message, in the handler's thread."""
        return self.running(message, self._pool.submit)

    def running(self, message: RetryMessage, submit: Submit) -> Running:
        """Start the handler for a message through `submit`."""
        transaction = HandlerTransaction()
        # The handler may change its list of headers, and a retry sends the original ones.
        given = message._replace(headers=list(message.headers))
        return Running(message, transaction, submit(self._run, given, transaction))

    def close(self) -> None:
        """Wait for the running handler, and end the thread."""
        self._pool.submit(self._end).result()
        self._pool.shutdown()

    def _run(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        try:
            self._call(message, transaction)
        finally:
            transaction.end()

    def _call(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        returned = self.handler(message, transaction)
        # What it returns decides, and not what it is: an object or a wrapper may hide a coroutine function.
        if inspect.isawaitable(returned):
            self._run_until_done(_awaited(returned))
        elif isinstance(returned, Future):
            returned.result()
        elif inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise UsageError("the handler returned a generator, so its code has not run: it must not use `yield`")

    def _run_until_done(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the event loop of the handler's thread."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(work)

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()


async def _awaited(returned: Awaitable[Any]) -> None:
    await returned
