"""The image installs exactly the versions that are locked and tested here."""

import re
import tomllib
from pathlib import Path

import pytest

from hatch_build import COMPILER
from tarry.pipelines.session import CONNECTORS

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "service" / "requirements"
CENTRAL = "https://repo1.maven.org/maven2"


def pins(lock: Path) -> set[tuple[str, ...]]:
    """Each package with its version, the machines it is for, and its hashes."""
    found = re.findall(r"(?m)^(\S+==[^\\\n]+)\\\n((?:    --hash=\S+(?: \\)?\n)+)", lock.read_text(encoding="utf-8"))
    return {(name.strip(), *re.findall(r"--hash=(\S+)", hashes)) for name, hashes in found}


def names(lock: Path) -> set[str]:
    return {pin[0].partition("==")[0] for pin in pins(lock)}


@pytest.mark.parametrize("name", ["service.lock", "spark.lock"])
def test_the_image_has_what_was_tested(name: str) -> None:
    assert pins(LOCKS / name) <= pins(ROOT / "requirements.lock")


def test_the_images_locks_have_all_required_packages_and_none_of_the_tests() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    service = [*project["dependencies"], *extras["service"]]
    jobs = [*service, *extras["broker"], *extras["spark"], *extras["postgres"]]
    for lock, asked in (("service.lock", service), ("spark.lock", jobs)):
        assert {re.split(r"[\[<>=]", each)[0] for each in asked} - {project["name"]} <= names(LOCKS / lock)
        assert not names(LOCKS / lock) & {"pytest", "mypy", "ruff"}


def test_the_image_is_built_by_the_projects_build_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = (LOCKS / "build.in").read_text(encoding="utf-8").split()
    assert asked == [*project["build-system"]["requires"], *COMPILER]
    assert {"hatchling", "mypy", "setuptools"} <= names(LOCKS / "build.lock")


def test_its_core_is_compiled_by_what_was_tested() -> None:
    locked = {pin for pin in pins(LOCKS / "build.lock") if pin[0].startswith(("mypy==", "setuptools=="))}
    assert len(locked) == 2
    assert locked <= pins(ROOT / "requirements.lock")


def test_spark_s_connectors_are_those_that_a_job_would_fetch() -> None:
    files = {
        f"{CENTRAL}/{each.organisation.replace('.', '/')}/{each.name}/{each.version}/{each.name}-{each.version}.jar"
        for each in CONNECTORS.artefacts
    }
    image = (ROOT / "service" / "Dockerfile").read_text(encoding="utf-8")
    assert set(re.findall(r"https://\S+\.jar", image)) == files
    assert f"/opt/tarry/cache/tarry/{CONNECTORS.name}/SHA256SUMS" in image
    sums = (LOCKS / "connectors.sha256").read_text(encoding="utf-8").splitlines()
    assert {line.split("  ")[1] for line in sums} == {url.rpartition("/")[2] for url in files}
