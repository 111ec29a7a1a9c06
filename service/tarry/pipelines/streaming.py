"""Running streams: up to now and then end, or on and on; telling how far they are, and ending in order."""

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
"""What Spark raises, or its Java where PySpark has no word for it."""


def trigger(writer: DataStreamWriter, every_ms: int | None) -> DataStreamWriter:
    """Have a stream go on with a batch every so often; None: up to what is there now, and then end.

    Args:
        writer: of the stream.
        every_ms: how often.
    """
    if every_ms is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{every_ms} milliseconds")


@dataclass(slots=True)
class Done:
    """What a stream did: batches that held something, and their rows."""

    batches: int = 0
    rows: int = 0


def run(queries: Sequence[StreamingQuery], on_progress: Callable[[str], None]) -> dict[str, Done]:
    """Wait until streams end, and tell of their batches.

    Whatever ends the waiting ends all of them; what a batch had not committed is done again by the next run.

    Args:
        queries: running, each with a name.
        on_progress: told of each batch that held something.

    Returns:
        What each did, by its name.

    Raises:
        UsageError: one failed.
    """
    done = {query.name: Done() for query in queries}
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
                    query.awaitTermination()  # raises what ended it
            if not running:
                return done
            time.sleep(LOOK_EVERY_S)
    except (StreamingQueryException, PySparkException) as error:
        raise UsageError(reason(error)) from error
    finally:
        for query in queries:
            query.stop()


def reason(error: Exception) -> str:
    """What Spark has to say, in one line."""
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def _tell(batch: dict[str, Any], done: Done, on_progress: Callable[[str], None]) -> None:
    rows = batch["numInputRows"]
    if rows:
        done.batches += 1
        done.rows += rows
        on_progress(
            f"{batch['name']}: batch {batch['batchId']}: {rows:,} rows, {batch['processedRowsPerSecond']:,.0f}/s"
        )
