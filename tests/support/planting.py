"""Bugs that are planted into copies of the service, and the worlds of the simulation that find them."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tarry
from tests.support.visiting import AN_ERROR

ROOT: Final = Path(__file__).parents[2]
PLANTED: Final = ROOT / "tests" / "simulation" / "planted"
SEEDS: Final = PLANTED / "seeds.toml"
SOURCE: Final = Path(tarry.__file__).parent
WORLDS_EACH: Final = 3
"""Recorded for each bug; fewer of one that shows in one world of hundreds."""
OUT_OF_ORDER: Final = ("out of order", "out of the log's order")
"""The second where the world drawn has a fixed delay."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    Attributes:
        breaks: the faults of the promise that it breaks; nothing else is a find.
        kinds: the kinds of disturbance that it is hunted with; none: all. Among all of them some come seldom.
        step: seeds that are its multiples are hunted: 3 for worlds in which messages are sent twice, 4 for those with
            long take-overs, 5 for those with a fixed delay, 7 for a tick of 10 ms, 11 where brokers want
            transactions aborted.
    """

    breaks: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    step: int = 1


BUGS: Final[Mapping[str, Bug]] = {
    "commit-before-produce": Bug(("lost",)),
    "no-journal": Bug(("twice",)),
    # What a process left open that died is ended by the brokers alone, after its time-out.
    "no-fencing": Bug(("stuck",), kinds=("crash",)),
    "no-gate": Bug(OUT_OF_ORDER, kinds=("crash",)),
    "gate-ignores-buckets": Bug(OUT_OF_ORDER),
    "another-origin-is-ours": Bug(("lost",), kinds=("anew",)),
    "one-stops-all": Bug(("stuck",), kinds=("leader",)),
    "stuck-names": Bug(("stuck",), kinds=("leader",)),
    "one-answer-is-enough": Bug(("stuck",), kinds=("hide",)),
    "refusal-ends-all": Bug(("refused",)),
    "stamps-by-own-clock": Bug(("early",), kinds=("behind",), step=5),
    "take-over-in-one-go": Bug(("stuck",), step=4),
    # Or the state itself misses what another cancel has taken.
    "cancel-does-not-wait": Bug(("cancelled, and delivered", AN_ERROR), step=3),
    # Or one that is taken for new is cancelled, when the one that it is like is delivered.
    "forgets-a-like": Bug(("twice", "cancelled, and delivered"), step=3),
    # Who crashed must be back before its markers are.
    "journal-to-its-stable-end": Bug(("twice",), kinds=("crash",)),
    # Where a slot was done with by an aborted transaction, the state itself notices that it is gone.
    "aborted-counts-as-done": Bug(("lost", AN_ERROR), kinds=("crash",), step=11),
    "a-tick-early": Bug(("early",)),
    "rounds-down": Bug(("early",), step=7),
    "cancel-misses-memory": Bug(("not cancelled",), step=3),
    "outcomes-are-not-put-back": Bug(("indefinite",), kinds=("nap",), step=11),
    "dead-letters-are-not-put-back": Bug(("lost",), kinds=("nap",), step=11),
    "duplicate-is-new": Bug(("twice",), step=3),
    "forgets-what-was-delivered": Bug(("twice",), step=3),
    "due-times-step-back": Bug(("out of the log's order",), step=5),
}


@dataclass(frozen=True, slots=True)
class Visit:
    """A world that was tried.

    Attributes:
        seed: of it.
        faults: what was wrong, by kind.
        cpu_s: what it took.
    """

    seed: int
    faults: Mapping[str, Sequence[str]]
    cpu_s: float

    def finds(self, bug: Bug) -> bool:
        """Whether the very promise is broken that a bug breaks."""
        return not self.faults.keys().isdisjoint(bug.breaks)


def copy(directory: Path) -> None:
    """Copy the service."""
    shutil.copytree(SOURCE, directory / "tarry", ignore=shutil.ignore_patterns("__pycache__"))


def plant(name: str, directory: Path) -> None:
    """Copy the service, and apply a patch to it."""
    copy(directory)
    # Outside of any repository, or git would look for the files there.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    subprocess.run(["git", "apply", PLANTED / f"{name}.patch"], cwd=directory, env=environment, check=True)


def visit(
    directory: Path, seeds: range | Sequence[int], kinds: Sequence[str] = (), within_s: float = 0
) -> Generator[Visit]:
    """Try worlds with the copy in a directory, in a process of its own, which ends with the loop over them.

    Args:
        directory: of the copy.
        seeds: of the worlds.
        kinds: of disturbances; none: all.
        within_s: worlds that take more of the processor's time than this are left out; 0: none.

    Raises:
        RuntimeError: it ended in front of the last one.
    """
    command = [sys.executable, "-m", "tests.support.visiting", "--within-s", str(within_s)]
    command += [word for kind in kinds for word in ("--kind", kind)]
    if isinstance(seeds, range):
        command += ["--range", *map(str, (seeds.start, seeds.stop, seeds.step))]
    else:
        command += map(str, seeds)
    environment = {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"}
    with subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield Visit(**json.loads(line))
            if process.wait() != 0:
                raise RuntimeError(f"the process that tries worlds ended with {process.returncode}")
        finally:
            process.kill()


def recorded() -> dict[str, list[int]]:
    """The seeds that find each bug, as `python -m tests.simulation.record_planted` wrote them."""
    found: dict[str, Any] = tomllib.loads(SEEDS.read_text())
    return {name: list(map(int, seeds)) for name, seeds in found.items()}
