"""The demo as people run it: with a terminal and without, to its end, interrupted, and killed."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.brokers import is_alive, wait_until

pytestmark = pytest.mark.broker

START_S = 90.0
END_S = 60.0
SUMMARY = re.compile(r"sent ([\d,]+), delivered ([\d,]+): (lost|still waiting) (\d+), (.*)")
KEPT = "twice 0, early 0, out of order 0"


def descendants(pid: int) -> set[int]:
    """The process and all that it started, and they in turn."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text(encoding="ascii", errors="replace")
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class Demo:
    """A running demo without a terminal, in a directory of its own for whatever it writes."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self._said = directory / "said"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tarry", "demo", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=os.environ | {"TMPDIR": str(self.temporary), "TARRY_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"},
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_delivering(self) -> set[int]:
        """Wait until something was delivered; return all its processes."""
        delivering = re.compile(r"delivered [1-9]")
        wait_until(lambda: bool(delivering.search(self.text)) or self.process.poll() is not None, "delivery", START_S)
        assert self.process.poll() is None, self.text
        return descendants(self.process.pid)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def run_demo(tmp_path: Path, bootstrap: str) -> Iterator[Callable[..., Demo]]:
    """Starts demos; `bootstrap` is not theirs, but skips these tests where no broker can be had."""
    del bootstrap
    with ExitStack() as until_the_end:

        def run(*arguments: str) -> Demo:
            demo = Demo(tmp_path, *arguments)
            until_the_end.callback(demo.close)
            return demo

        yield run


def gone(pids: set[int]) -> bool:
    return not any(is_alive(pid) for pid in pids)


def test_the_demo_ends_by_itself_with_nothing_lost_and_nothing_left(run_demo: Callable[..., Demo]) -> None:
    demo = run_demo("--for", "6s", "--rate", "200")
    pids = demo.wait_delivering()
    assert len(pids) >= 5, "the demo, Kafka and the service, and two that watch over them"
    assert demo.process.wait(END_S) == 0, demo.text
    found = SUMMARY.search(demo.text)
    assert found is not None, demo.text
    assert found[1] == found[2] == "900"
    assert (found[3], found[4], found[5]) == ("lost", "0", KEPT)
    assert re.search(r"late p50 \d+ p99 \d+ max \d+ ms, from being due", demo.text)
    assert "Traceback" not in demo.text
    assert not re.search("^%[0-7]", demo.text, re.MULTILINE), f"the client library's own log: {demo.text}"
    assert gone(pids)
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_demo_sums_up_and_leaves_nothing(run_demo: Callable[..., Demo], number: signal.Signals) -> None:
    demo = run_demo("--for", "10m")
    pids = demo.wait_delivering()
    demo.process.send_signal(number)
    assert demo.process.wait(END_S) == 0, demo.text
    found = SUMMARY.search(demo.text)
    assert found is not None, demo.text
    assert found[3] == "still waiting"
    assert found[5] == KEPT
    assert "Traceback" not in demo.text
    assert gone(pids)
    assert list(demo.temporary.iterdir()) == []


@pytest.mark.exhaustive
def test_a_killed_demo_leaves_nothing(run_demo: Callable[..., Demo]) -> None:
    demo = run_demo("--for", "10m")
    pids = demo.wait_delivering()
    demo.process.kill()
    demo.process.wait()
    wait_until(lambda: gone(pids), "the end of all that the demo started", 30.0)
    wait_until(lambda: list(demo.temporary.iterdir()) == [], "the removal of its data", 10.0)


@pytest.mark.exhaustive
def test_on_a_terminal_the_demo_draws_a_table_and_then_the_summary(bootstrap: str) -> None:
    del bootstrap
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tarry", "demo", "--for", "3s"],
        stdin=its,
        stdout=its,
        stderr=its,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(its)
    said = b""
    ends = time.monotonic() + START_S + END_S
    try:
        while time.monotonic() < ends:
            if select.select([ours], [], [], 1.0)[0]:
                try:
                    said += os.read(ours, 65_536)
                except OSError:  # how a terminal says that nobody writes to it any more
                    break
        assert process.wait(10) == 0, said.decode()
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()
    text = said.decode()
    assert "due next" in text
    assert "arrived" in text
    found = SUMMARY.search(text)
    assert found is not None, text
    assert (found[3], found[4], found[5].strip()) == ("lost", "0", KEPT)
