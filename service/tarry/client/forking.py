"""What a forked process inherits of clients: nothing that works, and nothing that it may let go of.

A client's threads stay with the process that made it. In a child of that process, as Celery and `gunicorn --preload`
have them, nothing that is handed over is ever sent. To drop the client there ends the child with a signal, or waits
for ever: always with a consumer that has partitions, and with a producer where one of its threads held a lock (2.16).
So the child keeps what it inherits, and never touches it.

A fork also copies the locks that those threads hold at that moment, locked for ever. The one that glibc's resolver
takes while a client looks up its brokers would keep every client of the child from connecting, and the child from
ending. So a client that was never used is closed before the fork, and made again at its first use. One in use has
looked its brokers up; where it looks one up again just then, the child can still be caught.
"""

import ctypes
import os
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakMethod, WeakSet

from tarry.errors import UsageError


class HasClients(Protocol):
    """Who owns clients of the client library."""

    def clients(self) -> Iterable[object]:
        """Those that there are now."""
        ...


class Origin:
    """The process in which something was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process was forked since."""
        return os.getpid() != self._pid

    def check(self, what: str) -> None:
        """Refuse to go on in a forked process.

        Raises:
            UsageError: this process was forked since.
        """
        if self.is_elsewhere:
            raise UsageError(
                f"the {what} was made before this process was forked, and does not work in it: make one here"
            )


_owners: WeakSet[HasClients] = WeakSet()
_closing: set[WeakMethod[Callable[[], None]]] = set()


def keep_in_children(owner: HasClients) -> None:
    """Have the clients of an owner kept in processes that are forked from now on, and never dropped there."""
    _owners.add(owner)


def close_before_forks(close_unused: Callable[[], None]) -> None:
    """Have a method of an owner, which closes its client where that was never used, called before each fork."""
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
