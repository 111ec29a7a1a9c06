"""The judge of a simulation: what was sent against what became visible, and when.

It knows what no observer of a real cluster can: the exact moment at which the owner of a partition had read a message,
and how far each target's log reached at that moment. So the order of every message can be judged without any grace.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tarry.headers import Outcome
from tarry.kafka.place import Place

EXAMPLES = 6

_OF_CANCELS = frozenset({Outcome.CANCEL_FILED, Outcome.CANCEL_TOO_LATE})


@dataclass(slots=True)
class Sent:
    """A message in the intake.

    Attributes:
        id: of the message.
        place: the intake's partition.
        offset: in it.
        key: of the message, or None.
        target: where it is to arrive; None for one that can only become a dead letter.
        due_ms: wall time.
        value: of the message.
        ends: how far the logs of the targets reached when its owner had read it in time; None while it has not.
    """

    id: bytes
    place: Place
    offset: int
    key: bytes | None
    target: str | None
    due_ms: int
    value: bytes
    ends: Mapping[Place, int] | None = None


@dataclass(slots=True)
class SentCancel:
    """A cancel in the intake.

    Attributes:
        place: the intake's partition.
        offset: in it.
        message: what it is for.
        in_time: whether the owner had read it, and its message, before that was due.
    """

    place: Place
    offset: int
    message: Sent
    in_time: bool = False

    @property
    def source(self) -> str:
        """As results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a `read_committed` reader got.

    Attributes:
        id: of the message.
        place: where it stands.
        offset: in that partition.
        stamp_ms: the record's timestamp.
        wall_ms: the latest wall time by when it was seen; a clock that steps back makes nothing early.
        at_ms: when it was seen, monotonic time.
        value: of the record.
    """

    id: bytes
    place: Place
    offset: int
    stamp_ms: int
    wall_ms: int
    at_ms: int
    value: bytes | None


@dataclass(slots=True)
class Report:
    """What is wrong, by kind, and how much was judged."""

    sent: int = 0
    judged: int = 0
    """Messages that had a place in the order of their key."""
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __str__(self) -> str:
        lines = [f"sent {self.sent}, order judged for {self.judged}"]
        for kind, texts in sorted(self.faults.items()):
            lines += [f"{kind} {len(texts)}", *(f"  {text}" for text in texts[:EXAMPLES])]
        return "\n".join(lines)


def judge(
    sent: Iterable[Sent],
    cancels: Sequence[SentCancel],
    delivered: Iterable[Seen],
    dead: Iterable[Seen],
    results: Iterable[Seen],
) -> Report:
    """Compare.

    Args:
        sent: all messages that were acknowledged.
        cancels: all cancels that were.
        delivered: records of all targets.
        dead: dead letters.
        results: results; their `id` is the record's key.
    """
    report = Report()
    by_id = {message.id: message for message in sent}
    report.sent = len(by_id)
    arrivals = _by_id(delivered)
    letters = _by_id(dead)
    outcomes = [json.loads(one.value or b"") for one in results]
    of_messages = Counter(one["id"].encode() for one in outcomes if one["outcome"] not in _OF_CANCELS)
    cancelled = {one["id"].encode() for one in outcomes if one["outcome"] == Outcome.CANCELLED}
    _judge_cancels(report, cancels, outcomes, cancelled)
    for message in by_id.values():
        meant, other = (arrivals, letters) if message.target is not None else (letters, arrivals)
        _count(report, message, len(meant.get(message.id, ())) + (message.id in cancelled), "")
        _count(report, message, of_messages[message.id], " (its result)")
        if message.id in other:
            report.faults["misdirected"].append(f"{message}")
        for one in meant.get(message.id, ()):
            _judge_one(report, message, one)
    for strange in arrivals.keys() - by_id.keys():
        report.faults["unexpected"].append(f"{strange!r}")
    _judge_order(report, by_id, arrivals)
    return report


def _judge_cancels(
    report: Report, cancels: Sequence[SentCancel], outcomes: Sequence[dict[str, Any]], cancelled: Container[bytes]
) -> None:
    """Each has one definite outcome; and one that was read in time has won."""
    definite = Counter(
        one["cancel_source"] for one in outcomes if one["outcome"] in {Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE}
    )
    filed = Counter(one["cancel_source"] for one in outcomes if one["outcome"] == Outcome.CANCEL_FILED)
    for cancel in cancels:
        if definite[cancel.source] != 1 or filed[cancel.source] > 1:
            report.faults["indefinite"].append(f"{definite[cancel.source]} outcomes of {cancel}")
        if cancel.in_time and cancel.message.id not in cancelled:
            report.faults["not cancelled"].append(f"{cancel}")


def _by_id(seen: Iterable[Seen]) -> dict[bytes, list[Seen]]:
    found: dict[bytes, list[Seen]] = {}
    for one in seen:
        found.setdefault(one.id, []).append(one)
    return found


def _count(report: Report, message: Sent, times: int, what: str) -> None:
    if times == 0:
        report.faults["lost"].append(f"{message}{what}")
    elif times > 1:
        report.faults["twice"].append(f"{times} times{what}: {message}")


def _judge_one(report: Report, message: Sent, one: Seen) -> None:
    if message.target is not None and min(one.stamp_ms, one.wall_ms) < message.due_ms:
        report.faults["early"].append(f"{message.due_ms - min(one.stamp_ms, one.wall_ms)} ms: {message}")
    if one.value != message.value or (message.target is not None and one.place[0] != message.target):
        report.faults["damaged"].append(f"{message} at {one}")


def _judge_order(report: Report, sent: Mapping[bytes, Sent], arrivals: Mapping[bytes, list[Seen]]) -> None:
    """Each message read in time stands before all that rank behind it and were written after it was read."""
    lines: dict[tuple[bytes | None, Place, Place], list[tuple[int, Sent]]] = defaultdict(list)
    for name, seen in arrivals.items():
        if (message := sent.get(name)) is not None:
            lines[message.key, message.place, seen[0].place].append((seen[0].offset, message))
    for (_, _, place), line in lines.items():
        line.sort(key=lambda pair: pair[0])
        for at, (_, message) in enumerate(line):
            if message.ends is None:
                continue
            report.judged += 1
            for offset, ahead in line[:at]:
                if offset >= message.ends[place] and _rank(ahead) > _rank(message):
                    report.faults["out of order"].append(f"{message} behind {ahead}")
                    break


def _rank(message: Sent) -> tuple[int, int]:
    return message.due_ms, message.offset


def judge_log_order(report: Report, sent: Iterable[Sent], delivered: Iterable[Seen], counts: Mapping[str, int]) -> None:
    """Judge an intake with a fixed delay: in a target's partition the order is that of the intake's, without exception.

    Args:
        report: takes what is wrong.
        sent: all messages that were acknowledged.
        delivered: records of all targets.
        counts: how many partitions each target has.
    """
    by_id = {message.id: message for message in sent}
    last: dict[tuple[Place, Place], Sent] = {}
    for one in sorted(delivered, key=lambda seen: (seen.place, seen.offset)):
        message = by_id.get(one.id)
        if message is None:
            continue  # unexpected, and said so
        if message.key is None and one.place[1] != message.place[1] % counts[one.place[0]]:
            report.faults["misdirected"].append(f"without a key, and at {one.place}: {message}")
        ahead = last.get((message.place, one.place))
        if ahead is not None and ahead.offset > message.offset:
            report.faults["out of the log's order"].append(f"{message} behind {ahead}")
        last[message.place, one.place] = message
        report.judged += 1
