"""Jars of Maven Central for whatever runs on Java: fetched once, checked, kept."""

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
        name: of its directory in the cache: another set has another name.
        title: what it is, and how large, for people.
        artefacts: of Maven Central.
    """

    name: str
    title: str
    artefacts: tuple[Artefact, ...]

    def get(self, java: Java, on_progress: Progress) -> tuple[Path, ...]:
        """The jars, fetched where they are not there yet, in 10 to 60 s.

        Args:
            java: that fetches them.
            on_progress: told before anything that takes a while.

        Raises:
            UsageError: they can't be fetched or kept.
        """

        def fetch(into: Path) -> None:
            fetch_jars(java, into, self.artefacts, self.title)

        return cached_jars(cache_directory(self.name), fetch, on_progress, self.title)
