"""Kafka's classes as Java has them in memory once they are loaded and verified: one file, for all brokers to come.

With it (Java calls it class-data sharing) a broker needs about a third less processor time until it answers. Java
writes the file when a broker ends (`EmbeddedBroker.archive_classes`), which takes as long as a start. A file that does
not suit the Java or the jars is not used: its name is made of both, and Java itself compares them again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tarry.jars import Java

_SUFFIX: Final = ".jsa"


def archive_of(java: Java, jars: Sequence[Path]) -> Path:
    """Return the path of the archive for a Java and some jars, beside the directory of the jars; it may not exist."""
    files = [java.path.resolve(), *jars]
    known = "\n".join(f"{path} {path.stat().st_mtime_ns}" for path in files)
    directory = jars[0].parent
    return directory.with_name(f"{directory.name}-{hashlib.sha256(known.encode()).hexdigest()[:12]}{_SUFFIX}")


def reading(archive: Path) -> list[str]:
    """Return the options of a Java that uses the archive; none if it does not exist, or is empty.

    It is empty if this Java cannot write one, as one without an archive of its own classes.
    """
    has_classes = archive.exists() and archive.stat().st_size > 0
    return [f"-XX:SharedArchiveFile={archive}"] if has_classes else []


def writing(archive: Path) -> list[str]:
    """Return the options of a Java that writes the archive at its end."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]
