"""Reading from `I.status` what the owners of an intake's partitions accept; see `tarry.core.request.status`."""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.core.request.status import Status, parsed_status
from tarry.errors import RetriableError
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS, TopicAdmin
from tarry.kafka.types import Place

WITHIN_MS = 10_000
"""How long reading the topic may take."""

READ_MOST = 1_000
READ_WAIT_S = 0.1


def statuses_of(
    intake: str,
    cluster: Cluster,
    topics: TopicAdmin,
    offsets: Offsets,
    clock: Clock,
    on_warning: Callable[[str], None],
) -> dict[int, Status]:
    """Return the published status of an intake's partitions, by number; those without one are left out.

    Args:
        intake: its name.
        cluster: the Kafka cluster.
        topics: finds topics.
        offsets: asks the brokers for offsets.
        clock: monotonic time.
        on_warning: takes the text of an error from which a client recovers by itself, or about an unreadable record.

    Raises:
        RetriableError: the brokers do not answer, or do not let us read the topic.
    """
    name = intake + STATUS
    found = topics.find([intake, name])
    if intake not in found or name not in found:
        return {}
    place = (name, 0)
    start = offsets.starts([place])[place]
    end = offsets.ends([place], committed=True)[place]
    values = _last_values(cluster, place, start, end, clock, on_warning) if start < end else {}
    statuses = {}
    for key, value in values.items():
        try:
            status = parsed_status(value)
        except ValueError as error:
            on_warning(f"{name}: key {key!r}: {error}")
            continue
        if status.partition < found[intake].partitions:
            statuses[status.partition] = status
    return statuses


def _last_values(
    cluster: Cluster, place: Place, start: int, end: int, clock: Clock, on_warning: Callable[[str], None]
) -> dict[bytes, bytes]:
    """Return the last value of each key."""
    values: dict[bytes, bytes] = {}
    warnings: list[str] = []
    reader = Reader(cluster, warnings.append)
    ends_ms = clock.monotonic_ms() + WITHIN_MS
    position = start
    try:
        reader.open({place: start})
        while position < end:
            records, reached = reader.read(READ_MOST, READ_WAIT_S)
            for record in records:
                position = (record.offset() or 0) + 1
                if record.value() is None:  # a tombstone, such as those of `broker_time`
                    values.pop(record.key() or b"", None)
                else:
                    values[record.key() or b""] = record.value() or b""
            position = max(position, reached.get(place, position))
            if position < end and clock.monotonic_ms() > ends_ms:
                why = f": {warnings[-1]}" if warnings else ""
                raise RetriableError(f"{place[0]} could not be read within {WITHIN_MS // 1000} s{why}")
    finally:
        reader.close()
    for text in warnings:
        on_warning(text)
    return values
