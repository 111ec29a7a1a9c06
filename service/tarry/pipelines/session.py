"""The Spark session of a job: on this machine, on a cluster, or the one that `spark-submit` has begun."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.jars import Artefact, Jars, find_java

SPARK_VERSION: Final = "4.0.0"
LOCAL: Final = "local[2]"

# Each alone: what they need beside comes with PySpark.
CONNECTORS: Final = Jars(
    f"spark-{SPARK_VERSION}",
    f"Spark's connectors for Kafka, Delta and PostgreSQL ({SPARK_VERSION}, 19 MB, once)",
    (
        Artefact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Artefact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Artefact("org.apache.kafka", "kafka-clients", "3.9.0", alone=True),
        Artefact("org.apache.commons", "commons-pool2", "2.12.0", alone=True),
        Artefact("io.delta", "delta-spark_2.13", "4.0.0", alone=True),
        Artefact("io.delta", "delta-storage", "4.0.0", alone=True),
        Artefact("org.postgresql", "postgresql", "42.7.4", alone=True),
    ),
)

_MODULE: Final = "jdk.incubator.vector"
"""Spark has its Java open it, which does not start without it."""

_ALWAYS: Final = {
    # Instants, everywhere: nothing may depend on where a driver runs.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Delta keeps its log in 50 partitions, which is too many for two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
}


_LOGS_OF_ERRORS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Write what is raised to stderr as well, with Java's whole stack; the job's own error says it once."""


@contextmanager
def session(
    name: str, master: str | None, settings: Mapping[str, str], on_progress: Callable[[str], None]
) -> Iterator[SparkSession]:
    """A session, ended with the block.

    Under `spark-submit` it is the one that was begun there, with its master and its jars.

    Args:
        name: of the job, in Spark's own pages.
        master: Spark's; None: `LOCAL`.
        settings: more of Spark's, which win over ours.
        on_progress: told before anything that takes a while.

    Raises:
        UsageError: no Java, the jars can't be fetched, or Spark does not start.
    """
    for log in _LOGS_OF_ERRORS:
        PySparkLogger.getLogger(log).disabled = True
    builder = SparkSession.Builder().appName(f"tarry {name}")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    ours = dict(_ALWAYS)
    if not is_submitted:
        java = find_java(module=_MODULE)
        os.environ["JAVA_HOME"] = str(java.path.resolve().parents[1])
        jars = CONNECTORS.get(java, on_progress)
        ours |= {
            "spark.master": master or LOCAL,
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
            "spark.log.level": "ERROR",
        }
        if (master or LOCAL).startswith("local"):
            ours |= _HERE
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in (ours | dict(settings)).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise UsageError(f"Spark does not start: {str(error).splitlines()[0]}") from error
    try:
        yield spark
    finally:
        spark.stop()
