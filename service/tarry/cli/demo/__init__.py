"""`tarry demo`: broker, service, a producer and a reader in one terminal."""

from tarry.cli.demo.command import demo

__all__ = ["demo"]
