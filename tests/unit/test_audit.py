"""Published flaws of what we ship, as records in a folder tell of them."""

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.advisories import Advisories
from deploy.audit import NoAnswerError, accepted, audit, flaws_in, source_of
from deploy.shipped import Part

PYSPARK = Part("PyPI", "pyspark", "4.0.0")
DRIVER = Part("Maven", "org.postgresql:postgresql", "42.7.4")


def record(part: Part, name: str, *, age_days: int = 1, **affected: Any) -> dict[str, Any]:
    modified = datetime.now(UTC) - timedelta(days=age_days)
    package = {"ecosystem": part.ecosystem, "name": part.name}
    return {"id": name, "modified": modified.isoformat(), "affected": [{"package": package, **affected}]}


def between(introduced: str, **end: str) -> dict[str, Any]:
    """A range of versions."""
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": introduced}, end]}]}


CANARIES = (
    record(Part("PyPI", "Jinja2", ""), "PYSEC-1", versions=["2.4.1"]),
    record(Part("Maven", "org.apache.logging.log4j:log4j-core", ""), "GHSA-1", **between("2.0.0", fixed="2.15.0")),
)


def folder_of(path: Path, *records: dict[str, Any]) -> Path:
    path.mkdir(exist_ok=True)
    for one in records:
        (path / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")
    return path


def lock_of(path: Path, *pins: str) -> Path:
    lines = [f"{pin} \\\n    --hash=sha256:{'0' * 64}\n" for pin in pins]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def audited(folder: Path, lock: Path, *jars: Part, reasons: dict[str, str] | None = None) -> int:
    with source_of(folder) as source:
        return audit(source, [lock], jars, reasons or {})


def test_flaws_of_packages_and_of_jars_are_told_with_the_version_that_is_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flaws = (
        record(PYSPARK, "PYSEC-7", **between("0", fixed="4.0.1")),
        record(DRIVER, "GHSA-7", **between("42.7.4", fixed="42.7.7")),
    )
    folder = folder_of(tmp_path / "records", *CANARIES, *flaws)
    lock = lock_of(tmp_path / "a.lock", "pyspark==4.0.0", "rich==15.0.0")
    assert audited(folder, lock, DRIVER, Part("Maven", "org.postgresql:postgresql", "42.7.14")) == 1
    said = capsys.readouterr().out
    assert "FLAW: pyspark 4.0.0: PYSEC-7: fixed in 4.0.1\n" in said
    assert "FLAW: org.postgresql:postgresql 42.7.4: GHSA-7: fixed in 42.7.7\n" in said
    assert "42.7.14" not in said
    assert said.endswith("2 flaws, 0 accepted; all of it judged\n")


def test_it_is_green_if_all_is_judged_and_each_flaw_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path / "records", *CANARIES, record(DRIVER, "GHSA-7", versions=["42.7.4"]))
    lock = lock_of(tmp_path / "a.lock", "rich==15.0.0")
    assert audited(folder, lock, DRIVER, reasons={"GHSA-7": "not used"}) == 0
    said = capsys.readouterr().out
    assert f"the newest of {datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}\n" in said
    assert "accepted: org.postgresql:postgresql 42.7.4: GHSA-7: not used\n" in said


def test_it_is_not_green_without_advisories_of_an_ecosystem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "records", CANARIES[0])
    assert audited(folder, lock_of(tmp_path / "a.lock", "rich==15.0.0"), DRIVER) == 2
    assert "NOT JUDGED: 1 jars: no advisories about Maven\n" in capsys.readouterr().out


def test_it_is_not_green_by_old_advisories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = [{**one, "modified": "2024-10-10T17:22:02Z"} for one in CANARIES]
    folder = folder_of(tmp_path / "records", *old)
    assert audited(folder, lock_of(tmp_path / "a.lock", "rich==15.0.0")) == 2
    said = capsys.readouterr().out
    assert "the newest of 2024-10-10\n" in said
    assert "days old: flaws of these days are not among them\n" in said


def test_it_is_not_green_where_a_jar_does_not_name_its_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path / "records", *CANARIES)
    assert audited(folder, lock_of(tmp_path / "a.lock", "rich==15.0.0"), Part("Maven", "driver", "1")) == 2
    assert "NOT JUDGED: 1 jars that do not name their group: driver\n" in capsys.readouterr().out


def test_packages_that_pip_audit_did_not_judge_are_no_answer() -> None:
    judged = {"name": "rich", "version": "15.0.0", "vulns": []}
    skipped = {"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1)"}
    assert flaws_in(json.dumps({"dependencies": [judged]})) == []
    with pytest.raises(NoAnswerError, match="1 packages were not judged: Dependency not found"):
        flaws_in(json.dumps({"dependencies": [judged, skipped]}))


def test_a_folder_without_records_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="no records in the OSV format"), source_of(tmp_path):
        pass


@pytest.mark.parametrize(
    ("version", "affected"),
    [("1.9", False), ("2.0", True), ("2.10", True), ("3.0", False), ("3.5", True), ("3.6", False), ("4.1", True)],
)
@pytest.mark.parametrize("part", [PYSPARK, DRIVER])
def test_ranges_are_compared_as_the_ecosystem_compares_versions(
    tmp_path: Path, part: Part, version: str, *, affected: bool
) -> None:
    events = [
        {"introduced": "2.0"},
        {"fixed": "3.0"},
        {"introduced": "3.1"},
        {"last_affected": "3.5"},
        {"introduced": "4.1"},
    ]
    flaw = record(part, "F-1", ranges=[{"type": "ECOSYSTEM", "events": events}])
    found = Advisories(folder_of(tmp_path, flaw)).about(part.ecosystem, part.name, version)
    assert bool(found) is affected


def test_records_are_read_from_yaml_and_from_zip_files_and_withdrawn_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "id: PYSEC-1\nmodified: 2026-05-20T09:19:16Z\naffected:\n"
        "- package: {ecosystem: PyPI, name: pyspark}\n  versions: ['4.0.0']\n",
        encoding="utf-8",
    )
    withdrawn = record(PYSPARK, "PYSEC-2", versions=["4.0.0"]) | {"withdrawn": "2026-01-01T00:00:00Z"}
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-2.json", json.dumps(withdrawn))
        archive.writestr("PYSEC-3.json", json.dumps(record(PYSPARK, "PYSEC-3", versions=["4.0.0"])))
    found = Advisories(tmp_path).about("PyPI", "PySpark", "4.0.0")
    assert {one["id"] for one in found} == {"PYSEC-1", "PYSEC-3"}


def test_a_record_that_is_dated_in_the_future_is_not_the_date_of_the_advisories(tmp_path: Path) -> None:
    folder_of(tmp_path, record(PYSPARK, "A", age_days=40), record(PYSPARK, "B", age_days=-200))
    newest = Advisories(tmp_path).newest
    assert newest is not None
    assert (datetime.now(UTC) - newest).days == 40


def test_each_accepted_flaw_has_a_reason() -> None:
    assert all(len(why) > 20 for why in accepted().values())
