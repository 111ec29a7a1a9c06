"""The application's handler, in a thread of its own: it may take its time while the consumer stays in its group."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any

from tarry.core.retry.message import Record, RetryMessage

if TYPE_CHECKING:
    from tarry.core.retry.journey import Headers

Handler = Callable[[RetryMessage, "HandlerTransaction"], Any]
"""A function, or a coroutine function; what it returns is not looked at."""


class HandlerTransaction:
    """What a handler sends belongs to the transaction in which its message is done: all of it or nothing."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        """What was given so far."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] | None = None,
        *,
        partition: int = -1,
    ) -> None:
        """Send a record when the message is done. A handler that raises has sent nothing.

        Args:
            topic: where to.
            value: of the record.
            key: of the record.
            headers: of the record.
            partition: which; -1: by key, as Java's clients have it.

        Raises:
            TypeError: something of it is not what it should be.
            UnicodeEncodeError: a name that UTF-8 cannot write.
        """
        pairs: Headers = list(headers.items()) if isinstance(headers, Mapping) else list(headers or ())
        for what, given in (("key", key), ("value", value), *pairs):
            if given is not None and not isinstance(given, bytes):
                raise TypeError(f"{what}: bytes or None: {type(given).__name__}")
            what.encode()
        topic.encode()
        self.records.append(Record(topic, partition, key, value, pairs))


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
    def produced(self) -> list[Record]:
        """What it wants sent."""
        return self._transaction.records


class Handling:
    """Runs the handler, one message at a time.

    Args:
        handler: the application's.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_coroutine = inspect.iscoroutinefunction(handler)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tarry-handler")
        self._runner: asyncio.Runner | None = None

    def start(self, message: RetryMessage) -> Running:
        """Begin to handle a message."""
        transaction = HandlerTransaction()
        return Running(message, transaction, self._pool.submit(self._run, message, transaction))

    def close(self) -> None:
        """Wait for the handler that runs, and end the thread."""
        self._pool.submit(self._end).result()
        self._pool.shutdown()

    def _run(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        if not self._is_coroutine:
            self._handler(message, transaction)
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(self._handler(message, transaction))

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()
