"""One Spark session for the tests of the pipeline, and records to read with it."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import pytest
from pyspark.sql import SparkSession

from tarry.kafka.settings import Cluster
from tarry.pipelines.session import session
from tarry.pipelines.topics import Topics
from tarry.progress_output import tell


class Sent(NamedTuple):
    """A record to write with a plain producer."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


SETTINGS: Final = {
    "spark.driver.memory": "1g",
    # Short jobs: Java's second compiler would take half of the processor time, for nothing.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}

OPTIONS: Final = tuple(word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}"))
"""The same for `tarry spark`."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine, made once: a second in one process would be the same."""
    with session("tests", "local[2]", SETTINGS, tell) as started:
        yield started


@pytest.fixture
def topics(spark: SparkSession, bootstrap: str) -> Iterator[Topics]:
    with Topics(spark, Cluster(bootstrap)) as opened:
        yield opened
