"""A shell starts what runs in the background with Ctrl-C ignored, perhaps also the tests; children inherit that."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """Let this process and those that it starts in the block end on Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
