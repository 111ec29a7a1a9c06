"""The oracle of a simulation: compares the messages that were sent with the records that became visible, and when.

In a simulation it is known, unlike in a real cluster, when exactly the owner of a partition read a message, and where
each target's log ended at that moment. So the oracle can check the order of every message exactly, without a tolerance.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from tarry.kafka.types import Place
from tarry.testing.simulation.duplicates import OF_CANCELS, SETTLED, Duplicates, SeenResult
from tarry.testing.simulation.sent import Sent, SentCancel

EXAMPLES = 6


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a `read_committed` reader received.

    Attributes:
        id: the message's id.
        place: the topic and partition of the record.
        offset: its offset there.
        stamp_ms: the record's timestamp.
        wall_ms: the latest wall time until it was seen; so a clock that steps back makes no record early.
        at_ms: the monotonic time when it was seen.
        value: the record's value.
        source: for a delivery, the position of its message in the intake.
    """

    id: bytes
    place: Place
    offset: int
    stamp_ms: int
    wall_ms: int
    at_ms: int
    value: bytes | None
    source: str = ""


@dataclass(slots=True)
class Report:
    """The faults by kind, and how many messages were checked."""

    sent: int = 0
    judged: int = 0
    """The number of messages whose order was checked."""
    faults: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        """Whether there are no faults."""
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
    repeated: AbstractSet[bytes] = frozenset(),
) -> Report:
    """Compare the sent messages with the visible records.

    Args:
        sent: all acknowledged messages.
        cancels: all acknowledged cancels.
        delivered: the records of all targets.
        dead: the dead letters.
        results: the results; their `id` is the record's key.
        repeated: the ids of messages that may be delivered more than once, because their intake was adopted.
    """
    report = Report()
    by_source = {message.source: message for message in sent}
    report.sent = len(by_source)
    by_value = {message.value: message.source for message in by_source.values()}
    arrivals = _by_source(delivered)
    # A dead letter does not name its position in the intake, but each message has a unique value.
    letters = _by_source(replace(one, source=by_value.get(one.value or b"", "")) for one in dead)
    seen_results = [SeenResult(json.loads(one.value or b""), one.offset) for one in results]
    of_messages = Counter(one.source for one in seen_results if one.outcome not in OF_CANCELS)
    settled = {one.source for one in seen_results if one.outcome in SETTLED}
    duplicates = Duplicates(by_source.values(), seen_results, {*arrivals, *letters})
    for kind, fault in [*duplicates.faults_of_cancels(cancels), *duplicates.faults_of_duplicates(cancels, repeated)]:
        report.faults[kind].append(fault)
    for message in by_source.values():
        at_target, in_letters = arrivals.get(message.source, []), letters.get(message.source, [])
        meant, other = (at_target, in_letters) if message.target is not None else (in_letters, at_target)
        arrived = len(meant) + (message.source in settled)
        for times, what in ((arrived, ""), (of_messages[message.source], " (its result)")):
            _count(report, message, min(times, 1) if message.id in repeated else times, what)
        if other:
            report.faults["misdirected"].append(f"{message}")
        for one in meant:
            _judge_one(report, message, one)
    for strange in arrivals.keys() - by_source.keys():
        report.faults["unexpected"].append(f"{strange!r}")
    _judge_order(report, by_source, arrivals)
    return report


def _by_source(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for one in seen:
        found.setdefault(one.source, []).append(one)
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


def _judge_order(report: Report, sent: Mapping[str, Sent], arrivals: Mapping[str, list[Seen]]) -> None:
    """Check that each message that was read in time precedes all higher-ranked messages written after it was read."""
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


def judge_log_order(
    report: Report,
    sent: Iterable[Sent],
    delivered: Iterable[Seen],
    counts: Mapping[str, int],
    repeated: AbstractSet[bytes] = frozenset(),
) -> None:
    """Check an intake with a fixed delay: each partition of the target must keep the order of the intake's partition.

    Args:
        report: gets the faults.
        sent: all acknowledged messages.
        delivered: the records of all targets.
        counts: the number of partitions of each target.
        repeated: the ids of messages that may be delivered again, after later ones.
    """
    by_id = {message.id: message for message in sent}
    last: dict[tuple[Place, Place], Sent] = {}
    for one in sorted(delivered, key=lambda seen: (seen.place, seen.offset)):
        message = by_id.get(one.id)
        if message is None or one.id in repeated:
            continue  # `judge` has already reported an unexpected record
        if message.key is None and one.place[1] != message.place[1] % counts[one.place[0]]:
            report.faults["misdirected"].append(f"without a key, and at {one.place}: {message}")
        ahead = last.get((message.place, one.place))
        if ahead is not None and ahead.offset > message.offset:
            report.faults["out of the log's order"].append(f"{message} behind {ahead}")
        last[message.place, one.place] = message
        report.judged += 1
