"""Small text files beside Spark's tables, on any file system that Spark supports."""

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tarry.errors import UsageError


class Files:
    """The file systems of a session.

    Args:
        spark: the session.

    Raises:
        UsageError: Spark has ended.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        if context._jvm is None:  # noqa: SLF001 (the only way to Hadoop's file systems)
            raise UsageError("Spark's Java process has ended")
        self._jvm: Any = context._jvm  # noqa: SLF001
        self._configuration: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._systems: dict[str, Any] = {}

    @property
    def java_pid(self) -> int:
        """The process id of the driver's Java."""
        return int(self._jvm.java.lang.ProcessHandle.current().pid())

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        at, system = self._at(path)
        return bool(system.exists(at))

    def absolute(self, path: str) -> str:
        """The absolute path, with its file system. It does not depend on Spark's working directory."""
        at, system = self._at(path)
        return str(system.makeQualified(at).toString())

    def names(self, directory: str) -> list[str]:
        """The names in a directory; empty if the directory does not exist."""
        at, system = self._at(directory)
        return [one.getPath().getName() for one in system.listStatus(at)] if system.exists(at) else []

    def read(self, path: str) -> str:
        """The text of a file.

        Raises:
            UsageError: the file cannot be read.
        """
        at, system = self._at(path)
        try:
            stream = system.open(at)
        except Py4JJavaError as error:
            raise _refusal(path, error) from error
        try:
            return bytes(stream.readAllBytes()).decode("utf-8", "replace")
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        """Create a file if it does not exist. A process that dies during the call may leave a part of the text.

        Returns:
            Whether this call created the file.

        Raises:
            UsageError: the file cannot be created.
        """
        at, system = self._at(path)
        try:
            stream = system.create(at, False)
        except Py4JJavaError as error:
            if system.exists(at):
                return False
            raise _refusal(path, error) from error
        _write(stream, text)
        return True

    def write(self, path: str, text: str) -> None:
        """Write a file atomically: it never exists with a part of the text.

        Raises:
            UsageError: the file cannot be written.
        """
        at, system = self._at(path)
        beside, _ = self._at(f"{path}.tmp")
        try:
            _write(system.create(beside, True), text)
        except Py4JJavaError as error:
            raise _refusal(path, error) from error
        system.delete(at, False)
        if not system.rename(beside, at):
            raise UsageError(f"{path}: cannot be written")

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its content."""
        at, system = self._at(path)
        system.delete(at, True)

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        uri = at.toUri()
        name = f"{uri.getScheme()}://{uri.getAuthority()}"
        if name not in self._systems:
            # An instance without checksum files beside local files: a truncated or edited file must be readable.
            system = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, self._configuration)
            system.setVerifyChecksum(False)
            system.setWriteChecksum(False)
            self._systems[name] = system
        return at, self._systems[name]


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _refusal(path: str, error: Py4JJavaError) -> UsageError:
    return UsageError(f"{path}: {error.java_exception.getMessage()}")
