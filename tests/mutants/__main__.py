"""`make mutants`: mutation testing. It finds bugs that no test would notice.

Each mutant of a module is tried in a copy of the tree, with the tests nearest to the module. The verdicts are stored in
`.mutants`, so that an interrupted run continues where it ended. A verdict is valid as long as the module is unchanged,
and for a survivor as long as the tests are unchanged, too. `known.toml` lists the survivors that a developer has
reviewed, each with the reason why no test kills it.
"""

import hashlib
import json
import random
import signal
import sys
import tempfile
import tomllib
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.nearest import ROOT, chosen, modules, nearest, stages
from tests.mutants.trial import Copy, Verdict, load

KNOWN: Final = Path(__file__).with_name("known.toml")
KEPT: Final = ROOT / ".mutants" / "verdicts.jsonl"
SLACK_S: Final = 10
SLOWER: Final = 4
"""The CPU time limit of a mutant: this factor times the CPU time of the tests without a mutant, plus the slack."""

OUTCOMES: Final = ("killed", "survived", "timeout")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Known:
    """A survivor that a developer has reviewed.

    Attributes:
        module: as a path below `service/tarry`.
        was: the lines without the mutant.
        becomes: the lines in the mutant.
        why: the reason why no test kills it.
    """

    module: str
    was: str
    becomes: str
    why: str


def known() -> dict[tuple[str, str, str], str]:
    """Return the reasons for known survivors, by module and lines."""
    rows = [Known(**row) for row in tomllib.loads(KNOWN.read_text()).get("survivor", [])]
    return {(row.module, row.was, row.becomes): row.why for row in rows}


class Verdicts:
    """The verdicts so far, in a file to which each new verdict is appended."""

    def __init__(self, path: Path, *, afresh: bool) -> None:
        path.parent.mkdir(exist_ok=True)
        if afresh:
            path.unlink(missing_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._kept = {row["key"]: Verdict(**row["verdict"]) for row in map(json.loads, lines)}
        self._path = path

    def of(self, keys: Sequence[str]) -> Verdict | None:
        """Return the verdict of the first of the keys that has one."""
        return next((self._kept[key] for key in keys if key in self._kept), None)

    def keep(self, key: str, verdict: Verdict) -> None:
        self._kept[key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "verdict": asdict(verdict)}) + "\n")


class Trials:
    """The mutants of one module.

    Args:
        module: as a path below `service/tarry`.
        copy: a copy of the tree.
        verdicts: the verdicts so far.
        sample: the number of mutants to try at most, chosen at random but always the same; None: all.
    """

    def __init__(self, module: str, copy: Copy, verdicts: Verdicts, sample: int | None) -> None:
        self._module = module
        self._copy = copy
        self._verdicts = verdicts
        self._source = copy.read(f"service/tarry/{module}")
        self._mutants = some_of(mutants_of(self._source), sample, module)
        tests = nearest(module)
        self._stages = stages(module, tests)
        digest = hashlib.sha256(self._source)
        self._of_module = digest.hexdigest()[:16]
        for test in tests:
            digest.update(copy.read(test))
        self._of_tests = digest.hexdigest()[:16]
        self._within_s: list[int] = []

    def run(self) -> Iterator[tuple[Mutant, Verdict]]:
        """Try each mutant without a stored verdict.

        Raises:
            RuntimeError: the tests also fail without a mutant, or cannot be run.
        """
        for mutant in self._mutants:
            name = f"{self._module} {self._of_module} {mutant.start}-{mutant.end} {mutant.text}"
            of_tests = f"{name} {self._of_tests}"
            verdict = self._verdicts.of([name, of_tests])
            if verdict is None:
                verdict = self._try(mutant)
                # Another test may kill a survivor later, but a killed mutant stays killed.
                self._verdicts.keep(of_tests if verdict.outcome == "survived" else name, verdict)
            yield mutant, verdict

    def _try(self, mutant: Mutant) -> Verdict:
        if not self._within_s:
            self._within_s = [self._bound_s(stage) for stage in self._stages]
            say(f"{self._module}: at most {', '.join(map(str, self._within_s))} s of the processor a mutant")
        verdict = Verdict("survived", "", 0.0)
        for stage, within_s in zip(self._stages, self._within_s, strict=True):
            verdict = self._copy.run(self._module, mutant.of(self._source), stage, within_s)
            if verdict.outcome != "survived":
                break
        return verdict

    def _bound_s(self, stage: Sequence[str]) -> int:
        control = self._copy.run(self._module, self._source, stage, 3_600)
        if control.outcome != "survived":
            raise RuntimeError(f"{self._module}: its tests also fail without a mutant:\n{self._copy.output}")
        return round(SLOWER * control.cpu_s) + SLACK_S


def some_of(mutants: Sequence[Mutant], most: int | None, module: str) -> Sequence[Mutant]:
    """Choose mutants of a module at random, the same ones each time; they stay in their order."""
    if most is None or most >= len(mutants):
        return mutants
    indices = random.Random(module).sample(range(len(mutants)), most)
    return [mutants[index] for index in sorted(indices)]


def shown(module: str, mutant: Mutant) -> str:
    """Format a survivor as a diff."""
    lines = [f"-{line}" for line in mutant.was.splitlines()] + [f"+{line}" for line in mutant.becomes.splitlines()]
    return "\n  ".join([f"{module}:{mutant.line} ({mutant.kind})", *lines])


def run(
    module: str, copy: Copy, verdicts: Verdicts, judged: Mapping[tuple[str, str, str], str], sample: int | None
) -> Counter[str]:
    """Try the mutants of a module, and print the survivors."""
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for mutant, verdict in Trials(module, copy, verdicts, sample).run():
        counts[verdict.outcome] += 1
        key = module, mutant.was, mutant.becomes
        if verdict.outcome != "survived":
            continue
        seen.add(key)
        if key in judged:
            counts["known"] += 1
        else:
            say(f"survived: {shown(module, mutant)}")
    for key in judged if sample is None else ():
        if key[0] == module and key not in seen:
            counts["stale"] += 1
            say(f"{KNOWN.name} names no survivor: {key}")
    return counts


def line(name: str, counts: Counter[str]) -> str:
    """Format the figures of a module as one line."""
    figures = [sum(counts[outcome] for outcome in OUTCOMES), *(counts[one] for one in (*OUTCOMES, "known"))]
    return f"{name:44}" + "".join(f"{figure:>10}" for figure in figures)


def main(wanted: str, *, afresh: bool, sample: int | None) -> int:
    """Try the mutants of modules; return the number of unknown survivors."""
    every = modules()
    for module in every:
        nearest(module)
    load()
    verdicts, judged, total = Verdicts(KEPT, afresh=afresh), known(), Counter[str]()
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy(Path(directory))
        for module in chosen(wanted, every):
            counts = run(module, copy, verdicts, judged, sample)
            total += counts
            lines.append(line(module, counts))
            say(lines[-1])
    columns = ("mutants", *OUTCOMES, "known")
    say("\n".join([f"\n{'':44}" + "".join(f"{column:>10}" for column in columns), *lines, line("in all", total)]))
    return total["survived"] - total["known"] + total["stale"]


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("module", nargs="?", default="", help="a file or folder below service/tarry; all by default")
    parser.add_argument("--afresh", action="store_true", help="forget all verdicts so far")
    parser.add_argument("--sample", type=int, metavar="N", help="try at most N mutants of each module; all by default")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(arguments.module, afresh=arguments.afresh, sample=arguments.sample) > 0)
