"""Clients that follow a user name or a password in a file, such as a mounted secret, without a restart.

A client of librdkafka uses its user name and password whenever it connects, and whenever a broker asks it to
authenticate again (`connections.max.reauth.ms`). It takes new ones while it runs (`set_sasl_credentials`), with the
mechanisms PLAIN and SCRAM. A connection that is open stays open. librdkafka takes no other secret while a client runs:
certificates, keys and the client secret of OAUTHBEARER need a restart.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final
from weakref import WeakSet

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tarry.config.sources import text_of
from tarry.errors import ConfigError
from tarry.kafka.clients import LibraryClients, Properties

USERNAME: Final = "sasl.username"
PASSWORD: Final = "sasl.password"  # noqa: S105 (the name of a property)


class _Consumer(Consumer):
    """A consumer that says whether it is closed, and of which there can be weak references."""

    is_closed = False

    def close(self) -> Any:
        self.is_closed = True
        return super().close()


class _Producer(Producer):
    """A producer of the same kind."""

    is_closed = False

    def close(self, *arguments: Any, **options: Any) -> Any:
        self.is_closed = True
        return super().close(*arguments, **options)


class RotatingClients(LibraryClients):
    """Makes clients with the user name and password that their files have now, and tells living clients of new ones.

    Clients may be made in any thread; `refresh` is for one thread.

    Args:
        files: the file of `sasl.username`, of `sasl.password`, or of both.
        given: the librdkafka properties of the configuration, for the one of both that has no file.
        on_event: takes an event's name and fields, for the log.

    Raises:
        ConfigError: a file cannot be read.
    """

    def __init__(self, files: Mapping[str, Path], given: Mapping[str, Any], on_event: Callable[..., None]) -> None:
        self._files = {name: path for name, path in files.items() if name in {USERNAME, PASSWORD}}
        self._on_event = on_event
        self._lock = Lock()
        self._living: WeakSet[_Consumer | _Producer | AdminClient] = WeakSet()
        self._credentials = {name: str(given[name]) for name in (USERNAME, PASSWORD) if name in given} | self._read()
        self._unreadable = ""
        """Why the files could not be read the last time; empty if they could."""

    def consumer(self, properties: Properties) -> Consumer:
        """Make a consumer."""
        with self._lock:
            made = _Consumer({**properties, **self._credentials})
            self._living.add(made)
        return made

    def producer(self, properties: Properties) -> Producer:
        """Make a producer."""
        with self._lock:
            made = _Producer({**properties, **self._credentials})
            self._living.add(made)
        return made

    def admin(self, properties: Mapping[str, Any]) -> AdminClient:
        """Make an admin client.

        Raises:
            ConfigError: the client library refuses a property.
        """
        with self._lock:
            made = super().admin({**properties, **self._credentials})
            self._living.add(made)
        return made

    def refresh(self) -> None:
        """Read the files; if they have changed, tell all living clients. A file that cannot be read changes nothing."""
        try:
            found = self._read()
        except ConfigError as error:
            if str(error) != self._unreadable:
                self._unreadable = str(error)
                self._on_event("credentials_unreadable", reason=str(error))
            return
        self._unreadable = ""
        changed = [name for name, value in found.items() if self._credentials[name] != value]
        if not changed:
            return
        with self._lock:
            self._credentials.update(found)
            if {USERNAME, PASSWORD} <= self._credentials.keys():
                for client in self._living:
                    if not getattr(client, "is_closed", False):
                        client.set_sasl_credentials(self._credentials[USERNAME], self._credentials[PASSWORD])
        self._on_event("credentials_changed", properties=changed)

    def _read(self) -> dict[str, str]:
        return {name: text_of(path, name) for name, path in self._files.items()}
