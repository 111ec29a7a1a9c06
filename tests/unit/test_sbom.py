"""What we ship, and its bill of materials."""

import json
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from deploy.sbom import document
from deploy.shipped import LOCKS, Part, jar_at, packages_of

POM = "groupId={}\nartifactId={}\nversion={}\n"


def jar(path: Path, **poms: tuple[str, str, str]) -> Path:
    """A jar with descriptions of Maven."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("A.class", b"")
        for one in poms.values():
            archive.writestr(f"META-INF/maven/{one[0]}/{one[1]}/pom.properties", POM.format(*one))
    return path


@pytest.mark.parametrize("product", LOCKS)
def test_an_image_has_the_packages_of_its_lock_that_are_for_it(product: str) -> None:
    packages = {part.name: part.version for part in packages_of(LOCKS[product])}
    assert {"confluent-kafka", "pydantic", "tarry"} - {*packages} == {"tarry"}
    assert "colorama" not in packages  # which is for Windows
    assert len(packages) == len({*packages_of(LOCKS[product])})  # numpy in one version, not in two


def test_a_jar_is_what_its_name_and_its_own_description_say(tmp_path: Path) -> None:
    own, inner = ("io.delta", "delta-storage", "4.0.0"), ("com.example", "inner", "1.0")
    assert jar_at(jar(tmp_path / "delta-storage-4.0.0.jar", own=own, inner=inner)).name == "io.delta:delta-storage"
    epoll = jar_at(jar(tmp_path / "epoll-4.1.Final-linux-x86_64.jar", own=("io.netty", "epoll", "4.1.Final")))
    assert (epoll.name, epoll.version) == ("io.netty:epoll", "4.1.Final")
    kafka = jar_at(jar(tmp_path / "kafka-raft-4.1.2.jar"))
    assert (kafka.name, kafka.version) == ("org.apache.kafka:kafka-raft", "4.1.2")
    unknown = jar_at(jar(tmp_path / "some-thing-1.0.jar", inner=inner))
    assert (unknown.name, unknown.version) == ("some-thing", "1.0")


def test_the_document_is_cyclonedx_and_the_same_each_time() -> None:
    parts = [
        Part("Maven", "io.netty:netty-epoll", "4.1", "a" * 64),
        Part("Maven", "io.netty:netty-epoll", "4.1", "b" * 64),
        Part("Maven", "thing", "1.0", "c" * 64),
        Part("PyPI", "pydantic", "2.14.3"),
    ]
    text = document("spark", parts)
    assert text == document("spark", parts)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    made = json.loads(text)
    assert (made["bomFormat"], made["metadata"]["component"]["name"]) == ("CycloneDX", "tarry-spark")
    purls = sorted(one.get("purl", "") for one in made["components"])
    assert purls == [
        "",
        "pkg:maven/io.netty/netty-epoll@4.1",
        "pkg:maven/io.netty/netty-epoll@4.1",
        "pkg:pypi/pydantic@2.14.3",
    ]
