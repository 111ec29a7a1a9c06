"""The application's handler, in a thread of its own: it may take its time while the consumer stays in its group."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any

from tarry.client.receipt import MessageHeaders
from tarry.client.record import to_bytes, to_headers, to_partition, to_topic
from tarry.client.retry.core.message import Record, RetryMessage

Handler = Callable[[RetryMessage, "HandlerTransaction"], Any]
"""A function, or a coroutine function; what it returns is not looked at."""

Submit = Callable[..., "Future[None]"]
"""Runs a function, with its arguments."""


class HandlerTransaction:
    """What a handler sends belongs to the transaction in which its message is done: all of it or nothing."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """What was given so far."""

    def produce(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        headers: MessageHeaders | None = None,
        *,
        partition: int = -1,
    ) -> None:
        """Send a record when the message is done. A handler that raises has sent nothing.

        Args:
            topic: where to.
            value: the payload; text is sent as UTF-8, None as Kafka's null.
            key: the key, likewise.
            headers: of the record; values likewise.
            partition: which; -1: by key, as Java's clients have it.

        Raises:
            HeaderError: something of it cannot be sent.
        """
        to = partition if partition == -1 else to_partition(partition)
        key, value = to_bytes(key, "key"), to_bytes(value, "value")
        self.records.append(Record(to_topic(topic, "topic"), to, key, value, to_headers(headers)))


class Running:
    """A handler that works on a message."""

    def __init__(self, message: RetryMessage, transaction: HandlerTransaction, future: "Future[None]") -> None:
        self.message = message
        self._transaction = transaction
        self._future = future

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is done, so long at most; whether it is."""
        return bool(wait_for([self._future], timeout_s).done)

    def abandon(self) -> None:
        """Its result does not count; if it has not begun, it does not."""
        self._future.cancel()

    @property
    def error(self) -> BaseException | None:
        """What it raised; only once it is done."""
        return self._future.exception()

    @property
    def exit(self) -> BaseException | None:
        """What it raised to end the program; only once it is done."""
        return self.error if isinstance(self.error, SystemExit | KeyboardInterrupt) else None

    @property
    def produced(self) -> list[Record]:
        """What it wants sent."""
        return self._transaction.records


class Handling:
    """Runs the handler, one message at a time.

    Args:
        handler: the application's.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.is_coroutine = inspect.iscoroutinefunction(handler)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tarry-handler")
        self._runner: asyncio.Runner | None = None

    def start(self, message: RetryMessage) -> Running:
        """Begin to handle a message."""
        return self.running(message, self._pool.submit)

    def running(self, message: RetryMessage, submit: Submit) -> Running:
        """A handler that `submit` has begun to run."""
        transaction = HandlerTransaction()
        return Running(message, transaction, submit(self._run, message, transaction))

    def close(self) -> None:
        """Wait for the handler that runs, and end the thread."""
        self._pool.submit(self._end).result()
        self._pool.shutdown()

    def _run(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        if not self.is_coroutine:
            self.handler(message, transaction)
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(self.handler(message, transaction))

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()
