"""Jars from Maven Central for programs that run on Java: downloaded once, verified and kept in a cache."""

from dataclasses import dataclass
from pathlib import Path

from tarry.jars.cache import Progress, cache_directory, cached_jars
from tarry.jars.ivy import Artefact, fetch_jars
from tarry.jars.java import Java, find_java

__all__ = ["Artefact", "Jars", "Java", "Progress", "find_java"]


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars.

    Attributes:
        name: the name of its directory in the cache; each set needs its own name.
        title: a description with the size, for people.
        artefacts: the artefacts on Maven Central.
    """

    name: str
    title: str
    artefacts: tuple[Artefact, ...]

    def get(self, java: Java, on_progress: Progress) -> tuple[Path, ...]:
        """Return the paths of the jars. If the cache does not have them, download them first, which takes 10 to 60 s.

        Args:
            java: the Java that runs the download.
            on_progress: called with one line of text before a step that takes a while.

        Raises:
            UsageError: the jars cannot be downloaded or written to the cache.
        """

        def fetch(into: Path) -> None:
            fetch_jars(java, into, self.artefacts, self.title)

        return cached_jars(cache_directory(self.name), fetch, on_progress, self.title)
