"""The logs of an intake's partition: their names, where they begin and end, and reading them to their ends.

Beside its log in the intake, a partition has its journal, a log in each level of the overflow wheel, and its parked
log. A take-over reads them, and so does the inspector.
"""

from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import Message

from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.source import PARKED as PARKED_LEVEL
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, wheel_topic
from tarry.kafka.types import OffsetMetadata, Place

READ_MOST = 1_000
READ_TIMEOUT_S = 0.1


def journal_of(place: Place) -> Place:
    """Return the journal of a partition of an intake."""
    return place[0] + JOURNAL, place[1]


def proof_of(places: Iterable[Place]) -> dict[Place, OffsetMetadata]:
    """Return journal offsets whose commit proves membership and does nothing else: no process reads these offsets."""
    return {journal_of(place): (0, "") for place in places}


def place_of(journal: Place) -> Place:
    """Return the partition of an intake that a journal belongs to."""
    return journal[0].removesuffix(JOURNAL), journal[1]


def level_log_of(place: Place, level: int) -> Place:
    """Return the log of a level of a partition's overflow wheel; of level 0 the partition of the intake itself.

    The level `PARKED_LEVEL` is the parked log.
    """
    if level == PARKED_LEVEL:
        return place[0] + PARKED, place[1]
    return (wheel_topic(place[0], level), place[1]) if level else place


def levels_of(geometry: Geometry) -> range:
    """Return the levels of an overflow wheel."""
    return range(1, geometry.levels + 1)


def logs_of(place: Place, geometry: Geometry) -> Iterator[Place]:
    """Return all logs of a partition, the intake's own first."""
    yield place
    for suffix in (RESULTS, JOURNAL, DEAD, PARKED):
        yield place[0] + suffix, place[1]
    for level in levels_of(geometry):
        yield level_log_of(place, level)


def read_logs_of(place: Place, geometry: Geometry) -> Iterator[Place]:
    """Return the logs of a partition that its owner reads, the intake's own first; it only writes to the others."""
    yield place
    yield journal_of(place)
    for level in (PARKED_LEVEL, *levels_of(geometry)):
        yield level_log_of(place, level)


def spans_of(offsets: Offsets, geometries: Mapping[Place, Geometry]) -> dict[Place, dict[int, tuple[int, int]]]:
    """Return the first offset and the end of each level's log, and of the parked log, for each partition."""
    logs = {
        level_log_of(place, level): (place, level)
        for place, geometry in geometries.items()
        for level in (*levels_of(geometry), PARKED_LEVEL)
    }
    spans: dict[Place, dict[int, tuple[int, int]]] = {place: {} for place in geometries}
    if logs:
        starts = offsets.starts(logs)
        ends = offsets.ends(logs, committed=False)
        for log, (place, level) in logs.items():
            spans[place][level] = (starts[log], ends[log])
    return spans


def read_to_ends(
    reader: Reader, starts: Mapping[Place, int], ends: Mapping[Place, int]
) -> Iterator[tuple[Place, Message]]:
    """Read committed records of logs, each from an offset until its end is reached; a few may lie after the end.

    Args:
        reader: nothing else uses it meanwhile.
        starts: where to begin.
        ends: of these logs, and perhaps of others; if an open transaction hides records, this waits for its end.
    """
    for part in read_in_parts(reader, starts, ends):
        yield from part


def read_in_parts(
    reader: Reader,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    most: int = READ_MOST,
    timeout_s: float = READ_TIMEOUT_S,
) -> Iterator[list[tuple[Place, Message]]]:
    """Read as `read_to_ends` does, but yield a part after each poll, so that the caller can do other work between.

    Args:
        reader: see `read_to_ends`.
        starts: see `read_to_ends`.
        ends: see `read_to_ends`.
        most: the most records in a part, which may also be empty.
        timeout_s: how long to wait for the records of a part.
    """
    if not starts:
        return
    waiting = {place: ends[place] for place in starts}
    opened = list(waiting)
    reader.open(starts)
    try:
        while waiting:
            records, reached = reader.read(most, timeout_s)
            progress = dict(reached)
            part: list[tuple[Place, Message]] = []
            for record in records:
                place = (record.topic() or "", record.partition() or 0)
                if place in waiting:
                    part.append((place, record))
                    progress[place] = max((record.offset() or 0) + 1, progress.get(place, 0))
            yield part
            for place, position in progress.items():
                if place in waiting and position >= waiting[place]:
                    del waiting[place]
    finally:
        reader.shut(opened)
