"""`make brokers`: what the service needs of Kafka, on several versions of it.

For each version it runs the contracts (what we take Kafka and its client library to do), and short end-to-end tests,
on embedded brokers of this version. It prints a table in Markdown; the exit code is 1 if a test failed. Contracts about
what a version does not have yet are skipped there, and counted.
"""

import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from packaging.version import Version

from tests.contracts.members import CONSUMER_SINCE

ROOT: Final = Path(__file__).parents[2]
VERSIONS: Final = ("3.9.2", "4.0.2", "4.1.2", "4.4.0")
"""The last patch of some lines, and the newest."""
ITSELF: Final = "tests/integration/test_embedded_broker.py::test_it_is_the_kafka_of_this_run"
OVERFLOW: Final = (
    "tests/e2e/test_overflow.py::test_messages_through_three_levels_arrive_once_in_order_and_nothing_stays_behind"
)
SEED: Final = 350615919
HEAD: Final = "| Kafka | group protocols | contracts | end to end |\n|---|---|---|---|"


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the tests of a tier: how many passed and were skipped, and the names of those that failed."""

    passed: int
    skipped: int
    failed: tuple[str, ...]

    def __str__(self) -> str:
        """The cell of a table."""
        parts = [f"{self.passed} passed"]
        parts += [f"{len(self.failed)} **failed**"] if self.failed else []
        parts += [f"{self.skipped} not there yet"] if self.skipped else []
        return ", ".join(parts)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def counts_of(report: Path, tier: str) -> Counts:
    """Read pytest's report: the tests of a tier.

    Args:
        report: JUnit's XML.
        tier: the folder below `tests`.
    """
    outcomes, failed = Counter[str](), []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 (pytest has just written it)
        name = case.get("classname", "")
        if name.startswith(f"tests.{tier}."):
            told = {child.tag for child in case}
            outcome = "failed" if told & {"failure", "error"} else "skipped" if "skipped" in told else "passed"
            outcomes[outcome] += 1
            if outcome == "failed":
                failed.append(f"{name}::{case.get('name')}")
    return Counts(outcomes["passed"], outcomes["skipped"], tuple(failed))


def protocols(version: str) -> list[str]:
    """Return the group protocols that a version has for our client library."""
    return ["classic", "consumer"] if Version(version) >= Version(CONSUMER_SINCE) else ["classic"]


def command(version: str, report: Path) -> list[str]:
    """Return the command that tries a version."""
    whole = ["tests/e2e/test_delivery.py", *(f"{OVERFLOW}[{protocol}]" for protocol in protocols(version))]
    options = ["-q", "-p", "no:cacheprovider", "--seed", str(SEED), "--kafka-version", version, f"--junitxml={report}"]
    # A contract is tried on the real broker and on the fake one, which is always the same.
    return [sys.executable, "-m", "pytest", "tests/contracts", ITSELF, *whole, "-k", "not fake", *options]


def main() -> int:
    parser = ArgumentParser(prog="make brokers")
    parser.add_argument("version", nargs="*", default=VERSIONS, help="versions of Kafka, such as 3.9.2")
    rows, failed = [HEAD], list[str]()
    with tempfile.TemporaryDirectory() as work:
        for version in parser.parse_args().version:
            say(f"Kafka {version}")
            report, began = Path(work, f"{version}.xml"), time.monotonic()
            run = subprocess.run(command(version, report), cwd=ROOT, check=False)
            say(f"Kafka {version}: {time.monotonic() - began:.0f} s")
            if not report.exists():
                failed.append(f"{version}: pytest ended with {run.returncode}")
                continue
            contracts, whole, itself = (counts_of(report, tier) for tier in ("contracts", "e2e", "integration"))
            rows.append(f"| {version} | {', '.join(protocols(version))} | {contracts} | {whole} |")
            failed += [f"{version}: {name}" for name in (*contracts.failed, *whole.failed, *itself.failed)]
            if itself.passed != 1:
                failed.append(f"{version}: it was another version")
    say("\n".join(["", *rows, "", *failed]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
