"""One Spark session for the tests of the pipelines, and the topics of a broker as tables."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from pyspark import RDD, SparkContext
from pyspark.serializers import AutoBatchedSerializer, CPickleSerializer
from pyspark.sql import SparkSession

from tarry.kafka.settings import Cluster
from tarry.pipelines.session import session
from tarry.pipelines.topics import TopicTables
from tarry.progress_output import tell

SETTINGS: Final = {
    "spark.driver.memory": "3g",
    # Jobs are short, and Java's second compiler would take half of the processor time. The first compiler alone gets
    # a code cache of 48 MB, which is too small for Spark: Java would throw code away and compile it again.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
    " -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}

OPTIONS: Final = tuple(word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}"))
"""The same for `tarry spark`."""

SHORT: Final = {
    # Expressions without generated code: for small tables its compilation takes longer than the job itself.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Plans that are made once: with two partitions there is nothing to learn from the first stages of a query.
    "spark.sql.adaptive.enabled": "false",
    # Texts of plans, which nobody sees, are short.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.ui.explainMode": "simple",
    # No call site of Python in errors of Spark, for which each expression asks Java some times.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""The session that tests share leaves out what takes longer than a small table.

The jobs that tests start as processes run with all that, as those of users do.
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark session, created once: one process can have only one."""
    with session("tests", "local[2]", SETTINGS | SHORT, tell) as started:
        _hand_over_rows(started.sparkContext)
        _remember_classes(started.sparkContext)
        yield started


def _hand_over_rows(context: SparkContext) -> None:
    """Let `createDataFrame` serialize rows as Java wants them.

    PySpark serializes them in other batches, so that in each job Python processes read them all, and write them anew:
    four fifths of the processor time of a small table.
    """
    written = AutoBatchedSerializer(CPickleSerializer())  # type: ignore[no-untyped-call]

    def parallelize(rows: Iterable[Any], slices: int | None = None) -> RDD[Any]:
        java: Any = context._jvm
        parts = slices or context.defaultParallelism

        def read(file: str) -> Any:
            return java.PythonRDD.readRDDFromFile(context._jsc, file, parts)

        return RDD(context._serialize_to_jvm(list(rows), written, read, read), context, written)

    context.parallelize = parallelize  # type: ignore[assignment,method-assign]


def _remember_classes(context: SparkContext) -> None:
    """Look up the classes of column expressions once.

    PySpark looks them up for each expression, and for a name without a package Java searches all jars some times.
    """
    java: Any = context._jvm
    for name in ("functions", "org.apache.spark.sql.functions", "py4j", "PythonSQLUtils", "PythonUtils"):
        vars(java)[name] = getattr(java, name)


@pytest.fixture
def topics(spark: SparkSession, bootstrap: str) -> Iterator[TopicTables]:
    with TopicTables(spark, Cluster(bootstrap)) as opened:
        yield opened
