"""Small files of text where Spark's tables are: on any file system that Spark knows."""

from typing import Any

from pyspark.sql import SparkSession

from tarry.errors import UsageError


class Files:
    """The file systems of a session.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        if context._jvm is None:  # noqa: SLF001 (the only way to Hadoop's file systems)
            raise UsageError("Spark's Java has ended")
        self._jvm: Any = context._jvm  # noqa: SLF001
        self._configuration: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def names(self, directory: str) -> list[str]:
        """What a directory holds; nothing where there is none."""
        at, system = self._at(directory)
        return [one.getPath().getName() for one in system.listStatus(at)] if system.exists(at) else []

    def read(self, path: str) -> str:
        """The text of a file."""
        at, system = self._at(path)
        stream = system.open(at)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file: it is never there with a part of the text."""
        at, system = self._at(path)
        beside, _ = self._at(f"{path}.tmp")
        stream = system.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        system.delete(at, False)
        if not system.rename(beside, at):
            raise UsageError(f"{path} could not be written")

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that it holds."""
        at, system = self._at(path)
        system.delete(at, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at, at.getFileSystem(self._configuration)
