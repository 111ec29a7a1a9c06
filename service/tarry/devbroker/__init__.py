"""The embedded broker: a real Kafka broker that needs only Python and access to a package registry."""

from tarry.devbroker.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
