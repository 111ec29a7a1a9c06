"""Tries one mutant in a copy of the tree: a forked process runs the tests nearest to its module until one fails.

The process is forked because importing the libraries takes longer than most of the tests. The parent imports Python's
modules and the libraries once. It imports nothing of the project, so that the child imports the copy.
"""

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

import hypothesis
import pytest

from tests.mutants.nearest import ROOT

LOADED_ONCE: Final = (
    "hypothesis.stateful",
    "confluent_kafka.admin",
    "prometheus_client",
    "pydantic",
    "rich.console",
    "structlog",
    "typer",
    "xdist.scheduler",
)
SEED: Final = 350_615_919
PATIENCE: Final = 6
"""The limit of a mutant's run time, as a multiple of its CPU time limit: other processes use the CPU as well."""

MEMORY_BYTES: Final = 4 << 30
"""The memory limit of a mutant, because a mutant may allocate memory in an endless loop."""

_NOT_COPIED: Final = {".git", ".venv", ".mutants", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_COPIED: Final = ("service", "tests", "pyproject.toml")
_IS_THE_COPY: Final = "mutants: the tests import another tarry than the copy's"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a trial.

    Attributes:
        outcome: `killed`, `survived` or `timeout`.
        by: the test that failed, or another reason why the process ended.
        took_s: run time in seconds.
        cpu_s: CPU time in seconds.
    """

    outcome: str
    by: str
    took_s: float
    cpu_s: float = 0.0


def load() -> None:
    """Import what all trials need, and make hypothesis repeatable: a fixed seed, and no shrinking of failures."""
    for name in LOADED_ONCE:
        import_module(name)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None)
    hypothesis.settings.load_profile("mutants")


class Copy:
    """A copy of the tree, in which one mutant at a time is tried.

    Args:
        directory: an existing, empty directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        """The copy's directory, which replaces the root."""
        for entry in ROOT.iterdir():
            if entry.name in _COPIED:
                if entry.is_dir():
                    shutil.copytree(entry, self._directory / entry.name)
                else:
                    shutil.copy2(entry, self._directory)
            elif entry.name not in _NOT_COPIED:
                (self._directory / entry.name).symlink_to(entry)

    def read(self, path: str) -> bytes:
        """Return a file as it was when it was copied; a developer may change the tree meanwhile."""
        return (self._directory / path).read_bytes()

    def run(self, module: str, source: bytes, tests: Sequence[str], within_s: int) -> Verdict:
        """Run tests with a changed module.

        Args:
            module: its path below `service/tarry`.
            source: its new source.
            tests: test files.
            within_s: CPU time limit in seconds.
        """
        path = self._directory / "service" / "tarry" / module
        before = path.read_bytes()
        path.write_bytes(source)
        try:
            return self._run(tests, within_s)
        finally:
            path.write_bytes(before)
            # A .pyc file stores the source's time in whole seconds: Python might use the one of the previous mutant.
            for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                stale.unlink()

    @property
    def output(self) -> str:
        """Return the end of the last trial's output."""
        return (self._directory / ".output.txt").read_text(errors="replace")[-4_000:]

    def _run(self, tests: Sequence[str], within_s: int) -> Verdict:
        said, output = self._directory / ".said.json", self._directory / ".output.txt"
        said.unlink(missing_ok=True)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _be_tried(self._directory, tests, within_s, said, output)
        os.setpgid(child, child)  # both processes do it, because the parent may end the child at once
        try:
            code, cpu_s = _await(child, began + PATIENCE * within_s)
        except BaseException:
            _end(child)
            raise
        took_s = time.monotonic() - began
        if code in {None, -signal.SIGXCPU}:
            return Verdict("timeout", f"{within_s} s", took_s, cpu_s)
        if code == pytest.ExitCode.OK:
            return Verdict("survived", "", took_s, cpu_s)
        # A mutant that cannot be imported counts as killed: the same tests have passed without a mutant.
        by = json.loads(said.read_text()) if said.exists() else f"exit code {code}"
        return Verdict("killed", by, took_s, cpu_s)


def _await(child: int, until: float) -> tuple[int | None, float]:
    """Wait for a child; return its exit code (None: it was ended, because it took too long) and its CPU time."""
    wait_s = 0.005
    while True:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        if time.monotonic() > until:
            _end(child)
            return None, 0.0
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, 0.1)


def _end(child: int) -> None:
    """End a child and all processes that it has started."""
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


class _Watch:
    """A pytest plugin that orders the tests, and notes which test failed."""

    def __init__(self, directory: Path, tests: Sequence[str], said: Path) -> None:
        self._directory = directory
        self._tests = list(tests)
        self._said = said

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = import_module("tarry").__file__
        if not str(found).startswith(str(self._directory)):
            raise RuntimeError(f"{_IS_THE_COPY}: {found}")
        items.sort(key=lambda item: self._tests.index(str(item.path.relative_to(self._directory))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report.nodeid or "import")

    def _note(self, text: str) -> None:
        if not self._said.exists():
            self._said.write_text(json.dumps(text))


def _be_tried(directory: Path, tests: Sequence[str], within_s: int, said: Path, output: Path) -> NoReturn:
    """Run the tests in the child, whose exit code and output are all that the parent gets."""
    code = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(PermissionError):
            os.setpgid(0, 0)
        to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (within_s, within_s + 1))
        os.chdir(directory)
        sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() not in {ROOT, directory}]
        for name in [name for name in sys.modules if name.partition(".")[0] in {"tarry", "tests"}]:
            del sys.modules[name]
        watch: Any = _Watch(directory, tests, said)
        options = ["-x", "-q", "--assert=plain", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
        only = ["-m", "not exhaustive and not soak and not deploy"]
        chance = ["--seed", str(SEED), "--hypothesis-seed=0"]
        code = int(pytest.main([*options, *only, *chance, *tests], plugins=[watch]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
