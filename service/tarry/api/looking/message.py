"""One message: where it is and why, in one sentence; its record; and its way through the levels.

A message is found by its handle. Its record is read where the sender wrote it, as long as the intake keeps it there,
and else where it waits.
"""

import json
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka import Message

from tarry.clock import Clock
from tarry.config import Config
from tarry.core.message import Headers
from tarry.core.progress.source import PARKED
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Rejection, Request
from tarry.core.request.schedule_times import next_times, rule_text
from tarry.core.wheel.filed import FILED
from tarry.core.wheel.levels import lead_of
from tarry.handle import Handle
from tarry.headers import DUE_MS, ID, SOURCE, TARGET, Outcome, parse_id
from tarry.kafka.inspector import Inspector
from tarry.kafka.record_headers import headers_of
from tarry.kafka.topics import RESULTS
from tarry.kafka.types import Place
from tarry.kafka.whereabouts import Spot, Whereabouts, find
from tarry.service.app import policy_at
from tarry.units import format_instant

MOST_DIGITS: Final = 15
"""The most digits of a time in milliseconds that is read."""

SEARCH_MS: Final = 4_000
"""How long results are searched for an id."""

MOST_RESULTS: Final = 100
THEN: Final = 5
"""How many times of a schedule are shown after the next one."""


class Step(NamedTuple):
    """A step on a message's way.

    Attributes:
        state: whether it is behind, the present one, or to come.
        at_ms: when; None: not known.
        text: one line.
    """

    state: Literal["done", "now", "next"]
    at_ms: int | None
    text: str


class Content(NamedTuple):
    """The record of a message.

    Attributes:
        log: where it was read.
        offset: there.
        at_ms: its timestamp.
        key: its key.
        headers: as the sender wrote them.
        value: its value.
    """

    log: Place
    offset: int
    at_ms: int
    key: bytes | None
    headers: Headers
    value: bytes | None

    def header(self, name: str) -> bytes | None:
        """Return the first header of a name."""
        return next((value for header, value in self.headers if header == name), None)


class MessageLook(NamedTuple):
    """What is known of a message.

    Attributes:
        handle: its handle.
        state: waiting, unknown, or its outcome.
        sentence: where it is, and why.
        target: its target.
        result: its result, as the service wrote it.
        content: its record; None if no log holds it any more.
        way: the steps on its way.
        cancel_waits: whether a cancel of it waits.
        schedule: the id of the schedule of which it is an occurrence.
        occurrence: its number there.
        rule: the rule of the schedule, for people.
        then_ms: the times after it.
        place: the partition of the intake, and its offset there, if it is known.
    """

    handle: Handle
    state: str
    sentence: str
    target: str | None
    result: dict[str, Any] | None
    content: Content | None
    way: list[Step]
    cancel_waits: bool
    schedule: str | None
    occurrence: int | None
    rule: str | None
    then_ms: tuple[int, ...]
    place: tuple[str, int, int] | None


def content_of(log: Place, record: Message) -> Content:
    """Return the content of a record, without the header that the service adds when it files it."""
    headers = [one for one in headers_of(record) if one[0] != FILED]
    return Content(log, record.offset() or 0, record.timestamp()[1], record.key(), headers, record.value())


def look_at_message(
    inspector: Inspector, settings: Config, handle: Handle, now_ms: int, spot: Spot | None = None
) -> MessageLook:
    """Look for a message, at a spot of a level's log first.

    Raises:
        UsageError: there is no such intake or partition.
        BrokerError: Kafka does not answer.
    """
    found = find(inspector, handle, policy_at(settings, handle.topic), spot)
    state = "waiting" if found.waits_in is not None else "unknown"
    if found.result is not None:
        state = str(found.result["outcome"])
    place = _place(found)
    content = _content(inspector, found, place)
    schedule = occurrence = rule = None
    then_ms: tuple[int, ...] = ()
    if found.repeated is not None:
        schedule, occurrence = found.repeated.schedule.decode(), found.repeated.number
        rule = rule_text(found.repeated.headers)
        at_ms = max(now_ms, handle.due_ms)
        then_ms = next_times(found.repeated.headers, found.repeated.schedule, at_ms, settings.wheel.tick_ms, THEN)
    return MessageLook(
        handle,
        state,
        sentence(handle, found, now_ms),
        _target(found, content),
        found.result,
        content,
        way(inspector, handle, found, content, now_ms),
        found.cancel_waits,
        schedule,
        occurrence,
        rule,
        then_ms,
        place,
    )


def _place(found: Whereabouts) -> tuple[str, int, int] | None:
    """Return the offset in the intake."""
    if found.message is not None:
        return *found.message.place, found.message.sequence
    return parsed_place(str((found.result or {}).get("source", "")))


def parsed_place(text: str) -> tuple[str, int, int] | None:
    """Read `topic/partition/offset`."""
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    is_place = topic and partition.isdecimal() and offset.isdecimal() and len(partition) <= 10 and len(offset) <= 18
    return (topic, int(partition), int(offset)) if is_place else None


def _target(found: Whereabouts, content: Content | None) -> str | None:
    if found.message is not None and found.message.target is not None:
        return found.message.target
    target = (found.result or {}).get("target")
    if isinstance(target, str):
        return target
    header = content.header(TARGET) if content else None
    return None if header is None else header.decode("utf-8", "replace")


def _content(inspector: Inspector, found: Whereabouts, place: tuple[str, int, int] | None) -> Content | None:
    logs: list[tuple[Place, int]] = [] if place is None else [((place[0], place[1]), place[2])]
    if found.message is not None:
        (topic, partition), offset = found.message.log, found.message.offset
        logs.append(((topic, partition), offset))
    for log, offset in logs:
        if (content := read_content(inspector, log, offset)) is not None:
            return content
    return None


def read_content(inspector: Inspector, log: Place, offset: int) -> Content | None:
    """Read one record; None if the log does not hold it.

    Raises:
        BrokerError: Kafka does not answer.
    """
    if not inspector.offsets.existing([log]):
        return None
    start, end = inspector.offsets.starts([log])[log], inspector.offsets.ends([log], committed=True)[log]
    if not start <= offset < end:
        return None
    record = inspector.record_at(log, offset)
    return None if record is None else content_of(log, record)


# -- in one sentence ---------------------------------------------------------------------------------------------------


def sentence(handle: Handle, found: Whereabouts, now_ms: int) -> str:
    """Return where a message is and why, in one sentence."""
    if found.result is not None:
        return _outcome(found.result, handle)
    if found.waits_in is None:
        if not found.is_served:
            return "Unknown: no process has served its partition yet, so nothing can have happened to it."
        if found.cancel_waits:
            return "It does not wait any more; a cancel of it waits for its due time, to say so."
        return "Unknown: it does not wait, and results are kept for 7 days only. Check the handle."
    ahead_ms = handle.due_ms - now_ms
    when = f"due in {rounded(ahead_ms)}" if ahead_ms > 0 else f"due {rounded(-ahead_ms)} ago"
    cancel = "; a cancel of it waits, and will take it back" if found.cancel_waits else ""
    return f"{_waits(found, ahead_ms)}, {when}{cancel}."


def _waits(found: Whereabouts, ahead_ms: int) -> str:
    if found.waits_in is not None and found.waits_in.level == PARKED:
        return (
            "It is parked, because its target is paused or cannot be written to; it is delivered in order as soon as "
            "that ends"
        )
    if found.bucket is not None:
        level = found.bucket[0].level
        late = " It is late: the service has not brought its bucket down yet" if ahead_ms < 0 else ""
        return late.strip() or f"It waits in level {level} of the overflow wheel, on Kafka, until its time is near"
    if not found.is_served:
        return "It waits, but no process has served its partition yet"
    if found.will_be_dead:
        return "The service has not read it yet, and will write it to the dead letters: its headers are wrong"
    if ahead_ms < 0:
        return "It is due and not delivered yet: the service is behind, stopped, or its target does not answer"
    return "It waits in the memory of the partition's owner, or will be read by it in a moment"


def _outcome(result: dict[str, Any], handle: Handle) -> str:
    outcome, at_ms = str(result["outcome"]), int(result["at_ms"])
    at = format_instant(at_ms)
    late = f", {rounded(at_ms - handle.due_ms)} after it was due" if at_ms >= handle.due_ms else ""
    is_name_there = result.get("reason") == "waiting"
    texts = {
        Outcome.FIRED: f"It was delivered to {result.get('target')} at {at}{late}.",
        Outcome.DEAD: f"It is dead ({result.get('reason')}) since {at}: it is in {handle.topic}.dead, undelivered.",
        Outcome.CANCELLED: f"It was cancelled at {at}.",
        Outcome.REPLACED: f"It was replaced at {at} by a newer message of its name.",
        Outcome.DUPLICATE: f"It is a duplicate: another message has its id and due time, and counts ({at}).",
        Outcome.SKIPPED: f"It was skipped at {at}, as its sender asked: {'one' if is_name_there else 'none'} of its "
        "name waited.",
    }
    return texts.get(Outcome(outcome), f"{outcome} at {at}.") if outcome in set(Outcome) else f"{outcome} at {at}."


def rounded(duration_ms: int) -> str:
    """Return a duration rounded down to two units at most, such as `3 h 20 min`."""
    if duration_ms < 1_000:
        return f"{max(duration_ms, 0)} ms"
    parts = []
    rest_ms = duration_ms
    for word, unit_ms in _UNITS:
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count} {word}")
    return " ".join(parts[:2])


_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


# -- the way -----------------------------------------------------------------------------------------------------------


def way(inspector: Inspector, handle: Handle, found: Whereabouts, content: Content | None, now_ms: int) -> list[Step]:
    """Return the steps on a message's way: those behind it, the present one, and those to come."""
    steps = []
    if content is not None and content.log[0] == handle.topic and content.at_ms > 0:
        steps.append(Step("done", content.at_ms, f"written to {handle.topic}/{handle.partition}/{content.offset}"))
    if found.result is not None:
        return [*steps, Step("done", int(found.result["at_ms"]), str(found.result["outcome"]))]
    if found.waits_in is None:
        return steps
    if found.waits_in.level == PARKED:
        return [
            *steps,
            Step("done", handle.due_ms, "due"),
            Step("now", None, "parked until its target can be written to, and is not paused"),
        ]
    if found.bucket is not None:
        steps += _down(inspector, handle, found.bucket[0].level)
    else:
        steps.append(Step("now", None, "in memory" if found.is_served else "in the intake"))
    target = found.message.target if found.message else None
    due = Step("done" if handle.due_ms < now_ms else "next", handle.due_ms, f"due, for {target or 'no target'}")
    return [*steps, due]


def _down(inspector: Inspector, handle: Handle, level: int) -> list[Step]:
    [backlog] = inspector.survey(handle.topic, handle.partition)
    if backlog.checkpoint is None:
        return []
    geometry = backlog.checkpoint.geometry
    steps = []
    for at_level in range(level, 0, -1):
        width_ms = geometry.width_of(at_level)
        start_ms = handle.due_ms // width_ms * width_ms
        until = f"level {at_level}: the bucket from {format_instant(start_ms)} to {format_instant(start_ms + width_ms)}"
        steps.append(Step("now" if at_level == level else "next", None, until))
        # What is below the next level's closed bucket goes to memory at once.
        down = "to memory" if at_level == 1 else f"to level {at_level - 1}, or lower"
        steps.append(Step("next", start_ms - lead_of(at_level, width_ms), f"comes down {down}"))
    return steps


# -- by another place --------------------------------------------------------------------------------------------------


def handle_at(inspector: Inspector, settings: Config, place: tuple[str, int, int], now_ms: int) -> Handle | None:
    """Return the handle of the message at a place: of an intake, or delivered to a target; None if there is none.

    Raises:
        BrokerError: Kafka does not answer.
    """
    topic, partition, offset = place
    content = read_content(inspector, (topic, partition), offset)
    if content is None:
        return None
    delivered = _delivered(content)
    if delivered is not None or topic not in {one.topic for one in settings.intakes}:
        return delivered
    requests = RequestReader(policy_at(settings, topic))
    found = requests.read(partition, offset, content.at_ms, content.headers, now_ms, content.key, content.value)
    if not isinstance(found, Request | Rejection) or found.due_ms is None:
        return None
    return Handle(topic, partition, found.due_ms, found.id.decode())


def _delivered(content: Content) -> Handle | None:
    """Return the handle of a delivered message."""
    source = parsed_place((content.header(SOURCE) or b"").decode("ascii", "replace"))
    due, id_ = content.header(DUE_MS) or b"", parse_id(content.header(ID))
    if source is None or id_ is None or not due.isdigit() or len(due) > MOST_DIGITS:
        return None
    return Handle(source[0], source[1], int(due), id_.decode())


def results_of_id(inspector: Inspector, clock: Clock, intake: str, id_: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the results of an id, each with its handle; and whether all results were read within `SEARCH_MS`.

    Results have no index by id, so all that are kept are read, the key first.
    """
    logs = [(intake + RESULTS, number) for number in range(inspector.partitions(intake))]
    starts, ends = inspector.offsets.starts(logs), inspector.offsets.ends(logs, committed=True)
    found: dict[str, dict[str, Any]] = {}
    key, until_ms = id_.encode(), clock.monotonic_ms() + SEARCH_MS
    for (_, partition), record in inspector.records(starts, ends):
        if clock.monotonic_ms() > until_ms or len(found) >= MOST_RESULTS:
            return list(found.values()), False
        if record.key() != key:
            continue
        try:
            result: Any = json.loads(record.value() or b"null")
        except ValueError:  # not the service's
            continue
        match result:
            case {"outcome": str(), "due_ms": int(due_ms)} if due_ms > 0:
                handle = str(Handle(intake, partition, due_ms, id_))
                found[handle] = {**result, "handle": handle}
    return list(found.values()), True
