"""The archive of Kafka's classes: its name, and the options of a Java that reads it."""

import os
from pathlib import Path

from tarry.devbroker.class_archive import archive_of, reading
from tarry.jars import Java


def test_another_java_or_other_jars_have_another_archive(tmp_path: Path) -> None:
    (directory := tmp_path / "kafka-1").mkdir()
    files = [tmp_path / "java", directory / "a.jar", directory / "b.jar"]
    for file in files:
        file.touch()
        os.utime(file, (1, 1))
    java, jars = Java(files[0], 17), files[1:]
    known = archive_of(java, jars)
    assert known.parent == tmp_path
    assert archive_of(java, jars) == known
    others = {archive_of(java, jars[:1])}
    for file in files:
        os.utime(file, (2, 2))
        others.add(archive_of(java, jars))
    assert len(others - {known}) == 1 + len(files)


def test_an_archive_that_does_not_exist_or_that_java_could_not_write_is_not_asked_for(tmp_path: Path) -> None:
    archive = tmp_path / "archive.jsa"
    assert reading(archive) == []
    archive.touch()
    assert reading(archive) == []
    archive.write_bytes(b"classes")
    assert reading(archive) == [f"-XX:SharedArchiveFile={archive}"]
