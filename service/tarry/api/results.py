"""The results of an intake as they are written, for whoever waits for one of them and for streams of events.

One reader for each intake and replica, and only while somebody listens. It reads on a thread, and hands batches to the
event loop; it reads no further while the event loop is behind. A result is offered to those only who ask for its id,
its schedule or its target, or for all, however many others listen.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple

from tarry.client.outcome import parsed_result
from tarry.client.outcome.follower import Follower
from tarry.clock import Clock
from tarry.errors import BrokerError, FatalError, TarryError
from tarry.kafka.settings import Cluster

IDLE_MS: Final = 30_000
"""How long the reader goes on without a listener."""

BUFFERED: Final = 1_000
"""How many events a stream holds back for a slow reader."""

_AHEAD: Final = 4
_READ_S: Final = 0.1

_Batch = list[tuple[int, int, bytes | None, bytes | None]]


class Event(NamedTuple):
    """A result, and where it lies in the results of its intake."""

    partition: int
    offset: int
    result: dict[str, Any]
    value: bytes


class Stream:
    """The results that one listener wants, from now on. For the event loop only.

    Args:
        wants: whether it wants a result.
        read: the offsets of the results that come next, by partition; the reader keeps them up to date, once it has
            offered the results before them.
        most: how many it holds.
    """

    def __init__(self, wants: Callable[[dict[str, Any]], bool], read: Mapping[int, int], most: int = BUFFERED) -> None:
        self.joined = dict(read)
        """Where it began, by partition."""
        self.positions = dict(read)
        """Up to where it has taken results, by partition: all below were given, or are not wanted."""
        self.is_lagging = False
        """Whether results were dropped, because too many waited; nothing comes any more."""
        self.is_over = False
        """Whether the listener was told to end."""
        self.error: TarryError | None = None
        self._wants = wants
        self._most = most
        self._held: deque[Event] = deque()
        self._read = read
        self._has_some = asyncio.Event()

    def offer(self, event: Event) -> None:
        """Take a result, if it is wanted."""
        if self.is_lagging or not self._wants(event.result):
            return
        if len(self._held) >= self._most:
            self.is_lagging = True
            self._held.clear()
        else:
            self._held.append(event)
        self._has_some.set()

    def fail(self, error: TarryError) -> None:
        """End it."""
        self.error = error
        self._has_some.set()

    def end(self) -> None:
        """Wake the listener: it shall end."""
        self.is_over = True
        self._has_some.set()

    async def next(self, within_s: float) -> Event | None:
        """Wait for the next result; None if none comes in that time, or if it has ended.

        Raises:
            TarryError: the results cannot be read any more.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not (self._held or self.error or self.is_lagging or self.is_over):
                    self._has_some.clear()
                    # What was read up to here holds nothing more for this stream.
                    self.positions.update(self._read)
                    await self._has_some.wait()
        if self._held:
            event = self._held.popleft()
            self.positions[event.partition] = event.offset + 1
            return event
        if self.error is not None:
            raise self.error
        if not self.is_lagging:
            self.positions.update(self._read)
        return None


class Listeners:
    """Streams by what they ask for."""

    def __init__(self) -> None:
        self._of_all: set[Stream] = set()
        self._among: dict[str, set[Stream]] = {}

    def add(self, stream: Stream, among: Collection[str]) -> None:
        """Take a stream that asks for results with one of these as id, schedule or target; none: for all."""
        for one in among:
            self._among.setdefault(one, set()).add(stream)
        if not among:
            self._of_all.add(stream)

    def discard(self, stream: Stream, among: Collection[str]) -> None:
        """Forget a stream that was taken so."""
        for one in among:
            self._among[one].discard(stream)
            if not self._among[one]:
                del self._among[one]
        self._of_all.discard(stream)

    def __bool__(self) -> bool:
        return bool(self._of_all or self._among)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._of_all.union(*self._among.values()))

    def of(self, result: Mapping[str, Any]) -> set[Stream]:
        """Return those who may want a result."""
        named = (result.get(field) for field in ("id", "schedule", "target"))
        return self._of_all.union(*(self._among.get(one, ()) for one in named if isinstance(one, str)))


class ResultsReader:
    """The reader of one intake's results. All methods are for the event loop.

    Args:
        cluster: the Kafka cluster.
        intake: the intake.
        clock: monotonic time.
        on_event: takes the name and the fields of an event for the log.
    """

    def __init__(self, cluster: Cluster, intake: str, clock: Clock, on_event: Callable[..., None]) -> None:
        self._cluster = cluster
        self._intake = intake
        self._clock = clock
        self._on_event = on_event
        self._positions: dict[int, int] = {}
        self._listeners = Listeners()
        self._by_key: dict[bytes, list[Stream]] = {}
        self._run: _Run | None = None
        self._users = 0
        self._idle_since_ms = 0

    @asynccontextmanager
    async def listen(
        self,
        wants: Callable[[dict[str, Any]], bool],
        key: bytes | None = None,
        most: int = BUFFERED,
        among: Collection[str] = (),
    ) -> AsyncIterator[Stream]:
        """Return a stream of results from now on.

        Args:
            wants: whether a result is wanted.
            key: only results of this id; None: of all.
            most: how many to hold for a slow listener.
            among: only results whose id, schedule or target is one of these; none: of all.

        Raises:
            UsageError: the intake has no results topic.
            BrokerError: Kafka does not answer.
        """
        self._users += 1
        try:
            await self._running()
            stream = Stream(wants, self._positions, most)
            if key is None:
                self._listeners.add(stream, among)
            else:
                self._by_key.setdefault(key, []).append(stream)
            try:
                yield stream
            finally:
                if key is None:
                    self._listeners.discard(stream, among)
                else:
                    self._by_key[key].remove(stream)
                    if not self._by_key[key]:
                        del self._by_key[key]
        finally:
            self._users -= 1
            if not self._users:
                self._idle_since_ms = self._clock.monotonic_ms()
                asyncio.get_running_loop().call_later(IDLE_MS / 1_000, self._end_if_idle)

    async def close(self) -> None:
        """End the reader; its listeners fail."""
        if self._run is not None:
            run, self._run = self._run, None
            run.stop()
            await asyncio.get_running_loop().run_in_executor(None, run.join)

    async def _running(self) -> None:
        run = self._run
        if run is None or run.is_over:
            run = self._run = _Run(self, asyncio.get_running_loop(), self._cluster, self._intake, self._clock)
            run.start()
        # Shielded: whoever goes away must not end the wait of the others.
        await asyncio.shield(run.ready)

    def _end_if_idle(self) -> None:
        if self._run is not None and not self._users and self._clock.monotonic_ms() - self._idle_since_ms >= IDLE_MS:
            self._run.stop()
            self._run, self._positions = None, {}

    # -- called on the event loop by the thread ---------------------------------------------------------------------

    def begun(self, run: "_Run", positions: dict[int, int]) -> None:
        """Note where the thread begins to read."""
        if run is self._run:
            self._positions = positions

    def take(self, run: "_Run", batch: _Batch) -> None:
        """Give results to those who want them."""
        run.taken()
        if run is not self._run:
            return
        for partition, offset, key, value in batch:
            self._positions[partition] = offset + 1
            waiting = self._by_key.get(key or b"", ())
            if not waiting and not self._listeners:
                continue
            result = parsed_result(value)
            if not result:  # not the service's
                continue
            event = Event(partition, offset, result, value or b"")
            for stream in (*waiting, *self._listeners.of(result)):
                stream.offer(event)

    def ended(self, run: "_Run", error: TarryError | None) -> None:
        """Note that the thread ends."""
        if run is not self._run:
            return
        self._run, self._positions = None, {}
        failure = error or FatalError(f"the reader of the results of {self._intake} was closed")
        if error is not None:
            self._on_event("results_not_read", intake=self._intake, error=str(error))
        for stream in (*self._listeners, *(one for waiting in self._by_key.values() for one in waiting)):
            stream.fail(failure)


class _Run:
    """One run of the thread."""

    def __init__(
        self, owner: ResultsReader, loop: asyncio.AbstractEventLoop, cluster: Cluster, intake: str, clock: Clock
    ) -> None:
        self.ready: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._loop = loop
        self._cluster = cluster
        self._intake = intake
        self._clock = clock
        self._stopping = threading.Event()
        self._room = threading.Semaphore(_AHEAD)
        self._thread = threading.Thread(target=self._read, name=f"results {intake}", daemon=True)
        self.is_over = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._room.release()

    def join(self) -> None:
        self._thread.join()

    def taken(self) -> None:
        self._room.release()

    def _read(self) -> None:
        error: TarryError | None = None
        try:
            follower = Follower(self._cluster, self._intake, self._clock)
            try:
                self._call(self._begun, dict(follower.positions))
                self._follow(follower)
            finally:
                follower.close()
        except TarryError as failure:
            error = failure
        except BaseException as failure:
            error = FatalError(f"could not read the results of {self._intake}: {failure!r}")
            raise
        finally:
            self._call(self._ended, error)

    def _follow(self, follower: Follower) -> None:
        while not self._stopping.is_set():
            batch: _Batch = []
            follower.read(_READ_S, partial(_append, batch))
            if batch:
                self._room.acquire()
                self._call(self._owner.take, self, batch)

    def _begun(self, positions: dict[int, int]) -> None:
        self._owner.begun(self, positions)
        if not self.ready.done():
            self.ready.set_result(None)

    def _ended(self, error: TarryError | None) -> None:
        self.is_over = True
        if not self.ready.done():
            self.ready.set_exception(error or BrokerError("the reader of results was closed"))
            self.ready.exception()  # whoever waits gets it; nobody may wait any more
        self._owner.ended(self, error)

    def _call(self, call: Callable[..., None], *arguments: object) -> None:
        # A closed loop raises RuntimeError; nobody listens there any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)


def _append(batch: _Batch, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
    batch.append((partition, offset, key, value))
