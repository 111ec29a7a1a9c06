"""The embedded broker: a real Kafka that needs nothing but Python and a package registry."""

from tarry.devbroker.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
