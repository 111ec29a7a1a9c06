"""`python -m tests.simulation.record_planted`: find the worlds in which the ordinary suite finds each planted bug.

A change of the simulation, or of the service's requests to the cluster, changes the events in all worlds, so a recorded
seed may no longer find its bug. This program keeps the seeds that still find it, searches for others, and records them.
It records a world only if it shows a fault of the promise that the bug breaks, is clean without the bug, and takes
little time.
"""

import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from itertools import chain, starmap
from pathlib import Path

from tests.support.planting import BUGS, SEEDS, WORLDS_EACH, Bug, copy, plant, recorded, visit

HEADER = "# Written by `python -m tests.simulation.record_planted`: the worlds that find each planted bug.\n"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def find(name: str, bug: Bug, known: Sequence[int], runs: range, within_s: float, clean: Path) -> list[int]:
    """Return seeds that find a bug; try the known ones first."""
    found: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        copied = Path(directory)
        plant(name, copied)
        known_and_new = (
            (copied, known, bug.kinds, bug.course, 0.0),
            (copied, runs, bug.kinds, bug.course, within_s),
        )
        tried = 0
        for one in chain.from_iterable(starmap(visit, known_and_new)):
            tried += 1
            if one.finds(bug) and one.seed not in found and is_clean(clean, one.seed, bug):
                found.append(one.seed)
                say(f"{name}: seed {one.seed}, {sorted(one.faults)}, {one.cpu_s} s")
                if len(found) == WORLDS_EACH:
                    break
    say(f"{name}: {len(found)} in {tried} runs")
    return sorted(found)


def is_clean(directory: Path, seed: int, bug: Bug) -> bool:
    """Whether a world has no fault without the bug."""
    (control,) = visit(directory, [seed], bug.kinds, bug.course)
    if control.faults:
        say(f"seed {seed} is not clean: {control.faults}")
    return not control.faults


def write(seeds: dict[str, list[int]]) -> None:
    SEEDS.write_text(HEADER + "".join(f"{name} = {of_it}\n" for name, of_it in sorted(seeds.items())))


def main(names: list[str], first: int, runs: int, within_s: float) -> int:
    """Record seeds of these bugs, or of all; return how many bugs have too few."""
    seeds = recorded() if SEEDS.exists() else {}
    seeds = {name: of_it for name, of_it in seeds.items() if name in BUGS}
    with tempfile.TemporaryDirectory() as directory:
        clean = Path(directory)
        copy(clean)
        for name in names or list(BUGS):
            bug = BUGS[name]
            begin = -(-first // bug.step) * bug.step
            hunted = range(begin, begin + runs * bug.step, bug.step)
            seeds[name] = find(name, bug, seeds.get(name, ()), hunted, within_s, clean)
            write(seeds)
    few = [name for name in names or BUGS if len(seeds[name]) < WORLDS_EACH]
    for name in few:
        say(f"{name}: {len(seeds[name])} in {runs} runs")
    return len(few)


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="BUG", choices=[[], *BUGS], help="by default all of them")
    parser.add_argument("--first", type=int, default=1, help="seed of the first run (%(default)s)")
    parser.add_argument("--runs", type=int, default=5_000, help="for each bug, at most (%(default)s)")
    parser.add_argument(
        "--within-s", type=float, default=1.0, help="and no world of more CPU seconds than this (%(default)s)"
    )
    options = parser.parse_args()
    sys.exit(main(options.names, options.first, options.runs, options.within_s) > 0)
