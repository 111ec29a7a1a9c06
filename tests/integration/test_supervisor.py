"""The supervisor over real processes that do as the test says; no broker."""

import http.client
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from tarry.clock import SystemClock
from tarry.errors import ConfigError, UsageError
from tarry.service.http import listen
from tarry.service.metrics import Totals
from tarry.service.supervisor import ChildProcess, StopSignals, Supervisor, TimeLimits
from tests.support.brokers import is_alive, wait_until

CHILD = """
import signal, sys, time
from tarry.service.metrics import Snapshot
from tarry.service.supervisor.channel import Beat, Channel, StartRefused

channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
orders = channel.orders().decode()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
if orders.startswith("refuse"):
    channel.refuse(StartRefused("this will never do", orders == "refuse the configuration"))
    sys.exit(2)
if orders == "die":
    sys.exit(3)
if orders == "garble":
    channel._socket.send(b"nonsense\\n")
while not channel.orphaned and (not asked or orders == "stay"):
    why = "not yet" if orders == "unready" else ""
    channel.beat(Beat(not why, why, Snapshot({("tarry_fired_messages", "in"): 5.0}, {}, {})))
    time.sleep(0.02)
"""


class Watched:
    """A supervisor in a thread, and what it says."""

    def __init__(self, stop: StopSignals, orders: list[str], limits: TimeLimits) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.orders = orders
        self.error: BaseException | None = None
        listener = listen("127.0.0.1", 0)
        self._port = listener.getsockname()[1]
        self._supervisor = Supervisor(
            lambda index: ChildProcess([sys.executable, "-c", CHILD], self.orders[index].encode()),
            len(orders),
            listener,
            Totals({"intake": ["in"]}),
            "1.2.3",
            SystemClock(),
            stop,
            lambda event, **fields: self.events.append((event, fields)),
            limits,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]

    def pids(self) -> list[int]:
        return [fields["pid"] for fields in self.of("process_started")]

    def get(self, path: str) -> tuple[int, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def until_ready(self) -> None:
        wait_until(lambda: self.get("/readyz") == (200, "ok\n"), "ready")

    def metric(self, name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def wait_end(self, within_s: float = 20.0) -> None:
        self._thread.join(within_s)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._supervisor.run()
        except (UsageError, ConfigError) as error:
            self.error = error


class Watching:
    """Starts one supervisor a test."""

    def __init__(self) -> None:
        self._stop = StopSignals()
        self._watched: Watched | None = None

    def __call__(self, *orders: str, **limits: int) -> Watched:
        self._watched = Watched(self._stop, list(orders), TimeLimits(**limits))
        return self._watched

    def stop(self) -> None:
        """As `kill` does from outside."""
        os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        if self._watched is not None:
            for pid in self._watched.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.stop()
            self._watched.wait_end()
        self._stop.close()


@pytest.fixture
def watch() -> Iterator[Watching]:
    watching = Watching()
    yield watching
    watching.close()


def test_a_killed_process_is_restarted_at_once_and_its_counts_are_kept(watch: Watching) -> None:
    watched = watch("work", "work")
    watched.until_ready()
    wait_until(lambda: watched.metric('tarry_fired_messages_total{intake="in"}') == 10, "both have counted")
    os.kill(watched.pids()[0], signal.SIGKILL)
    wait_until(lambda: len(watched.pids()) == 3, "a new one")
    [ended] = watched.of("process_ended")
    assert (ended["process"], ended["how"], ended["again_in_ms"]) == (0, "SIGKILL", 0)
    watched.until_ready()
    wait_until(lambda: watched.metric('tarry_fired_messages_total{intake="in"}') == 15, "three lives have counted")
    assert watched.metric("tarry_process_restarts_total") == 1
    assert watched.get("/livez") == (200, "ok\n")


def test_a_process_that_keeps_dying_is_restarted_after_growing_pauses_and_the_other_continues(watch: Watching) -> None:
    watched = watch("die", "work")
    wait_until(lambda: len(watched.of("process_ended")) == 3, "three lives")
    assert [ended["again_in_ms"] for ended in watched.of("process_ended")] == [0, 1_000, 2_000]
    assert {ended["process"] for ended in watched.of("process_ended")} == {0}
    status, why = watched.get("/readyz")
    assert (status, why) == (503, "process 0 will be restarted\n")


def test_a_process_that_hangs_is_killed_and_another_takes_its_place(watch: Watching) -> None:
    watched = watch("work", "work", silence_ms=1_500)
    watched.until_ready()
    hung = watched.pids()[1]
    os.kill(hung, signal.SIGSTOP)
    wait_until(lambda: len(watched.pids()) == 3, "a new one")
    assert not is_alive(hung)
    [found] = watched.of("process_hung")
    assert (found["process"], found["pid"]) == (1, hung)
    assert found["silent_ms"] > 1_500
    watched.until_ready()
    assert watched.metric("tarry_process_hangs_total") == 1
    assert watched.metric('tarry_process_up{process="1"}') == 1


def test_a_process_that_sends_garbled_messages_is_killed(watch: Watching) -> None:
    watched = watch("garble")
    wait_until(lambda: bool(watched.of("process_garbled")), "it was heard")
    wait_until(lambda: bool(watched.of("process_ended")), "it was killed")
    assert watched.of("process_ended")[0]["how"] == "SIGKILL"
    watched.orders[0] = "work"
    watched.until_ready()


def test_ready_names_in_one_line_the_process_that_is_not_ready(watch: Watching) -> None:
    watched = watch("work", "unready")
    wait_until(lambda: "not yet" in watched.get("/readyz")[1], "it says why")
    assert watched.get("/readyz") == (503, "process 1: not yet\n")
    assert watched.get("/livez")[0] == 200


@pytest.mark.parametrize(
    ("orders", "error"), [("refuse", UsageError), ("refuse the configuration", ConfigError)], ids=["usage", "config"]
)
def test_a_process_that_ends_on_purpose_ends_the_service_with_its_line(
    watch: Watching, orders: str, error: type[Exception]
) -> None:
    watched = watch("work", orders)
    watched.wait_end()
    assert type(watched.error) is error
    assert str(watched.error) == "this will never do"
    assert len(watched.pids()) == 2
    assert not any(is_alive(pid) for pid in watched.pids())


def test_sigterm_ends_all(watch: Watching) -> None:
    watched = watch("work", "work", "work")
    watched.until_ready()
    watch.stop()
    watched.wait_end(5.0)
    assert watched.error is None
    assert not any(is_alive(pid) for pid in watched.pids())
    assert watched.of("process_killed") == []


def test_a_process_that_does_not_end_in_time_is_killed_even_if_it_is_stopped(watch: Watching) -> None:
    watched = watch("stay", "work", "work", hand_over_ms=700)
    watched.until_ready()
    os.kill(watched.pids()[1], signal.SIGSTOP)
    watch.stop()
    watched.wait_end(5.0)
    assert sorted(killed["process"] for killed in watched.of("process_killed")) == [0, 1]
    assert not any(is_alive(pid) for pid in watched.pids())


def test_a_process_that_waits_for_its_restart_does_not_delay_the_stop(watch: Watching) -> None:
    watched = watch("die")
    wait_until(lambda: len(watched.of("process_ended")) == 3, "it waits for two seconds")
    watch.stop()
    watched.wait_end(1.5)
    assert len(watched.pids()) == 3
