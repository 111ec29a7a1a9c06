"""`make audit`: which parts of what we ship have published flaws.

It asks osv.dev, or records in a folder (`make audit ADVISORIES=DIR`, `deploy/advisories.py`): `pip-audit` about the
packages of the images' locks, and this module about the jars. It prints the date of what it was told.

The exit code is 0 only if all parts were judged, by data that is at most 30 days old, and no flaw is left. It is 1 if
there are flaws, and 2 if there is no answer for some parts, or an old one. `deploy/accepted-flaws.toml` lists flaws
that do not concern us, with the reasons.
"""

import json
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deploy.advisories import Advisories, served
from deploy.shipped import LOCKS, PRODUCTS, ROOT, Part, parts_of

OSV: Final = "https://api.osv.dev/v1/query"
ACCEPTED: Final = ROOT / "deploy" / "accepted-flaws.toml"
OLDEST: Final = timedelta(days=30)
KNOWN_TO_BE_FLAWED: Final = (
    Part("PyPI", "jinja2", "2.4.1"),
    Part("Maven", "org.apache.logging.log4j:log4j-core", "2.14.1"),
)
"""A source that knows nothing of one of these has no data of its ecosystem: its silence about others says nothing."""
_WITHIN_S: Final = 20.0


class NoAnswerError(Exception):
    """The source of advisories gives no answer."""


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    """A published flaw of a part.

    Attributes:
        part: the part, with its version.
        names: the identifiers of the flaw, the advisory's own first.
        fixed: the versions that are without it.
    """

    part: str
    names: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where advisories come from.

    Attributes:
        address: where queries go.
        said: what it is, and of when.
        dated: the time of its newest record; None for osv.dev, which is up to date.
    """

    address: str
    said: str
    dated: datetime | None = None


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def source_of(folder: Path | None) -> Iterator[Source]:
    """Return osv.dev, or the records of a folder while they are served.

    Raises:
        NoAnswerError: the folder has no record.
    """
    if folder is None:
        yield Source(OSV, f"osv.dev, asked on {datetime.now(UTC):%Y-%m-%d}")
        return
    advisories = Advisories(folder)
    dated = advisories.newest
    if dated is None:
        raise NoAnswerError(f"{folder} has no records in the OSV format")
    with served(advisories) as address:
        yield Source(address, f"{len(advisories)} records in {folder}, the newest of {dated:%Y-%m-%d}", dated)


def ask(address: str, part: Part) -> list[Mapping[str, Any]]:
    """Return the advisories about a part.

    Raises:
        NoAnswerError: nobody answers at the address.
    """
    query = {"package": {"ecosystem": part.ecosystem, "name": part.name}, "version": part.version}
    request = urllib.request.Request(  # noqa: S310 (osv.dev, or our own server)
        address, json.dumps(query).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_WITHIN_S) as answer:  # noqa: S310
            return list(json.load(answer).get("vulns", []))
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"no answer from {address}: {getattr(error, 'reason', error)}") from error


def flaws_of_jars(address: str, jars: Iterable[Part]) -> list[Flaw]:
    """Ask about jars."""
    found = []
    for jar in jars:
        for record in ask(address, jar):
            if not record.get("withdrawn"):
                events = [
                    event
                    for one in record["affected"]
                    if one.get("package", {}).get("name") == jar.name
                    for each in one.get("ranges", ())
                    for event in each["events"]
                ]
                fixed = tuple(event["fixed"] for event in events if "fixed" in event)
                found.append(Flaw(f"{jar.name} {jar.version}", (record["id"], *record.get("aliases", ())), fixed))
    return found


def flaws_of_lock(address: str, lock: Path) -> list[Flaw]:
    """Let `pip-audit` ask about the packages of a lock.

    Raises:
        NoAnswerError: it could not.
    """
    options = [
        "--vulnerability-service",
        "osv",
        "--osv-url",
        address,
        "--require-hashes",
        "--disable-pip",
        "--format",
        "json",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--requirement", str(lock), "--progress-spinner", "off", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if not run.stdout.startswith("{"):
        lines = run.stderr.strip().splitlines() or ["it says nothing"]
        raise NoAnswerError(f"pip-audit: {lines[-1]}")
    return flaws_in(run.stdout)


def flaws_in(report: str) -> list[Flaw]:
    """Read the report of `pip-audit`. It is green with packages that it could not judge: we are not.

    Raises:
        NoAnswerError: there are such packages.
    """
    packages = json.loads(report)["dependencies"]
    if skipped := [one["skip_reason"] for one in packages if "skip_reason" in one]:
        raise NoAnswerError(f"pip-audit: {len(skipped)} packages were not judged: {skipped[0]}")
    return [
        Flaw(f"{one['name']} {one['version']}", (flaw["id"], *flaw["aliases"]), tuple(flaw["fix_versions"]))
        for one in packages
        for flaw in one["vulns"]
    ]


def accepted(path: Path = ACCEPTED) -> dict[str, str]:
    """Return the reasons for accepted flaws, by their identifiers."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("flaw", [])
    return {row["id"]: row["why"] for row in rows}


def audit(source: Source, packages: Iterable[Path], jars: Iterable[Part], reasons: Mapping[str, str]) -> int:
    """Print the flaws of some locks and jars, and return the exit code."""
    say(f"advisories: {source.said}")
    unjudged, flaws = [], set[Flaw]()
    if source.dated is not None and (age := datetime.now(UTC) - source.dated) > OLDEST:
        unjudged.append(f"the advisories are {age.days} days old: flaws of these days are not among them")
    judged = {part.ecosystem for part in KNOWN_TO_BE_FLAWED if ask(source.address, part)}
    jars = list(jars)
    if "PyPI" in judged:
        for lock in packages:
            flaws.update(flaws_of_lock(source.address, lock))
    else:
        unjudged.append("the packages: no advisories about PyPI")
    nameless = [jar for jar in jars if ":" not in jar.name]
    if "Maven" in judged:
        flaws.update(flaws_of_jars(source.address, (jar for jar in jars if ":" in jar.name)))
        if nameless:
            unjudged.append(
                f"{len(nameless)} jars that do not name their group: {', '.join(jar.name for jar in nameless)}"
            )
    elif jars:
        unjudged.append(f"{len(jars)} jars: no advisories about Maven")
    left = 0
    for flaw in sorted(flaws):
        why = next((reasons[name] for name in flaw.names if name in reasons), "")
        left += not why
        fixed = f"fixed in {', '.join(flaw.fixed)}" if flaw.fixed else "no fixed version"
        say(f"{'accepted' if why else 'FLAW'}: {flaw.part}: {' '.join(flaw.names)}: {why or fixed}")
    for what in unjudged:
        say(f"NOT JUDGED: {what}")
    say(f"{left} flaws, {len(flaws) - left} accepted; {'not all' if unjudged else 'all'} of it judged")
    return 1 if left else 2 if unjudged else 0


def main() -> int:
    """Judge all products."""
    parser = ArgumentParser(prog="make audit")
    parser.add_argument("--advisories", type=Path, help="a folder of records in the OSV format, instead of osv.dev")
    folder = parser.parse_args().advisories
    jars = {part for product in PRODUCTS for part in parts_of(product) if part.ecosystem == "Maven"}
    try:
        with source_of(folder) as source:
            return audit(source, LOCKS.values(), sorted(jars), accepted())
    except NoAnswerError as error:
        say(f"NOT JUDGED: no advisories: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
