"""The leash, on small shell commands: whoever dies, nothing is left running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.devbroker.ownership import owned
from tarry.devbroker.process import LeashedProcess
from tarry.errors import UsageError
from tests.support.brokers import is_alive, wait_until

SLEEP = ["sleep", "600"]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def sleeper(output: Path) -> Iterator[LeashedProcess]:
    process = LeashedProcess(SLEEP, output, grace_s=10.0)
    yield process
    process.kill()


def test_stop_ends_it_with_sigterm(sleeper: LeashedProcess) -> None:
    assert sleeper.running
    assert is_alive(sleeper.pid)
    sleeper.stop()
    assert not is_alive(sleeper.pid)
    assert sleeper.wait() == 128 + signal.SIGTERM


def test_kill_ends_it_with_sigkill(sleeper: LeashedProcess) -> None:
    sleeper.kill()
    assert not is_alive(sleeper.pid)
    assert sleeper.wait() == 128 + signal.SIGKILL


def test_a_signal_reaches_the_command_until_it_has_ended(sleeper: LeashedProcess) -> None:
    sleeper.signal(signal.SIGUSR1)
    assert sleeper.wait() == 128 + signal.SIGUSR1
    sleeper.signal(signal.SIGUSR1)


def test_a_signal_to_the_group_of_the_command_reaches_its_children_and_not_its_watchdog(output: Path) -> None:
    process = LeashedProcess(["sh", "-c", "sleep 600 & echo $!; wait"], output, grace_s=10.0)
    wait_until(lambda: output.read_bytes().endswith(b"\n"), "the command starts a child")
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == 128 + signal.SIGKILL
    wait_until(lambda: not is_alive(int(output.read_text(encoding="ascii"))), "the child ends, too")


def test_the_command_has_the_given_directory_and_environment(tmp_path: Path, output: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "GIVEN": "value"}
    process = LeashedProcess(["sh", "-c", "echo $GIVEN; pwd"], output, grace_s=1.0, cwd=tmp_path, env=environ)
    assert process.wait() == 0
    assert output.read_text(encoding="utf-8") == f"value\n{tmp_path}\n"


def test_a_broker_that_ignores_sigterm_is_killed_after_the_grace_period(output: Path) -> None:
    process = LeashedProcess(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"], output, grace_s=0.3)
    wait_until(lambda: output.read_bytes() == b"deaf\n", "the command ignores SIGTERM")
    process.stop()
    assert process.wait() == 128 + signal.SIGKILL


def test_its_own_end_is_noticed_with_its_exit_code_and_output(output: Path) -> None:
    process = LeashedProcess(["sh", "-c", "echo out; echo err >&2; exit 7"], output, grace_s=1.0)
    assert process.wait() == 7
    assert not process.running
    assert output.read_text(encoding="utf-8") == "out\nerr\n"
    process.stop()
    process.kill()


def test_waiting_for_one_that_runs_on_gives_up_after_the_time(sleeper: LeashedProcess) -> None:
    began = time.monotonic()
    assert sleeper.wait(0.1) is None
    assert time.monotonic() - began < 5


def test_a_command_that_does_not_exist_is_a_usage_error(output: Path) -> None:
    with pytest.raises(UsageError, match="/no/such/java could not be started"):
        LeashedProcess(["/no/such/java"], output, grace_s=1.0)


PARENT = """
import os, sys, time
from pathlib import Path
from tarry.devbroker.process import LeashedProcess
leashed = LeashedProcess(["sleep", "600"], Path(sys.argv[1], "output"), 10.0, Path(sys.argv[1], "data"))
print(leashed.pid, leashed._watchdog.pid, flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    time.sleep(600)  # a fork holds the leash's writing end
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("what_the_parent_did", ["nothing", "fork"])
def test_a_parent_killed_with_kill_9_takes_it_along_and_its_directory(tmp_path: Path, what_the_parent_did: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "topic").touch()
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PARENT, str(tmp_path), what_the_parent_did]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, start_new_session=True, text=True) as parent:
        try:
            assert parent.stdout is not None
            pid, watchdog = map(int, parent.stdout.readline().split())
            assert int(parent.stdout.readline()) == parent.pid
            assert is_alive(pid)
            os.kill(parent.pid, signal.SIGKILL)
            wait_until(lambda: not is_alive(pid), "the command ends with its grandparent")
            wait_until(lambda: not is_alive(watchdog), "the watchdog ends")
            assert not (tmp_path / "data").exists()
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_watchdog_killed_with_kill_9_takes_the_command_along(sleeper: LeashedProcess) -> None:
    os.kill(sleeper._watchdog.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(sleeper.pid), "the command ends with its watchdog")
    assert not sleeper.running


def test_a_watchdog_asked_to_end_stops_the_command(sleeper: LeashedProcess) -> None:
    os.kill(sleeper._watchdog.pid, signal.SIGTERM)
    assert sleeper.wait(20.0) == 128 + signal.SIGTERM
    assert not is_alive(sleeper.pid)


def test_the_command_holds_what_it_inherits_until_it_ends(tmp_path: Path, output: Path) -> None:
    with owned(tmp_path) as lock:
        process = LeashedProcess(SLEEP, output, grace_s=10.0, inherit=lock)
    with pytest.raises(UsageError, match="another broker uses"), owned(tmp_path):
        pass
    process.stop()
    with owned(tmp_path) as lock:
        assert lock > 0
