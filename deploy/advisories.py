"""Answers as osv.dev does, from records in a folder: for machines that do not reach osv.dev.

The folder has records in the OSV format, as JSON or YAML, also in zip files: a clone of the repository
`pypa/advisory-database` on GitHub, or the files `all.zip` that osv.dev offers for PyPI and Maven. `pip-audit` and
`deploy/audit.py` ask a server on the loopback address as they would ask osv.dev.
"""

import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import yaml
from univers.versions import MavenVersion, PypiVersion, Version

Record = Mapping[str, Any]

_VERSIONS: Final[dict[str, type[Version]]] = {"PyPI": PypiVersion, "Maven": MavenVersion}


class Advisories:
    """The records of a folder.

    Args:
        folder: searched with all folders below it.

    Raises:
        OSError, ValueError: a file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.newest: datetime | None = None
        """When the newest record was modified; None without any record. Some records are dated in the future: they do
        not count."""
        self._records: dict[tuple[str, str], list[Record]] = defaultdict(list)
        now = datetime.now(UTC)
        for text, is_json in _texts(folder):
            record = json.loads(text) if is_json else yaml.load(text, yaml.CSafeLoader)
            if not isinstance(record, dict) or "affected" not in record:
                continue
            modified = _time(record.get("modified"))
            if modified is not None and modified <= now and (self.newest is None or modified > self.newest):
                self.newest = modified
            for place in {_place(affected) for affected in record["affected"]}:
                self._records[place].append(record)

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def about(self, ecosystem: str, name: str, version: str) -> list[Record]:
        """Return the records that affect a version; those that were withdrawn are left out."""
        place = ecosystem, _normal(ecosystem, name)
        return [
            record
            for record in self._records.get(place, ())
            if not record.get("withdrawn")
            and any(_place(one) == place and _affects(one, ecosystem, version) for one in record["affected"])
        ]


@contextmanager
def served(advisories: Advisories) -> Iterator[str]:
    """Answer queries as osv.dev does; yields the address for them."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            package = query["package"]
            found = advisories.about(package["ecosystem"], package["name"], query["version"])
            body = json.dumps({"vulns": found} if found else {}, default=str).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def _time(said: object) -> datetime | None:
    """Return a time in the form of RFC 3339, or as YAML has read it."""
    time = said if isinstance(said, datetime) else datetime.fromisoformat(str(said)) if said else None
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _texts(folder: Path) -> Iterator[tuple[bytes, bool]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".json", ".yaml", ".yml"} and path.is_file():
            yield path.read_bytes(), path.suffix == ".json"
        elif path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".json"):
                        yield archive.read(name), True


def _place(affected: Record) -> tuple[str, str]:
    package = affected.get("package", {})
    ecosystem = str(package.get("ecosystem", ""))
    return ecosystem, _normal(ecosystem, str(package.get("name", "")))


def _normal(ecosystem: str, name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower() if ecosystem == "PyPI" else name


def _affects(affected: Record, ecosystem: str, version: str) -> bool:
    """Whether a version is listed, or within a range (the algorithm of the OSV format)."""
    if version in affected.get("versions", ()):
        return True
    ranges = [each["events"] for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM"]
    return any(_within(events, _VERSIONS[ecosystem], version) for events in ranges)


def _within(events: Sequence[Mapping[str, str]], of: type[Version], text: str) -> bool:
    version, inside = of(text), False
    steps = [(kind, each) for event in events for kind, each in event.items() if kind != "limit"]
    # A range begins at "0", which stands for the first version of all.
    for kind, each in sorted(steps, key=lambda step: (step[1] != "0", of(step[1]))):
        reached = each == "0" or version >= of(each)
        if kind == "introduced" and reached:
            inside = True
        elif (kind == "fixed" and reached) or (kind == "last_affected" and version > of(each)):
            inside = False
    return inside
