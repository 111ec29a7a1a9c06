"""The factory for all fake clients of one process."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tarry.kafka.clients import Properties
from tarry.testing.fake.admin import FakeAdmin
from tarry.testing.fake.background import Background
from tarry.testing.fake.consumer import FakeConsumer
from tarry.testing.fake.producer import FakeProducer
from tarry.testing.fake.wire import Wire

if TYPE_CHECKING:
    from concurrent.futures import Future


class FakeClients:
    """Creates clients of the fake cluster.

    Args:
        wire: the connection that all of them use.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def consumer(self, properties: Properties) -> Consumer:
        """Return a consumer."""
        return cast("Consumer", FakeConsumer(self._wire, properties))

    def producer(self, properties: Properties) -> Producer:
        """Return a producer."""
        return cast("Producer", FakeProducer(self._wire, properties))

    def admin(self, properties: Properties) -> AdminClient:
        """Return an admin client."""
        return cast("AdminClient", FakeAdmin(self._wire, str(properties.get("bootstrap.servers", ""))))

    def at_once(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make calls one after the other.

        Raises:
            BrokerError: the first error, after all calls were made.
        """
        failures: list[Exception] = []
        for call in calls:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if failures:
            raise failures[0]

    def in_background(self, call: Callable[[], None]) -> "Future[None]":
        """Start a call. Each check whether it is done continues it."""
        background = Background(self._wire, call)
        background.done()
        return background
