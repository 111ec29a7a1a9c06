"""`make mutants`: which bugs nobody would notice.

Each mutant of a module is tried in a copy of the tree, against the tests nearest to the module. What came out is kept
in `.mutants`, so that a run that was ended goes on where it was: as long as the module is what it was, and for a
survivor as long as its tests are. `known.toml` has the survivors that were judged, each with the reason why no test
kills it.
"""

import hashlib
import json
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
"""A mutant may take so many times what the tests take of the processor without it, and the slack."""

OUTCOMES: Final = ("killed", "survived", "timeout")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Known:
    """A survivor that was judged.

    Attributes:
        module: as a path below `service/tarry`.
        was: the lines as they are.
        becomes: the lines in the mutant.
        why: no test kills it.
    """

    module: str
    was: str
    becomes: str
    why: str


def known() -> dict[tuple[str, str, str], str]:
    """Why survivors are known, by module and lines."""
    rows = [Known(**row) for row in tomllib.loads(KNOWN.read_text()).get("survivor", [])]
    return {(row.module, row.was, row.becomes): row.why for row in rows}


class Verdicts:
    """What came out so far, in a file that each verdict is added to."""

    def __init__(self, path: Path, *, afresh: bool) -> None:
        path.parent.mkdir(exist_ok=True)
        if afresh:
            path.unlink(missing_ok=True)
        lines = path.read_text().splitlines() if path.exists() else []
        self._kept = {row["key"]: Verdict(**row["verdict"]) for row in map(json.loads, lines)}
        self._path = path

    def of(self, keys: Sequence[str]) -> Verdict | None:
        """The verdict under the first of the keys that has one."""
        return next((self._kept[key] for key in keys if key in self._kept), None)

    def keep(self, key: str, verdict: Verdict) -> None:
        self._kept[key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "verdict": asdict(verdict)}) + "\n")


class Trials:
    """The mutants of one module.

    Args:
        module: as a path below `service/tarry`.
        copy: of the tree.
        verdicts: what came out so far.
    """

    def __init__(self, module: str, copy: Copy, verdicts: Verdicts) -> None:
        self._module = module
        self._copy = copy
        self._verdicts = verdicts
        self._source = copy.read(f"service/tarry/{module}")
        tests = nearest(module)
        self._stages = stages(module, tests)
        digest = hashlib.sha256(self._source)
        self._of_module = digest.hexdigest()[:16]
        for test in tests:
            digest.update(copy.read(test))
        self._of_tests = digest.hexdigest()[:16]
        self._within_s: list[int] = []

    def run(self) -> Iterator[tuple[Mutant, Verdict]]:
        """Try each mutant, or say what is known of it.

        Raises:
            RuntimeError: the tests fail without any mutant, too, or cannot be run.
        """
        for mutant in mutants_of(self._source):
            name = f"{self._module} {self._of_module} {mutant.start}-{mutant.end} {mutant.text}"
            of_tests = f"{name} {self._of_tests}"
            verdict = self._verdicts.of([name, of_tests])
            if verdict is None:
                verdict = self._try(mutant)
                # Another test may notice it later; who is killed stays so.
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
            raise RuntimeError(f"{self._module}: its tests fail without any mutant, too:\n{self._copy.output}")
        return round(SLOWER * control.cpu_s) + SLACK_S


def shown(module: str, mutant: Mutant) -> str:
    """A survivor as a diff."""
    lines = [f"-{line}" for line in mutant.was.splitlines()] + [f"+{line}" for line in mutant.becomes.splitlines()]
    return "\n  ".join([f"{module}:{mutant.line} ({mutant.kind})", *lines])


def run(module: str, copy: Copy, verdicts: Verdicts, judged: Mapping[tuple[str, str, str], str]) -> Counter[str]:
    """Try the mutants of a module, and say which survived."""
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for mutant, verdict in Trials(module, copy, verdicts).run():
        counts[verdict.outcome] += 1
        key = module, mutant.was, mutant.becomes
        if verdict.outcome != "survived":
            continue
        seen.add(key)
        if key in judged:
            counts["known"] += 1
        else:
            say(f"survived: {shown(module, mutant)}")
    for key in judged:
        if key[0] == module and key not in seen:
            counts["stale"] += 1
            say(f"{KNOWN.name} names no survivor: {key}")
    return counts


def line(name: str, counts: Counter[str]) -> str:
    """The figures of a module."""
    figures = [sum(counts[outcome] for outcome in OUTCOMES), *(counts[one] for one in (*OUTCOMES, "known"))]
    return f"{name:44}" + "".join(f"{figure:>10}" for figure in figures)


def main(wanted: str, *, afresh: bool) -> int:
    """Try the mutants of modules; how many survived that nobody has judged."""
    every = modules()
    for module in every:
        nearest(module)
    load()
    verdicts, judged, total = Verdicts(KEPT, afresh=afresh), known(), Counter[str]()
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        copy = Copy(Path(directory))
        for module in chosen(wanted, every):
            counts = run(module, copy, verdicts, judged)
            total += counts
            lines.append(line(module, counts))
            say(lines[-1])
    columns = ("mutants", *OUTCOMES, "known")
    say("\n".join([f"\n{'':44}" + "".join(f"{column:>10}" for column in columns), *lines, line("in all", total)]))
    return total["survived"] - total["known"] + total["stale"]


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("module", nargs="?", default="", help="a file or folder below service/tarry; all by default")
    parser.add_argument("--afresh", action="store_true", help="forget what came out so far")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(arguments.module, afresh=arguments.afresh) > 0)
