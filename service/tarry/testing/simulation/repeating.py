"""Checks schedules: each occurrence is delivered once, and so is the next, until a record ends the schedule.

The names of schedules have no other messages. Of each schedule, the judge follows the results in their order:

- the first occurrence is due at the first time of the rule after the record's timestamp, and each next one at the first
  time after the one before it was due and delivered: so each time that is left out is explained by a late occurrence
- each occurrence has one result and one delivery, which is never early, in the order of the numbers
- a schedule ends once: replaced or cancelled by the first record behind it in the intake that does so, or dead; its end
  names the occurrence that would have come next, and nothing is delivered behind it
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from tarry.headers import CANCEL_NAME, DELIVER_AT, EVERY, ID, IF, NAME, TARGET, WINDOW_MS, Outcome
from tarry.jitter import jitter_ms
from tarry.kafka.types import Place
from tarry.testing.simulation.duplicates import SeenResult

NAMES = (b"tick", b"tock")
_ENDS = frozenset({Outcome.REPLACED, Outcome.CANCELLED, Outcome.DEAD, Outcome.SKIPPED})


@dataclass(frozen=True, slots=True)
class SentRepeating:
    """A schedule in the intake, or a cancel of one by name.

    Attributes:
        place: its partition.
        offset: its offset there.
        key: its key.
        name: its name.
        stamp_ms: its timestamp.
        id: the schedule's id; empty for a cancel.
        every_ms: its interval.
        first_ms: the time from which it counts, in wall time; None: from the epoch.
        shift_ms: how much later it is due, by its window.
        condition: the value of `tarry-if`; empty if it has none.
        target: its target; None: it can only become a dead letter.
        value: its value.
    """

    place: Place
    offset: int
    key: bytes
    name: bytes
    stamp_ms: int
    id: bytes = b""
    every_ms: int = 0
    first_ms: int | None = None
    shift_ms: int = 0
    condition: bytes = b""
    target: str | None = None
    value: bytes = b""

    @property
    def source(self) -> str:
        """Its position in the intake, as results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"

    def after(self, at_ms: int, tick_ms: int) -> int:
        """Return the first due time after another time."""
        begin_ms = (self.first_ms or 0) + self.shift_ms
        due_ms = begin_ms
        if self.first_ms is None or at_ms >= begin_ms:
            due_ms += ((at_ms - begin_ms) // self.every_ms) * self.every_ms
            while due_ms <= at_ms:
                due_ms += self.every_ms
        return -(-due_ms // tick_ms) * tick_ms


@dataclass(frozen=True, slots=True)
class Occurred:
    """A delivery of an occurrence.

    Attributes:
        schedule: the schedule's id.
        number: its number.
        due_ms: its due time.
        place: the topic and partition of the delivery.
        offset: its offset there.
        stamp_ms: the record's timestamp.
        wall_ms: the latest wall time until it was seen.
        at_ms: the monotonic time when it was seen.
        value: its value.
    """

    schedule: bytes
    number: int
    due_ms: int
    place: Place
    offset: int
    stamp_ms: int
    wall_ms: int
    at_ms: int
    value: bytes | None


@dataclass(slots=True)
class Repeating:
    """The schedules of a world, and what was seen of them.

    Attributes:
        records: all schedules and their cancels, in the order of their partitions.
        occurred: all deliveries.
        results: all results.
        is_judged: whether they are judged; not after an intake was adopted or made anew.
    """

    records: list[SentRepeating] = field(default_factory=list)
    occurred: list[Occurred] = field(default_factory=list)
    results: list[SeenResult] = field(default_factory=list)
    is_judged: bool = True

    def headers(
        self, choose: Random, targets: Sequence[str], poison: float, stamp_ms: int
    ) -> tuple[SentRepeating, list[tuple[str, bytes | None]]]:
        """Draw a schedule, or a cancel, and its headers; its place is not known yet."""
        name = choose.choice(NAMES)
        if choose.random() < 0.2:
            return SentRepeating(("", 0), -1, b"", name, stamp_ms), [(CANCEL_NAME, name)]
        id_ = str(UUID(int=choose.getrandbits(128), version=4)).encode()
        every_ms = choose.choice((1_000, 1_000, 1_500, 4_000))
        headers: list[tuple[str, bytes | None]] = [(ID, id_), (NAME, name), (EVERY, b"%dms" % every_ms)]
        first_ms = stamp_ms + choose.randint(-5_000, 3_000) if choose.random() < 0.4 else None
        if first_ms is not None:
            headers.append((DELIVER_AT, b"%d" % first_ms))
        shift_ms = 0
        if choose.random() < 0.2:
            headers.append((WINDOW_MS, b"700"))
            shift_ms = jitter_ms(id_, 700)
        condition = choose.choice((b"", b"", b"absent", b"present"))
        if condition:
            headers.append((IF, condition))
        target = None if choose.random() < poison else choose.choice(targets)
        headers.append((TARGET, (target or "no-such-topic").encode()))
        value = b"every %d" % len(self.records)
        return SentRepeating(
            ("", 0), -1, b"", name, stamp_ms, id_, every_ms, first_ms, shift_ms, condition, target, value
        ), headers

    @property
    def ids(self) -> set[bytes]:
        """The ids of all schedules."""
        return {record.id for record in self.records if record.id}

    @property
    def sources(self) -> set[str]:
        """The positions in the intake of all records."""
        return {record.source for record in self.records}

    @property
    def live(self) -> list[SentRepeating]:
        """The schedules that have no end yet."""
        ended = {one.fields["id"] for one in self.results if one.outcome in _ENDS}
        return [record for record in self.records if record.id and record.id.decode() not in ended]

    @property
    def unanswered(self) -> list[SentRepeating]:
        """The cancels that have no answer yet."""
        answered = {one.source for one in self.results}
        return [record for record in self.records if not record.id and record.source not in answered]

    def delivered_since(self, record: SentRepeating, at_ms: int) -> bool:
        """Whether an occurrence was delivered after a monotonic time."""
        return any(one.schedule == record.id and one.at_ms > at_ms for one in self.occurred)

    def faults(self, tick_ms: int) -> Iterator[tuple[str, str]]:
        """Return the faults: kind and text; none if they are not judged."""
        if not self.is_judged:
            return
        of_schedule: dict[bytes, list[SeenResult]] = defaultdict(list)
        of_source: dict[str, list[SeenResult]] = defaultdict(list)
        for one in self.results:
            of_schedule[one.fields.get("schedule", one.fields["id"]).encode()].append(one)
            of_source[one.source].append(one)
        delivered: dict[bytes, list[Occurred]] = defaultdict(list)
        for occurred in self.occurred:
            delivered[occurred.schedule].append(occurred)
        names: dict[tuple[Place, bytes, bytes], list[SentRepeating]] = defaultdict(list)
        for record in self.records:
            names[record.place, record.key, record.name].append(record)
            if record.id:
                results = sorted(of_schedule[record.id], key=lambda one: one.offset)
                yield from _faults_of_one(record, results, delivered.pop(record.id, []), tick_ms)
        for strange in delivered.values():
            yield "unexpected", f"{strange[0]}"
        for records in names.values():
            yield from _faults_of_name(records, of_schedule, of_source)


def _faults_of_one(
    record: SentRepeating, results: Sequence[SeenResult], delivered: Sequence[Occurred], tick_ms: int
) -> Iterator[tuple[str, str]]:
    """Return the faults of the occurrences of a schedule, and of its end."""
    ends = [one for one in results if one.outcome in _ENDS and one.fields["id"] == record.id.decode()]
    if len(ends) != 1:
        yield "indefinite", f"{[one.fields for one in ends]} are the ends of {record}"
        return
    fired = [one for one in results if one.outcome == Outcome.FIRED]
    due_ms = record.after(record.stamp_ms, tick_ms)
    for number, one in enumerate(fired, 1):
        if (one.fields["occurrence"], one.fields["due_ms"]) != (number, due_ms):
            yield "off its rule", f"{one.fields}, and not occurrence {number} at {due_ms}: {record}"
            return
        due_ms = record.after(max(due_ms, int(one.fields["at_ms"])), tick_ms)
    end = ends[0]
    if end.outcome != Outcome.SKIPPED and end.fields["due_ms"] != due_ms:
        yield "off its rule", f"{end.fields}, and its next time is {due_ms}: {record}"
    if fired and fired[-1].offset > end.offset:
        yield "after its end", f"{fired[-1].fields} behind {end.fields}"
    if end.outcome == Outcome.DEAD and record.target is not None:
        yield "misdirected", f"{end.fields} of {record}"
    yield from _faults_of_deliveries(record, fired, delivered)


def _faults_of_deliveries(
    record: SentRepeating, fired: Sequence[SeenResult], delivered: Sequence[Occurred]
) -> Iterator[tuple[str, str]]:
    """Return the faults of the deliveries of a schedule, which has these results."""
    wanted = [(one.fields["occurrence"], one.fields["due_ms"]) for one in fired]
    in_order = sorted(delivered, key=lambda one: (one.place, one.offset))
    if [(one.number, one.due_ms) for one in in_order] != wanted:
        yield "lost", f"delivered {[one.number for one in in_order]}, and fired {wanted}: {record}"
    for occurred in delivered:
        if (early_ms := occurred.due_ms - min(occurred.stamp_ms, occurred.wall_ms)) > 0:
            yield "early", f"{early_ms} ms: {occurred}"
        if occurred.value != record.value or occurred.place[0] != record.target:
            yield "damaged", f"{occurred} of {record}"


def _faults_of_name(
    records: Sequence[SentRepeating],
    of_schedule: dict[bytes, list[SeenResult]],
    of_source: dict[str, list[SeenResult]],
) -> Iterator[tuple[str, str]]:
    """Return the faults of what the records of a name did to each other, in the order of the intake."""
    waits: SentRepeating | None = None
    for record in records:
        end = _end_of(waits, of_schedule)
        own = _end_of(record, of_schedule) if record.id else None
        is_skipped = own is not None and own.outcome == Outcome.SKIPPED
        by = "" if end is None else str(end.fields.get("replaced_by", end.fields.get("cancel_source", "")))
        if waits is not None and end is not None and end.outcome == Outcome.DEAD:
            # It was dead before or after this record was read: what this record met says so, or does not matter.
            meets = is_skipped and own is not None and own.fields["reason"] == "waiting"
        else:
            meets = waits is not None
        takes = meets and record.condition != b"absent" and end is not None and end.outcome != Outcome.DEAD
        if takes != (by == record.source):
            yield "not replaced", f"{end and end.fields}, and then {record}"
        skips = bool(record.id) and {b"absent": meets, b"present": not meets}.get(record.condition, False)
        if skips != is_skipped:
            yield "not replaced", f"{own and own.fields} of {record}, which met {waits}"
        if not record.id:
            answers = [one.outcome for one in of_source[record.source]]
            if answers != [Outcome.CANCELLED if takes else Outcome.CANCEL_TOO_LATE]:
                yield "indefinite", f"{answers} to {record}, which met {waits}"
            waits = None
        elif not is_skipped:
            waits = record


def _end_of(record: SentRepeating | None, of_schedule: dict[bytes, list[SeenResult]]) -> SeenResult | None:
    """Return the end of a schedule."""
    if record is None:
        return None
    found = of_schedule[record.id]
    return next((one for one in found if one.outcome in _ENDS and one.fields["id"] == record.id.decode()), None)
