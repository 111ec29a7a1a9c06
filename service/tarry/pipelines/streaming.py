"""Run Spark streams, once or continuously; report their progress, and end them in order."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tarry.errors import UsageError

LOOK_EVERY_S = 0.5

FAILURES = (PySparkException, Py4JError)
"""Errors of Spark, including errors of its Java that PySpark does not translate."""


def trigger(writer: DataStreamWriter, every_ms: int | None) -> DataStreamWriter:
    """Set how often a stream runs a batch.

    Args:
        writer: the stream's writer.
        every_ms: the interval between batches; None: process the current records and end.
    """
    if every_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{every_ms} milliseconds")


@dataclass(slots=True)
class BatchDone:
    """Counts of a stream: its non-empty batches, and their rows."""

    batches: int = 0
    rows: int = 0


def run(queries: Sequence[StreamingQuery], on_progress: Callable[[str], None]) -> dict[str, BatchDone]:
    """Wait until streams end, and report their batches.

    If one stream fails or the wait is interrupted, all streams are stopped. The next run repeats uncommitted batches.

    Args:
        queries: running streams, each with a name.
        on_progress: called with one line for each non-empty batch.

    Returns:
        The counts of each stream, by its name.

    Raises:
        UsageError: a stream failed.
    """
    done = {query.name: BatchDone() for query in queries}
    seen = {query.name: -1 for query in queries}
    try:
        while True:
            running = [query for query in queries if query.isActive]
            for query in queries:
                for batch in query.recentProgress:
                    if batch["batchId"] > seen[query.name]:
                        seen[query.name] = batch["batchId"]
                        _tell(batch, done[query.name], on_progress)
                if not query.isActive:
                    query.awaitTermination()  # raises the error that ended the stream
            if not running:
                return done
            time.sleep(LOOK_EVERY_S)
    except (StreamingQueryException, PySparkException) as error:
        raise UsageError(reason(error)) from error
    finally:
        for query in queries:
            query.stop()


def reason(error: Exception) -> str:
    """The first line of Spark's error message."""
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def _tell(batch: dict[str, Any], done: BatchDone, on_progress: Callable[[str], None]) -> None:
    rows = batch["numInputRows"]
    if rows:
        done.batches += 1
        done.rows += rows
        on_progress(
            f"{batch['name']}: batch {batch['batchId']}: {rows:,} rows, {batch['processedRowsPerSecond']:,.0f}/s"
        )
