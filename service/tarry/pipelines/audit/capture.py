"""The offset ranges that an audit reads. It takes the ends in an order in which it misses no delivery.

1. The intakes: messages that are accepted later are not judged.
2. The results and the dead letters: a settled message of the intakes has its result below these ends, and a message
   that is held back has its stub.
3. The targets: a message with a result has arrived below these ends.

A transaction's markers reach its partitions at different times, so a result may be visible before its delivery. For
results, dead letters and targets the audit therefore takes the high watermark, and waits until all transactions below
it have ended.
"""

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.errors import UsageError
from tarry.kafka.topics import RESULTS
from tarry.kafka.types import Place
from tarry.pipelines.topics import TopicTables

CLOCKS_APART_MS: Final = 3_600_000
"""Assumed maximum difference between the clocks that stamp records: of producers, brokers and service processes."""


def starts_since(
    topics: TopicTables, names: Collection[str], at_ms: int | None, ends: Mapping[Place, int]
) -> dict[Place, int]:
    """The first offsets with a timestamp at or after a time; the end offsets if there are no such records.

    Args:
        topics: the topics of the cluster.
        names: the names of the topics.
        at_ms: the time; None: the starts of the logs.
        ends: the end offsets of these topics.
    """
    if not names:
        return {}
    if at_ms is None:
        return topics.starts(names)
    found = topics.since(names, max(0, at_ms))
    return {place: ends.get(place, 0) if offset < 0 else offset for place, offset in found.items()}


def deliveries_since(from_ms: int | None) -> int | None:
    """The time from which to read results and deliveries of messages since `from_ms`; clocks may differ."""
    return None if from_ms is None else from_ms - CLOCKS_APART_MS


def starts_onward(
    topics: TopicTables,
    names: Collection[str],
    position: Mapping[Place, int],
    ends: Mapping[Place, int],
    *,
    may_be_new: bool,
) -> dict[Place, int]:
    """The offsets at which the last run ended; for partitions that it has not read, the starts of their logs.

    Args:
        topics: the topics of the cluster.
        names: the names of the topics.
        position: the offsets at which the last run ended.
        ends: the end offsets of these topics.
        may_be_new: whether a topic may have been recreated since then; it is then read from its beginning.

    Raises:
        UsageError: a topic was recreated.
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
                f"{place[0]}/{place[1]} ends before offset {reached}, where the last run stopped: the topic was"
                " recreated; name another --state"
            )
        else:
            starts[place] = start
    return starts


def trimmed(starts: Mapping[Place, int], now: Mapping[Place, int], position: Mapping[Place, int]) -> set[Place]:
    """Partitions that have lost records which no run has read and which may be in the audited time span.

    Args:
        starts: the offsets from which this run read.
        now: the current starts of the logs, requested after reading, because retention continues in the meantime.
        position: the offsets at which an earlier run ended.
    """
    return {place for place, start in starts.items() if now[place] >= start and now[place] > position.get(place, 0)}


def complete_since(lost: Collection[Place], settled: DataFrame, arrived: DataFrame, *, now_ms: int) -> dict[Place, int]:
    """The time from which each partition that has lost records is complete.

    Several clocks stamped the records of a log, so the oldest remaining timestamp may be older than that of some
    deleted records. A partition therefore counts as complete only from `CLOCKS_APART_MS` after its oldest remaining
    timestamp; from `CLOCKS_APART_MS` after the current time if no record remains.

    Args:
        lost: the partitions of results and targets that have lost records.
        settled: results, as in `tarry.pipelines.audit.tables`.
        arrived: records at targets, as in `tarry.pipelines.audit.tables`.
        now_ms: the current time.
    """
    if not lost:
        return {}
    of_targets = arrived.groupBy("target", "target_partition").agg(f.min("arrived_ms"))
    of_results = settled.groupBy(f.concat("intake", f.lit(RESULTS)), "partition").agg(f.min("at_ms"))
    oldest = {(row[0], row[1]): row[2] for row in [*of_targets.collect(), *of_results.collect()]}
    return {place: oldest.get(place, now_ms) + CLOCKS_APART_MS for place in lost}
