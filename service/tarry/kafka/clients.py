"""The factory of clients: every module that talks to a cluster gets its consumers, producers and admin clients here.

The service uses those of the client library. The simulated cluster (`tarry.testing`) makes its own kinds, which take
the same calls.
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
    """Makes clients from librdkafka properties."""

    def consumer(self, properties: Properties) -> Consumer:
        """Make a consumer."""
        ...

    def producer(self, properties: Properties) -> Producer:
        """Make a producer."""
        ...

    def admin(self, properties: Properties) -> AdminClient:
        """Make an admin client.

        Raises:
            ConfigError: the client library refuses a property.
        """
        ...

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that wait for brokers in parallel, and wait for all of them.

        Raises:
            BrokerError: the first that failed.
        """
        ...

    def in_background(self, call: Callable[[], None]) -> "Future[None]":
        """Start a call that waits for brokers, and do not wait for it."""
        ...


def drop(producer: Producer) -> None:
    """Drop a producer and all its records that are not delivered yet; an open transaction stays open.

    Its close() would raise if the producer was fenced, and would abort the open transaction.
    """
    producer.purge(in_flight=True, blocking=False)


class LibraryClients:
    """Makes the client library's own clients."""

    def consumer(self, properties: Properties) -> Consumer:
        """Make a consumer."""
        return Consumer(properties)

    def producer(self, properties: Properties) -> Producer:
        """Make a producer."""
        return Producer(properties)

    def admin(self, properties: Mapping[str, Any]) -> AdminClient:
        """Make an admin client.

        Raises:
            ConfigError: the client library refuses a property.
        """
        try:
            return AdminClient(dict(properties))
        except KafkaException as exception:
            raise ConfigError(f"kafka.options: {error_of(exception).str()}") from exception

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls that wait for brokers in parallel, each in a thread of its own, and wait for all of them.

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
        """Start a call that waits for brokers in a thread of its own, and do not wait for it."""
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(call)
        finally:
            pool.shutdown(wait=False)


LIBRARY = LibraryClients()
