"""One broker to a data directory.

Kafka locks its directory too, but only after it has begun to read and write the metadata log: a second broker that
comes that far damages the first. So our lock is taken before anything is touched. Java inherits it, and the kernel
frees it when the last process that has it ends: not when we end, but when the broker does.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tarry.errors import UsageError


@contextmanager
def owned(data: Path) -> Iterator[int]:
    """Own `data` inside the block, and for as long after it as a process lives that inherited the descriptor.

    Yields:
        The file descriptor that holds the lock.

    Raises:
        UsageError: another broker runs on it, or it cannot be written.
    """
    try:
        with (data / "owner.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock.fileno()
    except BlockingIOError as error:
        raise UsageError(f"another broker uses {data}: stop it, or choose another data directory") from error
    except PermissionError as error:
        raise UsageError(f"the data directory {data} cannot be written: {error.strerror}") from error
