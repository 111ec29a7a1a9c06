"""Reading an intake's logs while the service runs, without joining a group or writing anything.

Meanwhile messages may move on, or be deleted because they are done; then the reader goes on after them. Messages move
from the intake down the levels, perhaps to the parked log, and out to the results, each in one transaction with a
journal record. So a reader that reads the journal first, then the logs in this order, each to the end that it has when
its turn comes, meets every message at least once. Messages may also be filed again at the end of the same log, which is
then trimmed: if it was, the reader reads on. A reader that asks for all ends at one time, the journal's first, meets
each about once.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.core.message import FiledMessage, Headers, HeldCancel
from tarry.core.murmur2 import partition_of
from tarry.core.progress.checkpoint import CheckpointError, decode_checkpoint, is_checkpoint
from tarry.core.progress.index import IndexRun
from tarry.core.progress.journal import Range, decode_entry
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.request.naming import Planned, hash_of
from tarry.core.request.occurrence import Occurrence
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.core.wheel.filed import due_ms_of, read_filed
from tarry.core.wheel.levels import Bucket
from tarry.core.wheel.overflow import STRANGE
from tarry.core.wheel.runs import clipped, joined
from tarry.errors import RetriableError, UsageError
from tarry.headers import derived_id, id_bytes
from tarry.kafka.backlog import Backlog, Stretch
from tarry.kafka.backlog_index import indexed, ranges_of
from tarry.kafka.group import owners_of
from tarry.kafka.offsets import Offsets
from tarry.kafka.parked_record import parked_target
from tarry.kafka.partition_logs import journal_of, level_log_of, read_to_ends, spans_of
from tarry.kafka.record_headers import headers_of, read_headers, saved_headers
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import RESULTS, partitions_of_intake
from tarry.kafka.trim_tolerant_reader import TrimTolerantReader
from tarry.kafka.types import OffsetMetadata, Place

ANSWER_WITHIN_S = 10.0
PACE = 1_000
"""The number of records between two reports of progress."""

EntryKind = Literal["message", "cancel", "purge", "dead"]
_KINDS: Mapping[type, EntryKind] = {Rejection: "dead", CancelRequest: "cancel", PurgeRequest: "purge"}
States = Mapping[Place, JournalState]


class Repeated(NamedTuple):
    """The schedule of an occurrence.

    Attributes:
        schedule: its id, 36 ASCII characters.
        number: which occurrence it is, from 1.
        headers: those of the record in the intake, which have the name and the rule.
    """

    schedule: bytes
    number: int
    headers: Mapping[str, bytes | None]


class Waiting(NamedTuple):
    """A waiting record that was found.

    Attributes:
        place: the partition of the intake.
        source: the intake, or the bucket, that it lies in; the journal names it with that when it is done.
        kind: a message, a cancel, a purge, or a record that becomes a dead letter once the service reads it.
        due_ms: None if it has no readable due time.
        id: 36 characters.
        key: the message's.
        target: the message's.
        sequence: its offset in the intake; a cancel takes only messages with a smaller one.
        repeated: the schedule of which it is an occurrence; None if it is not repeated.
        offset: its offset in the log of its source.
        name: the hash of its key and name; None if it has no name, or is repeated and lies in the intake.
    """

    place: Place
    source: Source
    kind: EntryKind
    due_ms: int | None
    id: str
    key: bytes | None
    target: str | None
    sequence: int = 0
    repeated: Repeated | None = None
    offset: int = 0
    name: bytes | None = None

    @property
    def log(self) -> Place:
        """The log that its record lies in."""
        return self.place if self.source == INTAKE else level_log_of(self.place, self.source.level)


class DueSpan(NamedTuple):
    """A span of due times: from a time, until before another one."""

    from_ms: int
    until_ms: int


class Listed(NamedTuple):
    """What is left out of a bucket: its records below an offset of the level's log.

    Attributes:
        source: the bucket.
        below: the offset, by the number of the partition.
    """

    source: Source
    below: Sequence[int]


class Content(NamedTuple):
    """What a waiting message holds.

    Attributes:
        key: the message's.
        value: the message's.
        headers: as they came to the intake, the request headers included.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers


class ParkedMessages(NamedTuple):
    """The messages of one target in the parked log of one partition.

    Attributes:
        place: the partition of the intake.
        target: the target.
        messages: how many they are.
        since_ms: the due time of the first one; None if it was delivered meanwhile.
    """

    place: Place
    target: str
    messages: int
    since_ms: int | None


class Inspector:
    """Reads the waiting messages of an intake, and the results of messages.

    Args:
        cluster: the Kafka cluster.
        group: the service's consumer group.
        clock: for waiting, and for requests that depend on the time of reading.
        on_progress: called about every `PACE` records: how many more were read, and how many more are to be read.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        clock: Clock,
        on_progress: Callable[[int, int], None] = lambda _read, _more: None,
    ) -> None:
        self._group = group
        self._admin = cluster.clients.admin(cluster.admin())
        self._offsets = Offsets(self._admin, group, cluster)
        self._reader = TrimTolerantReader(cluster, clock)
        self._clock = clock
        self._on_progress = on_progress

    def close(self) -> None:
        """Close the clients."""
        self._reader.close()
        self._offsets.close()

    @property
    def admin(self) -> AdminClient:
        """The admin client, for questions that are not about an intake's logs."""
        return self._admin

    @property
    def offsets(self) -> Offsets:
        """Asks for offsets of any log."""
        return self._offsets

    def records(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> Generator[tuple[Place, Message], None, None]:
        """Read committed records of any logs, each from an offset until its end is reached.

        One at a time reads a log: close one that ends early before the next.
        """
        for log, record in self._read(starts, ends):
            if (record.offset() or 0) < ends[log]:
                yield log, record

    def record_at(self, log: Place, offset: int) -> Message | None:
        """Return the committed record at an offset; None if the log does not hold it."""
        for _, record in self.records({log: offset}, {log: offset + 1}):
            return record if record.offset() == offset else None
        return None

    # -- offsets ------------------------------------------------------------------------------------------------------

    def look(self, intake: str, partition: int | None = None) -> tuple[list[Backlog], dict[Place, JournalState]]:
        """Survey all partitions of an intake, or one, and read their journals.

        Raises:
            UsageError: as `survey` and `journals`.
            BrokerError: no answer.
        """
        backlogs = self.survey(intake, partition)
        states = self.journals(backlogs)
        found, begins = {backlog.place: backlog for backlog in backlogs}, dict[Place, int]()
        while late := self._begin_too_early(backlogs, begins):
            backlogs = self._survey(late)
            states.update(self.journals(backlogs))
            found.update((backlog.place, backlog) for backlog in backlogs)
        return list(found.values()), states

    def _begin_too_early(self, backlogs: Iterable[Backlog], begins: dict[Place, int]) -> list[Place]:
        """Return the partitions whose journal was trimmed, perhaps before it was read: a new survey may know more.

        Args:
            backlogs: the partitions, as surveyed last.
            begins: where their journals were read from at last; those of `backlogs` are added.
        """
        # If a survey brings nothing new, the records were deleted by somebody else, or the checkpoint is an older one.
        new = {
            journal_of(one.place): one
            for one in backlogs
            if one.checkpoint is not None and one.journal_begin > begins.get(one.place, -1)
        }
        begins.update((one.place, one.journal_begin) for one in new.values())
        starts = self._offsets.starts(new) if new else {}
        return [one.place for journal, one in new.items() if starts[journal] > one.journal_begin]

    def survey(self, intake: str, partition: int | None = None) -> list[Backlog]:
        """Ask for the offsets and checkpoints of all partitions of an intake, or of one.

        Raises:
            UsageError: there is no such intake or partition; or a checkpoint cannot be read, such as one of a later
                version.
            BrokerError: no answer.
        """
        there = range(self.partitions(intake))
        if partition is not None and partition not in there:
            raise UsageError(f"{intake} has no partition {partition}")
        return self._survey([(intake, number) for number in (there if partition is None else [partition])])

    def _survey(self, places: Sequence[Place]) -> list[Backlog]:
        checkpoints = {}
        lows = {}
        for place, (low, metadata) in self._committed(places).items():
            try:
                checkpoints[place], lows[place] = decode_checkpoint(metadata), low
            except CheckpointError as error:
                raise UsageError(f"{place[0]}/{place[1]}: {error}") from error
        # The journal first: a message that moves in between is counted in both places, rather than in none.
        parked = [level_log_of(place, PARKED) for place in checkpoints]
        parked_from = self._offsets.ends(parked, committed=False) if parked else {}
        asked = [journal_of(place) for place in checkpoints]
        journals = self._offsets.ends(asked, committed=False) if asked else {}
        spans = spans_of(self._offsets, {place: found.geometry for place, found in checkpoints.items()})
        settled = self._settled(spans)
        starts = self._offsets.starts(places)
        ends = self._offsets.ends(places, committed=True)
        return [
            Backlog(
                place,
                max(lows.get(place, 0), starts[place]),
                ends[place],
                checkpoints.get(place),
                journals.get(journal_of(place), 0),
                spans.get(place, {}),
                settled.get(place, ()),
                parked_from.get(level_log_of(place, PARKED), 0),
            )
            for place in places
        ]

    def _settled(self, spans: Mapping[Place, Mapping[int, tuple[int, int]]]) -> dict[Place, frozenset[int]]:
        """Return for each partition the levels in whose logs no transaction was open at the end of the span."""
        logs = [level_log_of(place, level) for place, levels in spans.items() for level in levels]
        # The last stable offset is below the records of an open transaction. If that has ended meanwhile, the offset is
        # above the end now.
        stable = self._offsets.ends(logs, committed=True) if logs else {}
        return {
            place: frozenset(level for level, (_, end) in levels.items() if stable[level_log_of(place, level)] == end)
            for place, levels in spans.items()
        }

    def served(self, places: Iterable[Place]) -> list[str]:
        """Return the intakes for which the group has committed a checkpoint, sorted by name.

        Raises:
            BrokerError: no answer.
        """
        committed = self._committed(places)
        return sorted({topic for (topic, _), (_, metadata) in committed.items() if is_checkpoint(metadata)})

    def _committed(self, places: Iterable[Place]) -> dict[Place, OffsetMetadata]:
        try:
            return self._offsets.committed(places)
        except RetriableError as error:
            if error.code == "_TIMED_OUT":
                # The client library asks again and again if the group may not be seen. This request says so.
                owners_of(self._admin, self._group)
            raise

    def partitions(self, intake: str) -> int:
        """Return the number of an intake's partitions.

        Raises:
            UsageError: there is no such intake.
            BrokerError: no answer.
        """
        return partitions_of_intake(self._admin, intake, ANSWER_WITHIN_S, f"ask for {intake}")

    # -- waiting messages ---------------------------------------------------------------------------------------------

    def journals(self, backlogs: Sequence[Backlog]) -> dict[Place, JournalState]:
        """Read the journals."""
        of_journal = {journal_of(backlog.place): backlog for backlog in backlogs if backlog.checkpoint is not None}
        states = {backlog.place: _empty_state(backlog) for backlog in backlogs}
        starts = {journal: backlog.journal_begin for journal, backlog in of_journal.items()}
        ends = {journal: backlog.journal_end for journal, backlog in of_journal.items()}
        for journal, record in self._read(starts, ends):
            try:
                states[of_journal[journal].place].take(decode_entry(record.value()))
            except ValueError as error:
                raise UsageError(f"{journal[0]}/{journal[1]} at offset {record.offset()}: {error}") from error
        return states

    def in_intake(
        self, backlogs: Sequence[Backlog], requests: RequestReader, states: States, *, to_now: bool = False
    ) -> Iterator[Waiting]:
        """Read the waiting messages of the intake itself: those in memory, and those that the service has not read yet.

        Args:
            backlogs: the partitions.
            requests: reads the intake's records as the service does.
            states: from `journals`.
            to_now: read up to the present ends, not those of the survey, and past open transactions.
        """
        starts = {backlog.place: backlog.low for backlog in backlogs}
        ends = {backlog.place: backlog.end for backlog in backlogs}
        if to_now:
            ends = self._offsets.ends(starts, committed=False)
        for place, record in self._read(starts, ends):
            offset = record.offset() or 0
            if offset < ends[place] and not states[place].is_done(INTAKE, offset):
                found = self._requested(place, record, requests, states[place])
                if found is not None:
                    yield found

    def _requested(self, place: Place, record: Message, requests: RequestReader, state: JournalState) -> Waiting | None:
        """Return a record of the intake; None if it was replaced or cancelled by name."""
        offset, stamp_ms = record.offset() or 0, record.timestamp()[1]
        headers: Headers | None = None
        try:
            headers = read_headers(record)
        except SystemError as error:  # a header name that is not UTF-8
            found: Any = requests.unreadable(place[1], offset, saved_headers(record, error))
        else:
            now_ms = self._clock.now_ms()
            found = requests.read(place[1], offset, stamp_ms, headers, now_ms, key=record.key(), value=record.value())
        if isinstance(found, NameCancelRequest):
            return Waiting(place, INTAKE, "cancel", None, found.id.decode(), record.key(), None, offset, None, offset)
        repeated = name = None
        if isinstance(found, Request) and found.naming is not None:
            planned, name = found.naming.planned, found.naming.hash
            if state.is_superseded(found.naming.hash, offset) or not _is_next(planned, found.naming.hash, state):
                return None
            if planned is not None:
                repeated = Repeated(planned.schedule, planned.number, dict(headers or ()))
        kind = _KINDS.get(type(found), "message")
        target, id_ = None if kind == "cancel" else found.target, found.id.decode()
        return Waiting(place, INTAKE, kind, found.due_ms, id_, record.key(), target, offset, repeated, offset, name)

    def content(self, waiting: Waiting) -> Content | None:
        """Read the record of a waiting message; None if it has moved on meanwhile.

        Raises:
            BrokerError: no answer.
        """
        record = self.record_at(waiting.log, waiting.offset)
        if record is None:
            return None
        headers = headers_of(record) or []
        if waiting.source != INTAKE:
            source, offset = waiting.source, waiting.offset
            headers = read_filed(source, offset, record.key(), record.value(), headers).original_headers
        return Content(record.key(), record.value(), headers)

    def in_levels(
        self,
        backlogs: Sequence[Backlog],
        states: States,
        only: Bucket | DueSpan | None = None,
        *,
        to_now: bool = False,
        without: Listed | None = None,
    ) -> Iterator[Waiting]:
        """Read the waiting messages in the logs of the overflow wheel, the highest level first.

        Args:
            backlogs: the partitions.
            states: from `journals`.
            only: only messages of this bucket, or in the buckets of all levels that overlap this span; None: all.
            to_now: read up to the present ends, not those of the survey.
            without: not these.
        """
        found = [(backlog, one) for backlog in backlogs for one in backlog.stretches(empty_too=to_now)]
        for level in sorted({one.level for _, one in found}, reverse=True):
            if isinstance(only, Bucket) and only.level != level:
                continue
            at_level = [pair for pair in found if pair[1].level == level]
            of_level = {level_log_of(backlog.place, level): (backlog, one) for backlog, one in at_level}
            if to_now:
                ends = self._offsets.ends(of_level, committed=False)
                of_level = {log: (backlog, one._replace(end=ends[log])) for log, (backlog, one) in of_level.items()}
            ranges = {log: _ranges(backlog, one, states, only, without) for log, (backlog, one) in of_level.items()}
            while ranges:
                for log, record in self._read_ranges(ranges):
                    backlog, one = of_level[log]
                    for one_found in self._filed(backlog, one, record, states[backlog.place], only):
                        if without is None or not _is_listed(one_found, without):
                            yield one_found
                ranges = self._filed_again(ranges) if to_now else {}

    def in_bucket(
        self, backlog: Backlog, state: JournalState, bucket: Bucket, begin: int, end: int
    ) -> Iterator[Waiting]:
        """Read what waits in a bucket in the order of its log, as far as the index tells of it.

        Args:
            backlog: the partition.
            state: of its journal.
            bucket: the bucket.
            begin: the first offset of the log.
            end: one above the last one.
        """
        assert backlog.checkpoint is not None  # noqa: S101 - it has levels
        number = bucket.start_ms // backlog.checkpoint.geometry.width_of(bucket.level)
        for stretch in backlog.stretches():
            if stretch.level == bucket.level:
                runs = [(run.first, run.end) for run in indexed(stretch, state).runs if run.bucket == number]
                log = level_log_of(backlog.place, bucket.level)
                for _, record in self._read_ranges({log: joined(clipped(runs, begin, end))}):
                    yield from self._filed(backlog, stretch, record, state, bucket)

    def waiting_at(self, backlog: Backlog, state: JournalState, level: int, offset: int) -> Waiting | None:
        """Return the record at an offset of a level's log, if it waits there."""
        for stretch in backlog.stretches():
            if stretch.level == level and stretch.begin <= offset < stretch.end:
                record = self.record_at(level_log_of(backlog.place, level), offset)
                if record is not None:
                    return next(self._filed(backlog, stretch, record, state, None), None)
        return None

    def _filed_again(self, ranges: Mapping[Place, Sequence[Range]]) -> dict[Place, Sequence[Range]]:
        """Return where the logs are to be read on that were trimmed while these ranges of them were read.

        What waited there was filed again behind the end.
        """
        starts = self._offsets.starts(ranges)
        trimmed = {log: read[-1][1] for log, read in ranges.items() if starts[log] > read[0][0]}
        ends = self._offsets.ends(trimmed, committed=False) if trimmed else {}
        return {log: [(first, ends[log])] for log, first in trimmed.items()}

    def _filed(
        self, backlog: Backlog, stretch: Stretch, record: Message, state: JournalState, only: Bucket | DueSpan | None
    ) -> Iterator[Waiting]:
        """Yield a record of a level's log if it waits."""
        place, level, offset, headers = backlog.place, stretch.level, record.offset() or 0, headers_of(record)
        assert backlog.checkpoint is not None  # noqa: S101 - it has levels
        width_ms = backlog.checkpoint.geometry.width_of(level)
        # As `LevelRecords` does: only a record without a due time is of no bucket.
        try:
            due_ms = due_ms_of(headers)
        except ValueError:
            source = Source(level, STRANGE)
            if only is None and not state.is_done(source, offset):
                yield _unreadable(place, source, None, record)
            return
        source = Source(level, due_ms // width_ms)
        if due_ms < stretch.from_ms or state.is_done(source, offset):
            return
        if only is not None and not _buckets(only, width_ms)(source.bucket):
            return
        try:
            found = read_filed(source, offset, record.key(), record.value(), headers)
        except ValueError:
            yield _unreadable(place, source, due_ms, record)
            return
        if state.is_superseded(found.name, found.sequence):
            return
        kind: EntryKind = "cancel" if isinstance(found, HeldCancel) else "message"
        target, repeated = found.target or None, _repeated(found)
        id_, at = found.id.decode(), (found.sequence, repeated, offset, found.name)
        yield Waiting(place, source, kind, found.due_ms, id_, found.key, target, *at)

    def in_parked(self, backlogs: Sequence[Backlog], states: States, *, to_now: bool = False) -> Iterator[Waiting]:
        """Read the waiting messages in the parked logs. Call this last: messages do not move on from there.

        Args:
            backlogs: the partitions.
            states: from `journals`.
            to_now: read up to the present ends, not those of the survey.
        """
        of_log = {level_log_of(one.place, PARKED): one for one in backlogs if PARKED in one.spans}
        of_target = {backlog.place: states[backlog.place].parked.by_target() for backlog in backlogs}
        starts = {log: one.spans[PARKED][0] for log, one in of_log.items()}
        ends = {log: one.spans[PARKED][1] for log, one in of_log.items()}
        if to_now and of_log:
            ends = self._offsets.ends(starts, committed=False)
        for log, record in self._read(starts, ends):
            offset, backlog = record.offset() or 0, of_log[log]
            if offset >= ends[log] or (target := parked_target(record)) is None:
                continue
            known = of_target[backlog.place].get(target)
            if offset >= backlog.parked_from or (known is not None and known.holds(offset)):
                found = read_filed(Source(PARKED, 0), offset, record.key(), record.value(), headers_of(record))
                if states[backlog.place].is_superseded(found.name, found.sequence):
                    continue
                id_, at = found.id.decode(), (found.sequence, _repeated(found), offset, found.name)
                yield Waiting(backlog.place, found.source, "message", found.due_ms, id_, found.key, target, *at)

    def parked(self, backlogs: Sequence[Backlog], states: States) -> Iterator[ParkedMessages]:
        """Return which targets have messages in the parked logs: from the journals, without reading all messages."""
        for backlog in backlogs:
            found = states[backlog.place].parked.by_target()
            log = level_log_of(backlog.place, PARKED)
            start, end = backlog.spans.get(PARKED, (0, 0))
            first = max(start, min((one.row.first for one in found.values()), default=end))
            since_ms: dict[str, int] = {}
            for _, record in self._read({log: first}, {log: end}):
                target = parked_target(record)
                if target in found and target not in since_ms and found[target].holds(record.offset() or 0):
                    since_ms[target] = due_ms_of(headers_of(record))
                    if len(since_ms) == len(found):
                        break
            for target, one in found.items():
                yield ParkedMessages(backlog.place, target, one.row.messages, since_ms.get(target))

    def named(self, intake: str, key: bytes, name: bytes) -> tuple[Place, NameEntry | None, bool]:
        """Return the partition of a name, the message that waits under it (None if none does), and if it is served.

        Raises:
            UsageError: there is no such intake.
            BrokerError: no answer.
        """
        [backlog], states = self.look(intake, partition_of(key, self.partitions(intake)))
        found = states[backlog.place].names.index.find(hash_of(key, name))
        return backlog.place, found, backlog.checkpoint is not None

    # -- results ------------------------------------------------------------------------------------------------------

    def results_since(self, place: Place, at_ms: int) -> int:
        """Return the offset of the first result of a partition that was written at or after a time.

        Raises:
            RetriableError: no answer.
        """
        log = _results_of(place)
        end = self._offsets.ends([log], committed=False)[log]
        asked = self._offsets.ask_since({log: at_ms})
        while not asked.done:
            self._clock.sleep(0.01)
        if log not in asked.answers():
            raise RetriableError(f"could not ask for offsets: {', '.join(asked.failures()) or 'no answer'}")
        found = asked.answers()[log]
        return end if found < 0 else found

    def results(
        self, place: Place, id_: str, start: int | None = None, end: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Read the results of an id in a partition.

        Args:
            place: the partition of the intake.
            id_: the message id.
            start: the offset to begin at; None: the first.
            end: the offset to end before; None: the present end.
        """
        log, key = _results_of(place), id_.encode()
        starts = self._offsets.starts([log]) if start is None else {log: start}
        ends = self._offsets.ends([log], committed=False) if end is None else {log: end}
        for _, record in self._read(starts, ends):
            if record.key() == key and (result := _result_of(record)) is not None:
                yield result

    def first_result(self, place: Place) -> int:
        """Return the first offset of the results of a partition that Kafka still has."""
        log = _results_of(place)
        return self._offsets.starts([log])[log]

    def results_from(self, place: Place, start: int, end: int) -> Iterator[tuple[int, bytes | None]]:
        """Read all results of a partition between two offsets; yield their offsets and values."""
        log = _results_of(place)
        for _, record in self._read({log: start}, {log: end}):
            if (record.offset() or 0) < end:
                yield record.offset() or 0, record.value()

    def _read_ranges(self, ranges: Mapping[Place, Sequence[Range]]) -> Iterator[tuple[Place, Message]]:
        """Read the records in ranges of offsets of some logs: the first range of each log, then the second one."""
        for number in range(max(map(len, ranges.values()), default=0)):
            present = {log: of_log[number] for log, of_log in ranges.items() if number < len(of_log)}
            starts = {log: first for log, (first, _) in present.items()}
            for log, record in self._read(starts, {log: end for log, (_, end) in present.items()}):
                if (record.offset() or 0) < present[log][1]:
                    yield log, record

    def _read(self, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[tuple[Place, Message]]:
        begins = {log: at for log, at in starts.items() if at < ends[log]}
        more = sum(ends[log] - at for log, at in begins.items())
        self._on_progress(0, more)
        told = 0
        for read, found in enumerate(read_to_ends(self._reader, begins, {log: ends[log] for log in begins}), 1):
            yield found
            if read - told >= PACE:
                self._on_progress(read - told, 0)
                told = read
        self._on_progress(max(more - told, 0), 0)


def _is_next(planned: Planned | None, name: bytes, state: JournalState) -> bool:
    """Whether a record of the intake may be decided as the next one of its schedule, if it says that it is one.

    If the journal was read before the occurrence that it follows was decided, it does not know.
    """
    if planned is None or planned.follows is None or planned.follows >= state.decided_below:
        return True
    entry = state.names.index.find(name)
    if entry is None:
        return False
    # Decided already, or still to be decided.
    return not entry.continues or (entry.place == planned.follows and entry.id == id_bytes(planned.schedule))


def _repeated(message: FiledMessage) -> Repeated | None:
    if not isinstance(message, Occurrence):
        return None
    return Repeated(message.schedule, message.number, dict(message.original_headers))


def _empty_state(backlog: Backlog) -> JournalState:
    checkpoint = backlog.checkpoint
    if checkpoint is None:
        return JournalState(backlog.low)
    return JournalState(backlog.low, checkpoint.low, checkpoint.names_complete_from)


def _ranges(
    backlog: Backlog, stretch: Stretch, states: States, only: Bucket | DueSpan | None, without: Listed | None
) -> Sequence[Range]:
    """Return the offsets of a level's log to read, for all of its messages or for those of some buckets."""
    if only is None or backlog.checkpoint is None:
        return [(stretch.begin, stretch.end)]
    width_ms = backlog.checkpoint.geometry.width_of(stretch.level)
    is_meant = _buckets(only, width_ms)
    # The index may tell of a bucket that was closed since the checkpoint was read.
    closed_ms = backlog.checkpoint.closed_ms[stretch.level - 1] + width_ms
    has_closed = isinstance(only, Bucket) or only.from_ms < closed_ms

    left_out, below = -1, 0
    if without is not None and without.source.level == stretch.level:
        left_out, below = without.source.bucket, without.below[backlog.place[1]]

    def wanted(run: IndexRun) -> bool:
        if not run.records:
            return has_closed
        return is_meant(run.bucket) and (run.bucket != left_out or run.end > below)

    return ranges_of(stretch, states[backlog.place], wanted)


def _is_listed(found: Waiting, listed: Listed) -> bool:
    return found.source == listed.source and found.offset < listed.below[found.place[1]]


def _buckets(only: Bucket | DueSpan, width_ms: int) -> Callable[[int], bool]:
    """Return which buckets of a width are meant, by number."""
    if isinstance(only, Bucket):
        number = only.start_ms // width_ms
        return lambda bucket: bucket == number
    first, last = only.from_ms // width_ms, (only.until_ms - 1) // width_ms
    return lambda bucket: first <= bucket <= last


def _unreadable(place: Place, source: Source, due_ms: int | None, record: Message) -> Waiting:
    """Return a record of a level's log that becomes a dead letter, with an id derived from its place in that log."""
    id_ = derived_id(*level_log_of(place, source.level), record.offset() or 0)
    return Waiting(place, source, "dead", due_ms, id_.decode(), record.key(), None, 0, None, record.offset() or 0)


def _result_of(record: Message) -> dict[str, Any] | None:
    try:
        result = json.loads(record.value() or b"null")
    except ValueError:  # not the service's
        return None
    return result if isinstance(result, dict) else None


def _results_of(place: Place) -> Place:
    return place[0] + RESULTS, place[1]
