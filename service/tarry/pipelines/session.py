"""The Spark session of a job: local, on a cluster, or started by `spark-submit`."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tarry.errors import UsageError
from tarry.jars import Artefact, Jars, find_java
from tarry.pipelines.streaming import FAILURES

SPARK_VERSION: Final = "4.0.0"
LOCAL: Final = "local[2]"

KAFKA_CLIENTS_VERSION: Final = "3.9.2"
POSTGRESQL_VERSION: Final = "42.7.14"
"""Newer than the versions that Spark 4.0.0 and its documents name: those have published flaws."""

# Without transitive dependencies: PySpark brings those. The name has the versions, so that no old cache is used.
CONNECTORS: Final = Jars(
    f"spark-{SPARK_VERSION}-kafka-{KAFKA_CLIENTS_VERSION}-postgresql-{POSTGRESQL_VERSION}",
    f"Spark's connectors for Kafka, Delta and PostgreSQL ({SPARK_VERSION}, 19 MB, once)",
    (
        Artefact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Artefact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Artefact("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS_VERSION, alone=True),
        Artefact("org.apache.commons", "commons-pool2", "2.12.0", alone=True),
        Artefact("io.delta", "delta-spark_2.13", "4.0.0", alone=True),
        Artefact("io.delta", "delta-storage", "4.0.0", alone=True),
        Artefact("org.postgresql", "postgresql", POSTGRESQL_VERSION, alone=True),
    ),
)

_MODULE: Final = "jdk.incubator.vector"
"""Spark passes --add-modules for this module; a JRE that lacks it fails to start."""

_ALWAYS: Final = {
    # UTC everywhere: no result may depend on the time zone of the driver.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # With Spark's defaults for these two, each `persist` clones the session, and Spark 4.0.0 never frees a clone
    # (SPARK-54753): a stream would grow with each batch. The results are the same: the first decides
    # when Spark uses the buckets of a bucketed table, the second whether it may merge partitions of a persisted one.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
_STDERR: Final = 2
_HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Delta's default of 50 partitions for its log is too many for two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
}


_LOGS_OF_ERRORS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""These loggers also write each raised error to stderr, with Java's whole stack trace; the job reports it once."""


@contextmanager
def session(
    name: str,
    master: str | None,
    settings: Mapping[str, str],
    on_progress: Callable[[str], None],
    *,
    shows_log: bool = False,
) -> Iterator[SparkSession]:
    """Open a Spark session, and stop it at the end of the block.

    Its Java writes stderr to a file, whose path is reported only if Spark failed. Under `spark-submit` this is the
    session that `spark-submit` started, with its master, its jars and its log.

    Args:
        name: the name of the job, shown in Spark's UI.
        master: the Spark master; None: `LOCAL`.
        settings: more Spark settings; they override those of this module.
        on_progress: called before each slow step.
        shows_log: let Java write to this process's stderr.

    Raises:
        UsageError: there is no suitable Java, the jars cannot be downloaded, or Spark does not start.
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
            "spark.ui.showConsoleProgress": str(shows_log and sys.stderr.isatty()).lower(),
            "spark.log.level": "ERROR",
        }
        if (master or LOCAL).startswith("local"):
            ours |= _HERE
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in (ours | dict(settings)).items():
        builder = builder.config(key, value)
    with ExitStack() as until_the_end:
        own_log = is_submitted or shows_log
        java_stderr = nullcontext() if own_log else until_the_end.enter_context(_log_of_java(on_progress))
        try:
            with java_stderr:
                spark = builder.getOrCreate()
        except (PySparkException, OSError) as error:
            raise UsageError(f"Spark does not start: {str(error).splitlines()[0]}") from error
        until_the_end.callback(spark.stop)
        yield spark


@contextmanager
def _log_of_java(on_progress: Callable[[str], None]) -> Iterator[AbstractContextManager[None]]:
    """Create a file for Java's stderr, and yield a context in which Java must be started.

    The file is removed at the end of the block. If an error of Spark ended the block, the file stays and its path is
    reported.
    """
    number, name = tempfile.mkstemp(prefix="tarry-spark-", suffix=".log")
    stays = False
    try:
        yield _stderr_to(number)
    except Exception as error:
        stays = _is_sparks(error)
        if stays:
            on_progress(f"Spark's log: {name}")
        raise
    finally:
        if not stays:
            Path(name).unlink()
        os.close(number)


@contextmanager
def _stderr_to(number: int) -> Iterator[None]:
    """Redirect the stderr of processes that are started in this block to a file."""
    sys.stderr.flush()
    own = os.dup(_STDERR)
    os.dup2(number, _STDERR)
    try:
        yield
    finally:
        os.dup2(own, _STDERR)
        os.close(own)


def _is_sparks(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a failure of Spark; an `AnalysisException` is a usage error."""
    while error is not None:
        if isinstance(error, FAILURES):
            return not isinstance(error, AnalysisException)
        error = error.__cause__
    return False
