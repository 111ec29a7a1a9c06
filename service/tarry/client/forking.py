"""librdkafka clients and forked processes: a child process must neither use nor free the clients that it inherits.

A client's threads exist only in the process that created it. In a child process, such as a worker of Celery or
`gunicorn --preload`, an inherited client never sends a record. Freeing it there kills the child with a signal or blocks
it permanently: always for a consumer with partitions, and for a producer if one of its threads held a lock at the fork
(2.16). So the child keeps a reference to each inherited client, and never touches it.

A fork also copies the locks that those threads hold at that moment, and the copies stay locked permanently. glibc's
resolver takes such a lock while a client looks up its brokers. If it is held at the fork, no client of the child can
connect, and the child cannot exit. So a client that was never used is closed before the fork and created again at its
first use. A client in use has already looked up its brokers; if it looks one up again at the moment of the fork, the
child can still block.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakMethod, WeakSet

from tarry.errors import UsageError


class HasClients(Protocol):
    """An owner of librdkafka clients."""

    def clients(self) -> Iterable[object]:
        """Return the clients that exist now."""
        ...


class CreatingProcess:
    """The process in which an object was created."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of that one."""
        return os.getpid() != self._pid

    def check(self, what: str) -> None:
        """Refuse to continue in a forked process.

        Raises:
            UsageError: this process was forked after the object was created.
        """
        if self.is_forked:
            raise UsageError(
                f"the {what} was created before this process was forked, and does not work in it: create a new one"
            )


_owners: WeakSet[HasClients] = WeakSet()
_closing: set[WeakMethod[Callable[[], None]]] = set()


def keep_in_children(owner: HasClients) -> None:
    """Keep a reference to the owner's clients in processes that are forked from now on, so that they never free one."""
    _owners.add(owner)


def close_before_forks(close_unused: Callable[[], None]) -> None:
    """Call a method, which closes an unused client, before each fork; only a weak reference to it is kept."""
    _closing.add(WeakMethod(close_unused, _closing.discard))


def _close_unused() -> None:
    for method in list(_closing):
        close_unused = method()
        if close_unused is not None:
            close_unused()


def _keep() -> None:
    for owner in list(_owners):
        for client in owner.clients():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(before=_close_unused, after_in_child=_keep)
