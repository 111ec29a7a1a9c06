"""Answers that several viewers ask for: Kafka is read once for all of them, and the last answer outlives its absence.

a asks          b asks, waits for the same read     both get it     c asks within `fresh_ms`: gets it at once
Kafka is away   d asks: gets the last answer after `PATIENCE_S`, with the reason why it is not newer
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tarry.clock import Clock
from tarry.errors import BrokerError

MOST: Final = 128
"""How many answers are kept; the one that was asked for longest ago goes first."""

STALE_MS: Final = 5_000
"""How much older than fresh an answer may be that is given while a new one is read."""

PATIENCE_S: Final = 2.5
"""How long to wait for Kafka if there is an earlier answer."""

_T = TypeVar("_T")


class Seen(NamedTuple, Generic[_T]):
    """An answer.

    Attributes:
        value: the answer.
        as_of_ms: when Kafka was read for it.
        away: why Kafka could not be read since; None: it was read just now.
    """

    value: _T
    as_of_ms: int
    away: str | None = None


class Shared:
    """The last answers, by what was asked. For one event loop.

    Args:
        clock: wall time says when an answer was read, and monotonic time how old it is.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: OrderedDict[Hashable, tuple[Seen[Any], int]] = OrderedDict()
        self._reads: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, asked: Hashable, fresh_ms: int, read: Callable[[], Awaitable[_T]]) -> Seen[_T]:
        """Return an answer that is about `fresh_ms` old at most, or the last one if Kafka does not answer.

        Raises:
            BrokerError: Kafka does not answer, and there is no earlier answer.
        """
        last = self._last.get(asked)
        if last is not None:
            self._last.move_to_end(asked)
            if self._clock.monotonic_ms() - last[1] <= fresh_ms:
                return last[0]
        task = self._reads.get(asked)
        if task is None:
            task = self._reads[asked] = asyncio.ensure_future(self._read(asked, read))
            # If nobody waits any more, the error is of no use to anybody.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if last is not None and self._clock.monotonic_ms() - last[1] <= fresh_ms + STALE_MS:
            return last[0]
        await asyncio.wait({task}, timeout=None if last is None else PATIENCE_S)
        if last is not None and not task.done():
            return last[0]._replace(away="Kafka does not answer")
        try:
            found: Seen[_T] = task.result()
        except BrokerError as error:
            if last is None:
                raise
            return last[0]._replace(away=str(error))
        return found

    async def _read(self, asked: Hashable, read: Callable[[], Awaitable[_T]]) -> Seen[_T]:
        as_of_ms = self._clock.now_ms()
        try:
            found = Seen(await read(), as_of_ms)
        finally:
            del self._reads[asked]
        self._last[asked] = found, self._clock.monotonic_ms()
        self._last.move_to_end(asked)
        while len(self._last) > MOST:
            self._last.popitem(last=False)
        return found
