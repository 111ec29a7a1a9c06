"""Reading a compacted log from its start to the end that it has now: the last record of each key counts."""

from collections.abc import Callable

from confluent_kafka import Message

from tarry.clock import Clock
from tarry.errors import RetriableError
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place

WITHIN_MS = 10_000
"""How long reading may take."""

READ_MOST = 1_000
READ_WAIT_S = 0.1


def last_records(
    cluster: Cluster, log: Place, start: int, end: int, clock: Clock, on_warning: Callable[[str], None]
) -> dict[bytes, Message]:
    """Return the last record of each key, those without a value too.

    Args:
        cluster: the Kafka cluster.
        log: topic and partition.
        start: the first offset that it holds.
        end: the offset to read to.
        clock: monotonic time.
        on_warning: takes the text of an error from which a client recovers by itself.

    Raises:
        RetriableError: the brokers do not answer, or do not let us read the topic.
    """
    records_of: dict[bytes, Message] = {}
    if start >= end:
        return records_of
    warnings: list[str] = []
    reader = Reader(cluster, warnings.append)
    ends_ms = clock.monotonic_ms() + WITHIN_MS
    position = start
    try:
        reader.open({log: start})
        while position < end:
            records, reached = reader.read(READ_MOST, READ_WAIT_S)
            for record in records:
                position = (record.offset() or 0) + 1
                records_of[record.key() or b""] = record
            position = max(position, reached.get(log, position))
            if position < end and clock.monotonic_ms() > ends_ms:
                why = f": {warnings[-1]}" if warnings else ""
                raise RetriableError(f"{log[0]} could not be read within {WITHIN_MS // 1000} s{why}")
    finally:
        reader.close()
    for text in warnings:
        on_warning(text)
    return records_of
