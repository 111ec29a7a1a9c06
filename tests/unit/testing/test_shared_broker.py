"""One embedded broker for all processes of a run: see `tests.support.brokers.shared`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.support.brokers import shared, wait_until


class Broker:
    def __init__(self) -> None:
        self.starts = 0
        self.running = False

    @contextmanager
    def start(self) -> Iterator[str]:
        assert not self.running
        self.starts += 1
        self.running = True
        try:
            yield f"broker {self.starts}"
        finally:
            self.running = False


def test_the_process_that_starts_it_stops_it_when_no_other_one_uses_it(tmp_path: Path) -> None:
    broker, others_use_it, starter_waits = Broker(), Event(), Event()

    def start() -> None:
        with shared(tmp_path, broker.start) as servers:
            assert servers == "broker 1"
            assert others_use_it.wait(10)
            starter_waits.set()

    def join() -> str:
        with shared(tmp_path, broker.start) as servers, shared(tmp_path, broker.start) as same:
            others_use_it.set()
            assert starter_waits.wait(10)
            with shared(tmp_path, broker.start) as later:  # also while the starter waits for the end
                assert broker.running
                return f"{servers}, {same}, {later}"

    with ThreadPoolExecutor(2) as threads:
        starting = threads.submit(start)
        wait_until(lambda: broker.running, "it is started")
        assert threads.submit(join).result(20) == "broker 1, broker 1, broker 1"
        starting.result(20)
    assert broker.starts == 1
    assert not broker.running


def test_after_its_end_the_next_process_starts_another_one(tmp_path: Path) -> None:
    broker = Broker()
    for number in (1, 2):
        with shared(tmp_path, broker.start) as servers:
            assert servers == f"broker {number}"
            assert broker.running
        assert not broker.running


def test_after_a_failed_start_the_next_process_tries_again(tmp_path: Path) -> None:
    def fail() -> AbstractContextManager[str]:
        raise RuntimeError("no Java")

    with pytest.raises(RuntimeError, match="no Java"):
        shared(tmp_path, fail).__enter__()
    with shared(tmp_path, Broker().start) as servers:
        assert servers == "broker 1"
