"""The job: read the records, judge them, write tables and report, and leave unsettled messages to the next run."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tarry.clock import Clock, SystemClock
from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import Outcome
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS
from tarry.kafka.types import Place
from tarry.pipelines.audit import capture, tables
from tarry.pipelines.audit.report import page
from tarry.pipelines.audit.state import Carried, Position, Series
from tarry.pipelines.audit.summary import (
    Summary,
    beside,
    findings,
    histogram,
    lateness_by_minute,
    lateness_by_target,
    lateness_over_time,
    summarise_run,
)
from tarry.pipelines.audit.tables import SOURCE_PLACE
from tarry.pipelines.audit.unmatched import Read, known_of, settled_again, told_apart, unmatched, vouched_for
from tarry.pipelines.audit.validation import RESULTS_EXPIRED, AuditRules, compare
from tarry.pipelines.faults import CARRIED
from tarry.pipelines.files import Files
from tarry.pipelines.topics import TopicTables

SHOWN: Final = 50
"""The number of faults of each kind in the report. The table `findings` has all of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time span of audited messages, by the timestamps of their records.

    Args:
        from_ms: the first timestamp; None: from the start of the intakes.
        to_ms: the end, exclusive; None: up to now.
    """

    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """The parameters of an audit.

    Args:
        policies: the policies of the intakes.
        out: a directory for the tables `messages`, `findings`, `lateness`, for `summary.json` and `report.html`; any
            path that Spark supports.
        state: the directory of the series' state.
        span: audit only messages of this time span, outside the series; None: continue where the last run ended.
        grace_ms: messages that have been due for this time should have been delivered.
        accepted_within_ms: the service has read a message at the latest this long after its timestamp.
        max_late_ms: a later arrival is a fault; None: lateness is no fault.
    """

    policies: Sequence[IntakePolicy]
    out: str
    state: str
    span: Span | None = None
    grace_ms: int = 60_000
    accepted_within_ms: int = 60_000
    max_late_ms: int | None = None

    def run(self, topics: TopicTables, on_progress: Callable[[str], None], clock: Clock | None = None) -> Summary:
        """Run the audit once.

        Raises:
            UsageError: a topic is missing or was recreated; a transaction stays open; or the count of the records at
                the targets does not match their kinds.
        """
        return _Run(self, topics, on_progress, clock or SystemClock()).run()


class _Run:
    def __init__(self, audit: Audit, topics: TopicTables, on_progress: Callable[[str], None], clock: Clock) -> None:
        self._audit = audit
        self._spark = topics.spark
        self._topics = topics
        self._tell = on_progress
        self._clock = clock
        self._intakes = [policy.topic for policy in audit.policies]
        self._results = [f"{intake}{RESULTS}" for intake in self._intakes]
        self._dead = [f"{intake}{DEAD}" for intake in self._intakes]

    def run(self) -> Summary:
        series = None if self._audit.span else Series(self._spark, self._audit.state)
        before = series.load() if series else None
        with _kept() as keep:
            horizon_ms, seen = self._read(before, keep)
            rules = self._rules(horizon_ms, seen)
            self._tell("validating")
            every = compare(seen.accepted, seen.settled, seen.arrived, rules, seen.told_later, seen.stubs)
            messages = self._write("messages", every.where(self._is_in_span()))
            known = self._known(messages, seen)
            ranges = seen.ranges.table(self._spark)
            found = unmatched(seen.arrived, known, ranges, seen.others)
            if not self._audit.span:
                fired = seen.settled.unionByName(seen.told_later).where(f.col("outcome") == str(Outcome.FIRED))
                since_ms = max(rules.results_since.values(), default=-1)
                found = vouched_for(found, fired, since_ms=since_ms, targets=seen.followed)
            found = keep(self._told_apart(keep(found), ranges))
            again = keep(settled_again(seen.settled, known, ranges))
            self._write("findings", findings(messages, found, again))
            self._write("lateness", lateness_by_minute(messages))
            summary = summarise_run(
                messages,
                beside(found, again, seen.arrived.count()),
                horizon_ms=horizon_ms,
                carried=before.accepted.count() if before else 0,
                unread=seen.unread,
                is_late_judged=rules.max_late_ms is not None,
            )
            summary.balance()
            self._report(summary, messages)
            if series:
                series.save(_left(seen, messages, found))
        return summary

    def _read(self, before: Carried | None, keep: Callable[[DataFrame], DataFrame]) -> tuple[int, "_Seen"]:
        """Read all needed records; return the horizon and the records."""
        span = self._audit.span
        position = before.position if before else Position()
        topics, clock = self._topics, self._clock
        names = [*self._intakes, *self._results, *self._dead]
        topics.places(names)
        # Ends first, in the order that `capture` describes. The horizon is taken at the first of them.
        horizon_ms = clock.now_ms() - self._audit.grace_ms
        ends = topics.ends(self._intakes)
        ends |= topics.settled_ends([*self._results, *self._dead])
        if span:
            since_ms = capture.deliveries_since(span.from_ms)
            starts = capture.starts_since(topics, self._intakes, span.from_ms, ends)
            starts |= capture.starts_since(topics, [*self._results, *self._dead], since_ms, ends)
        else:
            since_ms = None
            reached = {**position.intakes, **position.results, **position.dead}
            starts = capture.starts_onward(topics, [*self._intakes, *self._results], reached, ends, may_be_new=False)
            # Only the stubs are needed of the dead letters, and the stubs of earlier runs are carried.
            starts |= capture.starts_onward(topics, self._dead, reached, ends, may_be_new=True)
        accepted = keep(
            reduce(DataFrame.unionByName, [self._accepted(one, starts, ends) for one in self._audit.policies])
        )
        settled = keep(tables.settled(self._records(self._results, starts, ends)))
        stubs = keep(tables.stubs(self._records(self._dead, starts, ends)))
        self._tell(f"{accepted.count():,} messages accepted, {settled.count():,} results")

        # A carried message may have the current fixed target; its result has the one at that time.
        carried = [before.accepted, before.settled] if before else []
        targets = self._targets([accepted, settled, *carried])
        there = sorted((targets | {topic for topic, _ in position.targets}) & topics.names())
        # Separately from the ends above: an intake may also be the target of another one, and then has two ends.
        target_ends = topics.settled_ends(there)
        if span:
            target_starts = capture.starts_since(topics, there, since_ms, target_ends)
        else:
            target_starts = capture.starts_onward(topics, there, position.targets, target_ends, may_be_new=True)
        arrived = keep(tables.arrived(self._records(there, target_starts, target_ends)))
        self._tell(f"{arrived.count():,} records at {len(there):,} targets")
        # Each delivered record was accepted below the first of these ends, and has its result below the second.
        last = topics.ends(self._intakes)
        told = {place: ends[place] for place in starts if place[0] in self._results}
        told_later = keep(tables.settled(self._records(self._results, told, topics.settled_ends(self._results))))

        firsts = topics.starts([*self._intakes, *self._results, *there])
        of_intakes = [place for place in starts if place[0] in self._intakes]
        of_results = {place: start for place, start in starts.items() if place[0] in self._results}
        lost_results = capture.trimmed(of_results, firsts, position.results)
        lost_arrivals = capture.trimmed(target_starts, firsts, position.targets)
        return horizon_ms, _Seen(
            accepted=_plus(accepted, before.accepted if before else None),
            settled=_plus(settled, before.settled if before else None),
            arrived=_plus(arrived, before.arrived if before else None),
            told_later=told_later,
            stubs=_plus(stubs, before.stubs if before else None),
            ranges=Read(
                since={place: starts[place] for place in of_intakes} | dict(position.since),
                reached={place: starts[place] for place in of_intakes},
                firsts=firsts,
                ends=ends,
                last=last,
            ),
            unread=sum(max(0, firsts[place] - starts[place]) for place in of_intakes),
            position=Position(
                since={place: starts[place] for place in of_intakes} | dict(position.since),
                intakes={place: end for place, end in ends.items() if place[0] in self._intakes},
                results={place: end for place, end in ends.items() if place[0] in self._results},
                dead={place: end for place, end in ends.items() if place[0] in self._dead},
                targets={**position.targets, **target_ends},
            ),
            since=capture.complete_since(lost_results | lost_arrivals, settled, arrived, now_ms=clock.now_ms()),
            gone=frozenset(targets - set(there)),
            compacted=frozenset(topics.compacted(there)),
            partitions=_counts(target_ends, position.targets),
            # A first run reads the results from the start of their logs.
            followed=frozenset(topic for topic, _ in position.targets) if position.intakes else frozenset(there),
            others=_intakes(topics.names()) - set(self._intakes),
        )

    def _known(self, messages: DataFrame, seen: "_Seen") -> DataFrame:
        """The messages that were read, in the form that `unmatched` needs."""
        known = known_of(messages)
        if not self._audit.span:
            return known
        return known.unionByName(known_of(seen.accepted.where(~self._is_in_span()), is_wanted=False))

    def _told_apart(self, found: DataFrame, ranges: DataFrame) -> DataFrame:
        """Classify repeated records of settled messages, for which it reads those messages from the intakes again."""
        again = found.where("kind = 'duplicate'").groupBy("intake", "partition")
        asked = again.agg(f.min("offset").alias("start"), (f.max("offset") + 1).alias("end")).collect()
        starts = {(row["intake"], row["partition"]): row["start"] for row in asked}
        ends = {(row["intake"], row["partition"]): row["end"] for row in asked}
        settled = [self._accepted(one, starts, ends) for one in self._audit.policies]
        return told_apart(found, reduce(DataFrame.unionByName, settled), ranges)

    def _accepted(self, policy: IntakePolicy, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> DataFrame:
        return tables.accepted(self._records([policy.topic], starts, ends), policy)

    def _records(self, names: Sequence[str], starts: Mapping[Place, int], ends: Mapping[Place, int]) -> DataFrame:
        # Losses by retention during the run are detected afterwards.
        of_names = {place: start for place, start in starts.items() if place[0] in names}
        return self._topics.read(of_names, ends, may_be_trimmed=True)

    def _targets(self, named: Sequence[DataFrame]) -> set[str]:
        """The topics that messages and results name."""
        names = reduce(DataFrame.unionByName, [one.select("target") for one in named]).distinct()
        return {row.target for row in names.collect() if row.target is not None}

    def _rules(self, horizon_ms: int, seen: "_Seen") -> AuditRules:
        targets: dict[str, int] = {}
        results: dict[tuple[str, int], int] = {}
        for (topic, partition), since_ms in seen.since.items():
            if topic in self._results:
                results[topic.removesuffix(RESULTS), partition] = since_ms
            else:
                targets[topic] = max(since_ms, targets.get(topic, since_ms))
        return AuditRules(
            horizon_ms,
            self._audit.accepted_within_ms,
            targets,
            results,
            seen.compacted,
            seen.gone,
            seen.partitions,
            self._audit.max_late_ms,
        )

    def _is_in_span(self) -> Column:
        span = self._audit.span or Span()
        at = f.col("timestamp_ms")
        is_in = f.lit(True)
        if span.from_ms is not None:
            is_in &= at >= span.from_ms
        if span.to_ms is not None:
            is_in &= at < span.to_ms
        return is_in

    def _write(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and return the written table."""
        path = f"{self._audit.out.rstrip('/')}/{name}"
        table.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(table.schema).parquet(path)

    def _report(self, summary: Summary, messages: DataFrame) -> None:
        out = self._audit.out.rstrip("/")
        files = Files(self._spark)
        by_kind = Window.partitionBy("kind").orderBy("due_ms", *SOURCE_PLACE)
        faults = self._spark.read.parquet(f"{out}/findings").withColumn("nth", f.row_number().over(by_kind))
        text = page(
            summary,
            by_target=[row.asDict() for row in lateness_by_target(messages).collect()],
            over_time=[row.asDict() for row in lateness_over_time(messages).collect()],
            histogram=histogram(messages),
            faults=[row.asDict() for row in faults.where(f.col("nth") <= SHOWN).orderBy("kind", "nth").collect()],
        )
        files.write(f"{out}/summary.json", json.dumps(asdict(summary), indent=2) + "\n")
        files.write(f"{out}/report.html", text)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The records of a run, together with those that the last run left.

    Args:
        accepted, settled, arrived: as in `tarry.pipelines.audit.tables`.
        told_later: results above the end of `settled`, of messages that may have arrived.
        stubs: the stubs among the dead letters.
        ranges: the ranges that were read of the intakes.
        unread: the number of intake offsets that were deleted before a run read them.
        position: the end offsets of the run.
        since: for partitions that have lost records, the time from which they are complete.
        gone, compacted: targets that do not exist, and compacted targets.
        partitions: the current and former numbers of partitions of each target.
        followed: targets whose records are no older than the results that were read.
        others: intakes that the run does not audit.
    """

    accepted: DataFrame
    settled: DataFrame
    arrived: DataFrame
    told_later: DataFrame
    stubs: DataFrame
    ranges: Read
    unread: int
    position: Position
    since: Mapping[Place, int]
    gone: frozenset[str]
    compacted: frozenset[str]
    partitions: Mapping[str, set[int]]
    followed: frozenset[str]
    others: set[str]


def _left(seen: _Seen, messages: DataFrame, found: DataFrame) -> Carried:
    """The state for the next run: unsettled messages, and records that belong to them or to later messages."""
    is_lost = f.col("fate").isin("lost", "still lost")
    # A message of a target that has lost records may still arrive. If results have expired, the message is not carried.
    is_open = f.col("fate").isin("lost", "still lost", "stub") | (
        (f.col("fate") == "unjudged") & (f.col("reason") != RESULTS_EXPIRED)
    )
    is_left = (f.col("fate") == "waiting") | (is_open & ~f.col("has_result"))
    left = messages.where(is_left).withColumn("was_lost", is_lost | f.col("was_lost"))
    places = left.select(*SOURCE_PLACE)
    # The accepted rows, unchanged: their results are carried in a separate table.
    accepted = seen.accepted.drop("was_lost").join(left.select(*SOURCE_PLACE, "was_lost"), list(SOURCE_PLACE))
    ends = f.broadcast(seen.ranges.table(messages.sparkSession).select("intake", "partition", "end"))

    def needed(table: DataFrame) -> DataFrame:
        later = table.join(ends, ["intake", "partition"]).where(f.col("offset") >= f.col("end")).drop("end")
        return table.join(places, list(SOURCE_PLACE), "left_semi").unionByName(later)

    waiting = left.where("fate = 'waiting'").select(*SOURCE_PLACE, "target")
    arrived = seen.arrived.join(waiting, [*SOURCE_PLACE, "target"], "left_semi").unionByName(
        found.where(f.col("kind") == CARRIED).select(*seen.arrived.columns)
    )
    return Carried(seen.position, accepted, needed(seen.settled), arrived, needed(seen.stubs))


def _counts(*ends: Mapping[Place, int]) -> dict[str, set[int]]:
    """The numbers of partitions of each topic, according to several tables of partitions."""
    counts: dict[str, set[int]] = {}
    for places in ends:
        for topic, partitions in Counter(topic for topic, _ in places).items():
            counts.setdefault(topic, set()).add(partitions)
    return counts


def _intakes(names: Collection[str]) -> set[str]:
    """The topics that are intakes: those that have a results topic and a journal."""
    return {name for name in names if f"{name}{RESULTS}" in names and f"{name}{JOURNAL}" in names}


def _plus(table: DataFrame, more: DataFrame | None) -> DataFrame:
    return table if more is None else table.unionByName(more)


@contextmanager
def _kept() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Persist tables that are used more than once, and release them at the end of the block."""
    kept: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        kept.append(table.persist())
        return kept[-1]

    try:
        yield keep
    finally:
        for table in kept:
            table.unpersist()
