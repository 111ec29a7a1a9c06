"""A bug for each promise, planted by a patch into a copy of the service: the simulation must find it.

Without this nobody could tell a service that keeps its promises from a simulation that sees nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tarry

PATCHES = Path(__file__).parent / "planted"
SOURCE = Path(tarry.__file__).parent

OUT_OF_ORDER = ("out of order", "out of the log's order")
"""The second where the world drawn has a fixed delay."""

FOUND_SOON = {
    "commit-before-produce": ("lost",),
    "no-journal": ("twice",),
    "no-fencing": ("stuck", "twice"),
    "no-gate": OUT_OF_ORDER,
    "gate-ignores-buckets": OUT_OF_ORDER,
}
"""What each of them breaks; a few dozen runs show it, or show messages that stay away, which may come first."""

RUNS = 1_500
"""At most; the hunt ends with the first find. The rarest, no-gate, was found after 7 to 180, 63 in the mean.

One time in ten 150 did not find it."""

SHOWN_BESIDE = ("stuck", "not cancelled")
"""What may come first of any of them: messages that stay away, and cancels that came in time in vain."""

FOUND_LATE = {
    "journal-to-its-stable-end": ("twice",),
    # Where a slot was done with by an aborted transaction, the state itself notices that it is gone.
    "aborted-counts-as-done": ("lost", "an error"),
}
"""These need rare courses of events."""


def plant(name: str, directory: Path) -> None:
    """Copy the service, and apply a patch to it."""
    shutil.copytree(SOURCE, directory / "tarry", ignore=shutil.ignore_patterns("__pycache__"))
    # Outside of any repository, or git would look for the files there.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    subprocess.run(["git", "apply", PATCHES / f"{name}.patch"], cwd=directory, env=environment, check=True)


def hunt(directory: Path, seed: int, runs: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tarry.testing.simulation", "--quiet", "--seed", str(seed), "--runs", str(runs)]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def verify_found(name: str, faults: tuple[str, ...], directory: Path, seed: int, runs: int) -> None:
    plant(name, directory)
    found = hunt(directory, seed, runs)
    assert found.returncode == 1, f"{name} was not found from seed {seed}\n{found.stdout}{found.stderr}"
    assert any(f"\n{one} " in found.stdout for one in (*faults, *SHOWN_BESIDE)), found.stdout


@pytest.mark.parametrize(("name", "faults"), FOUND_SOON.items(), ids=FOUND_SOON.keys())
def test_a_planted_bug_is_found(name: str, faults: tuple[str, ...], tmp_path: Path, seed: int) -> None:
    verify_found(name, faults, tmp_path, seed, RUNS)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "faults"), FOUND_LATE.items(), ids=FOUND_LATE.keys())
def test_a_rare_planted_bug_is_found(name: str, faults: tuple[str, ...], tmp_path: Path, seed: int) -> None:
    verify_found(name, faults, tmp_path, seed, runs=2_000)


def test_every_patch_is_tried() -> None:
    assert {path.stem for path in PATCHES.glob("*.patch")} == {*FOUND_SOON, *FOUND_LATE}


def test_the_copy_without_a_patch_is_clean(tmp_path: Path, seed: int) -> None:
    shutil.copytree(SOURCE, tmp_path / "tarry", ignore=shutil.ignore_patterns("__pycache__"))
    found = hunt(tmp_path, seed, 20)
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
