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
"""The number of recorded worlds for each bug."""
OUT_OF_ORDER: Final = ("out of order", "out of the log's order")
"""The second where the world drawn has a fixed delay."""


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted bug.

    Attributes:
        breaks: the kinds of fault by which it breaks its promise; no other fault counts as found.
        kinds: the kinds of disturbance for the search; empty: all, among which some are rare.
        step: the search tries multiples of this seed: 3 for worlds in which messages are sent twice, 4 for those with
            long take-overs, 5 for those with a fixed delay, 7 for a tick of 10 ms, 11 if brokers want transactions
            aborted.
        course: the name of a course of events (`courses`), for a bug that random worlds would seldom show.
    """

    breaks: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    step: int = 1
    course: str = ""


BUGS: Final[Mapping[str, Bug]] = {
    "commit-before-produce": Bug(("lost",)),
    "no-journal": Bug(("twice",)),
    # Only the brokers end the open transaction of a dead process, after its time-out.
    "no-fencing": Bug(("stuck",), kinds=("crash",)),
    "no-gate": Bug(OUT_OF_ORDER, kinds=("crash",)),
    "gate-ignores-buckets": Bug(OUT_OF_ORDER),
    "gate-ignores-what-is-passed-over": Bug(OUT_OF_ORDER, course="far-before-near"),
    # Or, without a crash, the state itself notices that a done message is filed.
    "passed-over-counts-as-done": Bug(("lost", AN_ERROR), course="far-before-near"),
    "trims-what-waits": Bug(("lost", AN_ERROR)),
    # A reader that would come to what is deleted sets its partition aside.
    "trims-what-is-not-committed": Bug(("stuck",), course="deletes-late"),
    "trims-before-its-own-reader": Bug(("stuck",), course="reads-over-what-is-done"),
    "done-buckets-wait-again": Bug(("twice",), course="many-are-filed-again"),
    "done-whatever-the-bucket": Bug(("lost",), course="away-while-buckets-mix"),
    "reads-below-low": Bug(("twice",), course="many-are-filed-again"),
    # A checkpoint may list a bucket as open from which messages were moved since, or are filed again.
    "forgets-what-is-done-of-open-buckets": Bug(("twice",), course="many-are-filed-again"),
    "journal-forgets-a-refiling": Bug(("twice",), course="many-are-filed-again"),
    "refiled-is-forgotten": Bug(("twice",), course="few-are-far"),
    # Or the state itself notices that a record is done of which it knows nothing any more.
    "refiles-a-part": Bug(("lost", AN_ERROR), course="few-are-far"),
    "survey-is-forgotten": Bug(("lost",), course="index-is-lost"),
    "index-forgets-what-is-closed": Bug(("lost",), course="index-is-lost"),
    "index-forgets-what-a-survey-finds": Bug(("lost",), course="index-is-lost"),
    "index-skips-what-is-missing": Bug(("lost",), course="index-is-lost"),
    "closes-before-the-survey": Bug(("lost",), course="index-is-lost-and-the-survey-slow"),
    # Or the next take-over refuses levels that are closed in this order.
    "closes-before-the-one-above": Bug((*OUT_OF_ORDER, AN_ERROR), course="index-of-higher-levels-is-lost"),
    "closes-below-what-drains": Bug(OUT_OF_ORDER, course="far-before-near"),
    "filing-does-not-say-how-far": Bug(("lost",), course="ends-named-too-low"),
    # Or messages that were delivered are read again, because what is filed next seems to begin before them.
    "parked-does-not-say-how-far": Bug(("lost", "twice"), course="ends-named-too-low"),
    "filing-says-how-far-by-what-it-was-told": Bug(("lost",), course="ends-named-too-low-twice"),
    "parked-begins-where-it-was-told": Bug(("twice",), course="too-low-an-end-behind-what-was-parked"),
    "writes-behind-a-lost-end": Bug(("lost",), course="a-level-loses-its-end"),
    "does-not-tell-of-a-lost-end": Bug(("lost", "left behind"), course="a-level-loses-its-end"),
    "tells-beyond-a-stranger": Bug(("lost",), course="strange-records"),
    "no-doubt-after-an-older-copy": Bug(("lost",), course="copies-are-lost"),
    "journal-forgets-a-done-bucket": Bug(("twice",), course="away-for-minutes"),
    "overtakes-the-parked-log": Bug(OUT_OF_ORDER, course="away-for-long"),
    "overtakes-what-is-being-filed": Bug(OUT_OF_ORDER, course="parked-while-transactions-are-open"),
    "files-while-it-is-tried": Bug(OUT_OF_ORDER, course="parked-while-transactions-are-open"),
    "notes-only-what-is-not-held": Bug(("lost",), course="paused-while-the-log-is-read-for-another"),
    "learns-a-part-of-the-parked-log": Bug(("lost",), course="all-are-away"),
    "forgets-the-parked-log": Bug(("lost",), course="away-for-long"),
    "summary-forgets-the-parked": Bug(("lost",), course="parked-for-minutes"),
    "parked-is-not-done": Bug(("twice", "stuck"), course="away-for-long"),
    "purge-forgets-the-log": Bug(("not purged",), course="purged-again-and-again"),
    "purge-overtakes": Bug(("not purged",), course="purged-again-and-again"),
    "fires-what-was-replaced": Bug(("twice",), course="named-again-and-again"),
    "fires-what-was-cancelled": Bug(("twice",), course="named-again-and-again"),
    # Or the record is done already, and there is no outcome of it.
    "decides-again": Bug(("twice", "indefinite", "not replaced"), course="named-again-and-again"),
    "a-dead-name-is-taken": Bug(("not replaced",), course="named-again-and-again"),
    "a-rejected-name-is-not-decided": Bug(("indefinite",), course="named-and-rejected"),
    "replaces-what-is-in-flight": Bug(("twice",), course="named-while-transactions-are-open"),
    "commits-what-was-aborted": Bug(("lost",), course="named-again-and-again"),
    "decisions-are-not-put-back": Bug(("lost", "indefinite"), course="named-again-and-again"),
    "continues-whatever-waits": Bug(
        ("after its end", "indefinite", "not replaced", "off its rule"), course="repeated-again-and-again"
    ),
    # Nobody takes the next record, or only after a take-over.
    "a-delivery-ends-its-schedule": Bug(("stuck", "indefinite"), course="repeated-again-and-again"),
    "the-journal-forgets-that-a-schedule-goes-on": Bug(("stuck", "indefinite"), course="repeated-again-and-again"),
    "continues-what-was-aborted": Bug(
        ("stuck", "indefinite", "off its rule"), course="repeated-while-transactions-are-open"
    ),
    "makes-up-for-what-was-missed": Bug(("off its rule",), course="repeated-again-and-again"),
    "a-bucket-forgets-a-schedule": Bug(("stuck", "indefinite", "unexpected"), course="repeated-again-and-again"),
    "what-is-parked-is-not-followed": Bug(("stuck", "indefinite"), course="repeated-again-and-again"),
    "expires-on-reading-only": Bug(("after its expiry",), course="expiring-again-and-again"),
    "a-bucket-forgets-an-expiry": Bug(("after its expiry",), course="expiring-again-and-again"),
    "what-is-parked-does-not-expire": Bug(("after its expiry",), course="expiring-again-and-again"),
    "expires-a-millisecond-early": Bug(("expired in time",), course="expiring-again-and-again"),
    "jitter-of-the-place": Bug(("early",), course="expiring-again-and-again"),
    "fires-before-pauses-are-read": Bug(("while paused",), course="paused-again-and-again"),
    "confirms-what-is-still-tried": Bug(("while paused",), course="paused-while-transactions-are-open"),
    "forgets-pauses-at-a-restart": Bug(("while paused",), course="paused-again-and-again"),
    "another-origin-is-ours": Bug(("lost",), kinds=("anew",)),
    "one-stops-all": Bug(("stuck",), kinds=("leader",)),
    "stuck-names": Bug(("stuck",), kinds=("leader",)),
    "one-answer-is-enough": Bug(("stuck",), kinds=("hide",)),
    "refusal-ends-all": Bug(("refused",)),
    "stamps-by-own-clock": Bug(("early",), kinds=("behind",), step=5),
    "take-over-in-one-go": Bug(("stuck",), step=4),
    "cancel-does-not-wait": Bug(("not cancelled",), course="cancel-in-passes"),
    # Or a duplicate that counts as new is cancelled, although the first message is delivered.
    "forgets-a-like": Bug(("twice", "cancelled, and delivered"), step=3),
    "journal-to-its-stable-end": Bug(("twice",), course="release-before-markers"),
    "reads-from-the-intakes-pointer": Bug(("twice",), course="crash-in-a-wide-bucket"),
    # If an aborted transaction completed a bucket, the state itself notices that the bucket is gone.
    "aborted-counts-as-done": Bug(("lost", AN_ERROR), kinds=("crash",), step=11),
    "a-tick-early": Bug(("early",)),
    "rounds-down": Bug(("early",), step=7),
    "cancel-misses-memory": Bug(("not cancelled",), step=3),
    "outcomes-are-not-put-back": Bug(("indefinite",), kinds=("nap",), step=11),
    "dead-letters-are-not-put-back": Bug(("lost",), kinds=("nap",), step=11),
    "duplicate-is-new": Bug(("twice",), step=3),
    "forgets-what-was-delivered": Bug(("twice",), step=3),
    "due-times-step-back": Bug(("out of the log's order",), step=5),
    "due-times-begin-anew": Bug(("out of the log's order",), kinds=("crash",), step=5),
    "files-behind-what-is-ahead": Bug(("out of the log's order",), course="ahead-at-the-edge"),
}


@dataclass(frozen=True, slots=True)
class Visit:
    """The result of a world.

    Attributes:
        seed: its seed.
        faults: its faults, by kind.
        cpu_s: its CPU time in seconds.
    """

    seed: int
    faults: Mapping[str, Sequence[str]]
    cpu_s: float

    def finds(self, bug: Bug) -> bool:
        """Whether it shows a fault of the promise that a bug breaks."""
        return not self.faults.keys().isdisjoint(bug.breaks)


def copy(directory: Path) -> None:
    """Copy the service. Its bytecode stays valid, because the copies keep the times of the files."""
    shutil.copytree(SOURCE, directory / "tarry")


def plant(name: str, directory: Path) -> None:
    """Copy the service, and apply a patch to it."""
    copy(directory)
    # Outside any repository, because otherwise git would look for the files there.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent)}
    subprocess.run(["git", "apply", PLANTED / f"{name}.patch"], cwd=directory, env=environment, check=True)


def visit(
    directory: Path,
    seeds: range | Sequence[int],
    kinds: Sequence[str] = (),
    course: str = "",
    within_s: float = 0,
) -> Generator[Visit]:
    """Run worlds with the copy in a directory, in a separate process, which ends with the loop over the results.

    Args:
        directory: the directory of the copy.
        seeds: the seeds of the worlds.
        kinds: the kinds of disturbance; empty: all.
        course: the name of a course; empty: random worlds.
        within_s: leave out worlds that take more CPU time than this; 0: none.

    Raises:
        RuntimeError: the process ended before the last world.
    """
    command = [sys.executable, "-m", "tests.support.visiting", "--within-s", str(within_s)]
    command += [word for kind in kinds for word in ("--kind", kind)]
    command += ["--course", course] if course else []
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
    """Return the seeds that find each bug, as `python -m tests.simulation.record_planted` wrote them."""
    found: dict[str, Any] = tomllib.loads(SEEDS.read_text())
    return {name: list(map(int, seeds)) for name, seeds in found.items()}
