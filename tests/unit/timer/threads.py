"""Threads, and what keeps them in hand."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

PATIENCE_S = 20


class Inbox(Executor):
    """Keeps what is submitted until the test runs it; may be made to block in `submit`."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.at_gate.set()
        assert self.gate.wait(PATIENCE_S)
        self.calls.append(lambda: fn(*args, **kwargs))
        return Future()

    def run_all(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread
