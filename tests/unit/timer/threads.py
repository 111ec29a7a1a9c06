"""Threads, and what keeps them in hand."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import FrameType
from typing import Any

PATIENCE_S = 20
PURGATORY = ("timer/delayed_operation.py", "timer/watchers.py", "timer/purgatory.py")


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


def overtaken_at(
    line: int, work: Callable[[], object], overtake: Callable[[], object], files: tuple[str, ...] = PURGATORY
) -> bool:
    """Stop one thread before the so-and-so-many-th line of some files that it comes to, let another do its work, and
    let the first go on.

    The other is given up on for the time being where it waits for a lock that the first holds.

    Returns:
        False: the first never came to so many lines.
    """
    stopped, go_on = threading.Event(), threading.Event()
    seen = 0

    def count(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                stopped.set()
                assert go_on.wait(PATIENCE_S)
        return count

    def traced() -> None:
        sys.settrace(count)
        try:
            work()
        finally:
            sys.settrace(None)
            stopped.set()

    first = in_thread(traced)
    assert stopped.wait(PATIENCE_S)
    second = in_thread(overtake)
    second.join(0.02)
    go_on.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return seen >= line
