"""One mutant in a copy of the tree: a forked process runs the tests nearest to its module, until one of them fails.

Forked, since importing what the tests stand on takes longer than most of them: Python and the libraries are loaded
once. Nothing of the project is, so that the copy is what is imported.
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
"""A mutant may take so many times longer than it may take of the processor, which others use as well."""

MEMORY_BYTES: Final = 4 << 30
"""What a mutant may take: one that never stops growing is not to take the machine with it."""

_NOT_COPIED: Final = {".git", ".venv", ".mutants", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_COPIED: Final = ("service", "tests", "pyproject.toml")
_IS_THE_COPY: Final = "mutants: the tests import another tarry than the copy's"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said.

    Attributes:
        outcome: `killed`, `survived` or `timeout`.
        by: the test that failed, or what else ended it.
        took_s: seconds.
        cpu_s: seconds of the processor, without what other processes took of it.
    """

    outcome: str
    by: str
    took_s: float
    cpu_s: float = 0.0


def load() -> None:
    """Load what all trials need, and set up chance: the same each time, and failures are not made smaller."""
    for name in LOADED_ONCE:
        import_module(name)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", phases=phases, database=None, deadline=None)
    hypothesis.settings.load_profile("mutants")


class Copy:
    """A copy of the tree, in which one mutant at a time is tried.

    Args:
        directory: that exists, and is empty.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        """In the place of the root."""
        for entry in ROOT.iterdir():
            if entry.name in _COPIED:
                if entry.is_dir():
                    shutil.copytree(entry, self._directory / entry.name)
                else:
                    shutil.copy2(entry, self._directory)
            elif entry.name not in _NOT_COPIED:
                (self._directory / entry.name).symlink_to(entry)

    def read(self, path: str) -> bytes:
        """A file of it, as it was when it was copied; the tree may be worked on meanwhile."""
        return (self._directory / path).read_bytes()

    def run(self, module: str, source: bytes, tests: Sequence[str], within_s: int) -> Verdict:
        """Run tests with a module as it is given.

        Args:
            module: as a path below `service/tarry`.
            source: of it.
            tests: files.
            within_s: seconds of the processor that they may take.
        """
        path = self._directory / "service" / "tarry" / module
        before = path.read_bytes()
        path.write_bytes(source)
        try:
            return self._run(tests, within_s)
        finally:
            path.write_bytes(before)
            # It has a time in whole seconds: a mutant might pass for the one before it.
            for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                stale.unlink()

    @property
    def output(self) -> str:
        """The end of what the last trial printed."""
        return (self._directory / ".output.txt").read_text(errors="replace")[-4_000:]

    def _run(self, tests: Sequence[str], within_s: int) -> Verdict:
        said, output = self._directory / ".said.json", self._directory / ".output.txt"
        said.unlink(missing_ok=True)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _be_tried(self._directory, tests, within_s, said, output)
        os.setpgid(child, child)  # whoever is first: it may be ended at once
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
        # What does not even import is noticed, too: the same tests have run without a mutant.
        by = json.loads(said.read_text()) if said.exists() else f"exit code {code}"
        return Verdict("killed", by, took_s, cpu_s)


def _await(child: int, until: float) -> tuple[int | None, float]:
    """A child's exit code, or None where it did not end in time and was ended; and what it took of the processor."""
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
    """End a child with all that it has started."""
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


class _Watch:
    """Puts the tests in order, and notes which of them failed."""

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
    """The child: nothing of what it does reaches its parent but its exit code and what it said."""
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
