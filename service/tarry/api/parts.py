"""What the handlers of requests share: the configuration, the clients of Kafka, and threads that wait for it.

Handlers run on one event loop. Whatever waits for Kafka without asyncio runs on a thread of `look`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import Empty, LifoQueue
from typing import Any, Final, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from tarry.api.brokers import ASK_EVERY_S, Brokers
from tarry.api.metrics import ApiMetrics
from tarry.api.producer import ApiProducer
from tarry.api.results import ResultsReader
from tarry.clock import Clock
from tarry.config import Config
from tarry.errors import BrokerError, FatalError
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster

LOOKS_AT_ONCE: Final = 4
"""How many requests read Kafka's logs at the same time; each has an inspector of its own."""

ACKNOWLEDGED_WITHIN_S: Final = 10.0
"""How long a message may take until all replicas have it, before its sender is told that this is not known."""

_Found = TypeVar("_Found")


class Parts:
    """What handlers share; one for each process.

    Args:
        settings: the configuration.
        cluster: the Kafka cluster.
        clock: wall and monotonic time.
        on_event: takes the name and the fields of an event for the log.
    """

    def __init__(self, settings: Config, cluster: Cluster, clock: Clock, on_event: Callable[..., None]) -> None:
        self.settings = settings
        self.cluster = cluster
        self.clock = clock
        self.on_event = on_event
        self._threads = ThreadPoolExecutor(LOOKS_AT_ONCE, "look")
        self._idle: LifoQueue[Inspector] = LifoQueue()
        self._producers: dict[str, ApiProducer] = {}
        self._readers: dict[str, ResultsReader] = {}
        self.metrics = ApiMetrics()
        admin = cluster.clients.admin(cluster.admin())
        self.brokers = Brokers(lambda: admin.describe_cluster(request_timeout=ASK_EVERY_S), clock)
        self.on_act: Callable[[str, Mapping[str, str | None]], None] = lambda _intake, _fields: None
        """Takes the intake and the fields of a single act, for the record of who did what."""

    async def sent(self, intake: str, send: Callable[[ApiProducer], Awaitable[_Found]]) -> _Found:
        """Send with the producer of an intake; call it on the event loop.

        Raises:
            HeaderError: it cannot be sent.
            BrokerError: Kafka does not answer, or does not take it.
        """
        await self.brokers.demand()
        producer = self._producer(intake)
        try:
            return await send(producer)
        except FatalError:
            if self._producers.get(intake) is producer:
                del self._producers[intake]  # the next one to send makes a new one
                with suppress(BrokerError):  # it is lost; what it had in flight was reported to whoever waits for it
                    await producer.close()
            raise

    def _producer(self, intake: str) -> ApiProducer:
        found = self._producers.get(intake)
        if found is None:
            found = self._producers[intake] = ApiProducer(
                self.cluster.bootstrap_servers,
                intake,
                self.cluster.options,
                tick_ms=self.settings.wheel.tick_ms,
                timeout_s=ACKNOWLEDGED_WITHIN_S,
            )
        return found

    def results(self, intake: str) -> ResultsReader:
        """Return the reader of an intake's results; call it on the event loop."""
        found = self._readers.get(intake)
        if found is None:
            found = self._readers[intake] = ResultsReader(self.cluster, intake, self.clock, self.on_event)
        return found

    async def look(self, call: Callable[[Inspector], _Found]) -> _Found:
        """Read Kafka's logs with an inspector, on a thread.

        Raises:
            UsageError: there is no such intake, partition or checkpoint.
            BrokerError: Kafka does not answer.
        """
        await self.brokers.demand()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look, call)

    def _look(self, call: Callable[[Inspector], _Found]) -> _Found:
        with self._inspector() as inspector:
            return call(inspector)

    @contextmanager
    def _inspector(self) -> Iterator[Inspector]:
        try:
            inspector = self._idle.get_nowait()
        except Empty:
            inspector = Inspector(self.cluster, self.settings.service.group, self.clock)
        try:
            yield inspector
        except FatalError:
            inspector.close()
            raise
        except BaseException:
            self._idle.put(inspector)
            raise
        else:
            self._idle.put(inspector)

    async def close(self) -> None:
        """Wait until what was sent is acknowledged, and close all clients."""
        for reader in self._readers.values():
            await reader.close()
        for intake, producer in self._producers.items():
            try:
                await producer.close()
            except BrokerError as error:  # the senders of these messages were told
                self.on_event("not_acknowledged", intake=intake, error=str(error))
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        while not self._idle.empty():
            self._idle.get_nowait().close()


def parts_of(connection: HTTPConnection) -> Parts:
    """Return the parts of the application that handles a request; a FastAPI dependency."""
    found: Parts = connection.app.state.parts
    return found


def given(find: Callable[[HTTPConnection], _Found]) -> Any:
    """Return the dependency of a handler on what a function finds.

    FastAPI would run the plain function on a thread, for each request.
    """

    async def found(connection: HTTPConnection) -> _Found:
        return find(connection)

    return Depends(found)
