"""A lock that lets only one broker use a data directory.

Kafka locks its directory too, but only after it has started to read and write the metadata log. A second broker that
gets so far damages the data of the first. So this process takes its own lock before it touches anything. The Java
process inherits the lock's file descriptor, and the kernel frees the lock when the last process that has the descriptor
ends. So the broker holds the lock until it ends, even if this process ends first.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.errors import UsageError


@contextmanager
def owned(data: Path) -> Iterator[int]:
    """Lock `data` inside the block. After the block, a process that has inherited the descriptor still holds the lock.

    Yields:
        The file descriptor that holds the lock.

    Raises:
        UsageError: another broker uses the directory, or this user cannot write to it.
    """
    try:
        with (data / "owner.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.fileno()
    except BlockingIOError as error:
        raise UsageError(f"another broker uses {data}: stop it, or choose another data directory") from error
    except PermissionError as error:
        raise UsageError(f"the data directory {data} cannot be written: {error.strerror}") from error
