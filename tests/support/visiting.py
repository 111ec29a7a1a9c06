"""`python -m tests.support.visiting`: simulated worlds, one after the other, by the `tarry` in the current directory.

A line of JSON each: what is wrong in it. So a copy of the service with a planted bug can be tried in a process of its
own. The seeds come by the command line, the kinds of disturbance too.
"""

import json
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import Never

import tarry
from tarry.testing.simulation.scenarios import ALL_KINDS, by_chance

AN_ERROR = "an error"
"""Beside the faults that the judge has names for: the service's own code noticed it, by an exception."""


class TooLong(BaseException):
    """A world takes too long: raised through the service's own code, which must not catch it."""


def faults_of(seed: int, kinds: frozenset[str]) -> dict[str, list[str]]:
    """What is wrong in a world, by kind."""
    try:
        return dict(by_chance(seed, kinds=kinds).report.faults)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return {AN_ERROR: [f"{type(error).__name__}: {error}"]}


def main(seeds: Iterable[int], kinds: frozenset[str], within_s: float) -> None:
    """Try worlds; those that take longer than so much of the processor's time are left out, if that is not 0."""
    signal.signal(signal.SIGVTALRM, _interrupt)
    for seed in seeds:
        began_s = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, within_s)
        try:
            faults = faults_of(seed, kinds)
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
    parser.add_argument("--range", nargs=3, type=int, metavar=("FIRST", "END", "STEP"))
    parser.add_argument("--within-s", type=float, default=0)
    parser.add_argument("seeds", nargs="*", type=int)
    options = parser.parse_args()
    if not Path(tarry.__file__).is_relative_to(Path.cwd()):
        sys.exit(f"this would try {tarry.__file__}")
    tried = range(*options.range) if options.range else options.seeds
    main(tried, frozenset(options.kind) or ALL_KINDS, options.within_s)
