"""Who makes the clients: all of the edge that speaks to a cluster gets its consumers, producers and admins from here.

The service runs on the client library's own. A simulation of a cluster (`tarry.testing`) hands out its own kind, which
take the same calls.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tarry.errors import ConfigError
from tarry.kafka.errors import error_of

Properties = dict[str, Any]


class Clients(Protocol):
    """Makes clients from librdkafka's properties."""

    def consumer(self, properties: Properties) -> Consumer:
        """A consumer."""
        ...

    def producer(self, properties: Properties) -> Producer:
        """A producer."""
        ...

    def admin(self, properties: Properties) -> AdminClient:
        """An admin client.

        Raises:
            ConfigError: a property is refused.
        """
        ...

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that wait for brokers side by side, and wait for all.

        Raises:
            BrokerError: the first that failed.
        """
        ...

    def in_background(self, call: Callable[[], None]) -> "Future[None]":
        """Start a call that waits for brokers, and do not wait for it."""
        ...


def drop(producer: Producer) -> None:
    """Let go of a producer and of all that it has on its way; an open transaction stays open.

    Not its close(): that raises where the producer was fenced, and would abort what is to be left alone.
    """
    producer.purge(in_flight=True, blocking=False)


class LibraryClients:
    """The client library's own."""

    def consumer(self, properties: Properties) -> Consumer:
        """A consumer."""
        return Consumer(properties)

    def producer(self, properties: Properties) -> Producer:
        """A producer."""
        return Producer(properties)

    def admin(self, properties: Mapping[str, Any]) -> AdminClient:
        """An admin client.

        Raises:
            ConfigError: a property is refused.
        """
        try:
            return AdminClient(dict(properties))
        except KafkaException as exception:
            raise ConfigError(f"kafka.options: {error_of(exception).str()}") from exception

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that wait for brokers side by side, each in a thread that does nothing else, and wait for all.

        Raises:
            BrokerError: the first that failed.
        """
        if len(calls) < 2:
            for call in calls:
                call()
            return
        with ThreadPoolExecutor(len(calls)) as pool:
            for outcome in [pool.submit(call) for call in calls]:
                outcome.result()

    def in_background(self, call: Callable[[], None]) -> "Future[None]":
        """Start a call that waits for brokers, in a thread that does nothing else, and do not wait for it."""
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(call)
        finally:
            pool.shutdown(wait=False)


LIBRARY = LibraryClients()
