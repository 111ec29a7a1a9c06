"""Ctrl-C that no library loses.

Python raises KeyboardInterrupt wherever the main thread is, also inside of calls from C: `PyObject_Str`, for example,
looks for signals. The Kafka client then raises another error in its place, or goes on as if nothing had happened (seen
with confluent-kafka 2.16). So Ctrl-C is noted as well: a command that works for long asks now and then, and an error
after it is no error.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Noted:
    is_interrupted = False


@contextmanager
def noting() -> Iterator[None]:
    """Note each Ctrl-C in the block, from now on; it raises KeyboardInterrupt as ever.

    Nothing changes for a process that ignores Ctrl-C, or has a handler of its own.
    """
    _Noted.is_interrupted = False
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: Any) -> None:
    _Noted.is_interrupted = True
    signal.default_int_handler(number, frame)


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed since the block began."""
    return _Noted.is_interrupted


def stop_if_interrupted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed, and a library has lost it."""
    if _Noted.is_interrupted:
        raise KeyboardInterrupt
