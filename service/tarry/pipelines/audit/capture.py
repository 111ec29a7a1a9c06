"""From where to where an audit reads: ends in an order in which nothing that was delivered is missed.

1. The intakes: what is accepted later is not judged.
2. The results and the dead letters: what the intakes hold and is settled has its result, what is held back its stub.
3. The targets: what has its result has arrived.

A transaction's marker reaches one partition sooner than another, so a result can be seen before its delivery is. Each
end of results, dead letters and targets is therefore where writing ends, waited for until all before it is decided.
"""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.kafka.topics import RESULTS
from tarry.kafka.types import Place
from tarry.pipelines.topics import Topics

CLOCKS_APART_MS: Final = 3_600_000
"""So far apart may be the clocks of those who stamp records: producers, brokers, processes of the service."""


def starts_since(
    topics: Topics, names: Collection[str], at_ms: int | None, ends: Mapping[Place, int]
) -> dict[Place, int]:
    """The first offsets of a time or later; the ends where there is nothing of it.

    Args:
        topics: where.
        names: of which topics.
        at_ms: the time; None: all that there is.
        ends: of them.
    """
    if not names:
        return {}
    if at_ms is None:
        return topics.starts(names)
    found = topics.since(names, max(0, at_ms))
    return {place: ends.get(place, 0) if offset < 0 else offset for place, offset in found.items()}


def deliveries_since(from_ms: int | None) -> int | None:
    """From when on results and deliveries are read for messages of a time: clocks may be apart."""
    return None if from_ms is None else from_ms - CLOCKS_APART_MS


def starts_onward(
    topics: Topics,
    names: Collection[str],
    position: Mapping[Place, int],
    ends: Mapping[Place, int],
    *,
    may_be_new: bool,
) -> dict[Place, int]:
    """Where the last run has ended; of partitions that it has not read, all that there is.

    Args:
        topics: where.
        names: of which topics.
        position: how far the last run came.
        ends: of the topics.
        may_be_new: whether a topic may have been made anew since then: it is read from its beginning.

    Raises:
        UsageError: one was made anew.
    """
    starts = topics.starts(names) if names else {}
    for place, start in starts.items():
        reached = position.get(place)
        if reached is None:
            continue
        if reached <= ends.get(place, reached):
            starts[place] = reached
        elif not may_be_new:
            raise UsageError(
                f"{place[0]}/{place[1]} ends before offset {reached}, where the last run stopped: it was made anew;"
                " name another --state"
            )
        else:
            starts[place] = start
    return starts


def trimmed(starts: Mapping[Place, int], now: Mapping[Place, int], position: Mapping[Place, int]) -> set[Place]:
    """Partitions of which records are gone that no run has read, and that may be of the time that is looked at.

    Args:
        starts: from where it was read.
        now: what the logs begin with; asked after reading, for retention goes on meanwhile.
        position: how far an earlier run came.
    """
    return {place for place, start in starts.items() if now[place] >= start and now[place] > position.get(place, 0)}


def complete_since(lost: Collection[Place], settled: DataFrame, arrived: DataFrame, *, now_ms: int) -> dict[Place, int]:
    """Since when partitions that have lost records hold all there was.

    What is left of a log was stamped by several clocks, and so was what it has lost: the oldest stamp that is left may
    be older than some that are gone. So they count as complete only from `CLOCKS_APART_MS` behind it; and behind now,
    where none is left.

    Args:
        lost: the partitions, of results and of targets.
        settled: results, as in `tarry.pipelines.audit.tables`.
        arrived: what targets hold, likewise.
        now_ms: the time.
    """
    if not lost:
        return {}
    of_targets = arrived.groupBy("target", "target_partition").agg(f.min("arrived_ms"))
    of_results = settled.groupBy(f.concat("intake", f.lit(RESULTS)), "partition").agg(f.min("at_ms"))
    oldest = {(row[0], row[1]): row[2] for row in [*of_targets.collect(), *of_results.collect()]}
    return {place: oldest.get(place, now_ms) + CLOCKS_APART_MS for place in lost}
