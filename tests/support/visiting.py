"""`python -m tests.support.visiting`: run simulated worlds, with the `tarry` of the working directory.

It prints one line of JSON for each world: its faults. So a copy of the service with a planted bug can be tried in a
separate process. The command line gives the seeds, and the kinds of disturbance or the name of a course.
"""

import json
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Never

import tarry
from tarry.testing.simulation import Report
from tarry.testing.simulation.scenarios import ALL_KINDS, by_chance
from tests.support.courses import COURSES

AN_ERROR = "an error"
"""A further kind of fault, beside the judge's: the service's own code raised an exception."""


class TooLong(BaseException):
    """A world takes too long: raised through the service's own code, which must not catch it."""


def faults_of(run: Callable[[int], Report], seed: int) -> dict[str, list[str]]:
    """Return the faults of a world, by kind."""
    try:
        return dict(run(seed).faults)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return {AN_ERROR: [f"{type(error).__name__}: {error}"]}


def world_of(kinds: Iterable[str], course: str | None) -> Callable[[int], Report]:
    """Return what runs a world, given its seed: a course of events, or random disturbances of some or of all kinds."""
    if course:
        return lambda seed: COURSES[course](seed).settle()
    drawn = frozenset(kinds) or ALL_KINDS
    return lambda seed: by_chance(seed, kinds=drawn).report


def main(seeds: Iterable[int], run: Callable[[int], Report], within_s: float) -> None:
    """Run worlds; leave out those that take more CPU time than a limit, if the limit is not 0."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    for seed in seeds:
        began_s = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, within_s)
        try:
            faults = faults_of(run, seed)
        except TooLong:
            continue
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        line = {"seed": seed, "faults": faults, "cpu_s": round(time.process_time() - began_s, 2)}
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()


def _interrupt(_number: int, _frame: object) -> Never:
    raise TooLong


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--course", choices=COURSES)
    parser.add_argument("--range", nargs=3, type=int, metavar=("FIRST", "END", "STEP"))
    parser.add_argument("--within-s", type=float, default=0)
    parser.add_argument("seeds", nargs="*", type=int)
    options = parser.parse_args()
    if not Path(tarry.__file__).is_relative_to(Path.cwd()):
        sys.exit(f"this would try {tarry.__file__}")
    tried = range(*options.range) if options.range else options.seeds
    main(tried, world_of(options.kind, options.course), options.within_s)
