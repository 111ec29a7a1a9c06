"""Paths on whatever file system Spark knows."""

from pyspark.sql import SparkSession

from tarry.errors import UsageError


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is something at a path.

    Raises:
        UsageError: Spark has ended.
    """
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001 (the only way to Hadoop's file systems)
    if jvm is None:
        raise UsageError("Spark's Java has ended")
    at = jvm.org.apache.hadoop.fs.Path(path)
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
    return bool(at.getFileSystem(configuration).exists(at))
