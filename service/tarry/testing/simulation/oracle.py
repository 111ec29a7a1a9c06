"""The oracle of a simulation: compares the messages that were sent with the records that became visible, and when.

In a simulation it is known, unlike in a real cluster, when exactly the owner of a partition read a message, and where
each target's log ended at that moment. So the oracle can check the order of every message exactly, without a tolerance.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from tarry.headers import ErrorCode, Outcome
from tarry.kafka.types import Place
from tarry.testing.judge import Judge, Report
from tarry.testing.simulation.duplicates import NOT_FINAL, SETTLED, Duplicates, SeenResult
from tarry.testing.simulation.limits import expired, faults_of_expiry
from tarry.testing.simulation.naming import NameJudge, SentNamed
from tarry.testing.simulation.sent import Sent, SentCancel, SentPurge


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


def check(
    sent: Iterable[Sent],
    cancels: Sequence[SentCancel],
    delivered: Iterable[Seen],
    dead: Iterable[Seen],
    results: Iterable[Seen],
    repeated: AbstractSet[bytes] = frozenset(),
    purges: Sequence[SentPurge] = (),
    named: Sequence[SentNamed] = (),
    judges_names: bool = True,
) -> Report:
    """Compare the sent messages with the visible records.

    Args:
        sent: all acknowledged messages.
        cancels: all acknowledged cancels.
        delivered: the records of all targets.
        dead: the dead letters.
        results: the results; their `id` is the record's key.
        repeated: the ids of messages that may be delivered more than once, because their intake was adopted.
        purges: all acknowledged purges.
        named: all acknowledged named records, in the order of their partitions. Their messages are in `sent`, too.
        judges_names: whether their results are judged.
    """
    by_source = {message.source: message for message in sent}
    report = Report(sent=len(by_source))
    judge = Judge[Sent](report)
    by_value = {message.value: message.source for message in by_source.values()}
    arrivals = _by_source(delivered)
    # A dead letter does not name its position in the intake, but each message has a unique value.
    letters = _by_source(replace(one, source=by_value.get(one.value or b"", "")) for one in dead)
    seen_results = [SeenResult(json.loads(one.value or b""), one.offset) for one in results]
    of_messages = Counter(one.source for one in seen_results if one.outcome not in NOT_FINAL)
    purged = _check_purges(report, by_source.values(), purges, seen_results)
    settled = {one.source for one in seen_results if one.outcome in SETTLED}
    letters_instead = purged | expired(seen_results)
    have_names = {one.source for one in named}
    unnamed = [message for message in by_source.values() if message.source not in have_names]
    of_unnamed = [one for one in seen_results if one.source not in have_names]
    duplicates = Duplicates(unnamed, of_unnamed, {*arrivals, *letters})
    of_names = NameJudge(named, seen_results).faults() if judges_names else ()
    of_duplicates = duplicates.faults_of_duplicates(cancels, repeated)
    of_expiry = faults_of_expiry(by_source, seen_results)
    for kind, fault in chain(of_names, duplicates.faults_of_cancels(cancels), of_duplicates, of_expiry):
        report.add(kind, fault)
    for message in by_source.values():
        at_target, in_letters = arrivals.get(message.source, []), letters.get(message.source, [])
        is_delivery = message.target is not None and message.source not in letters_instead
        meant, other = (at_target, in_letters) if is_delivery else (in_letters, at_target)
        arrived = len(meant) + (message.source in settled)
        for times, what in ((arrived, ""), (of_messages[message.source], " (its result)")):
            judge.once(message, min(times, 1) if message.id in repeated else times, what)
        # What is delivered again after an adoption may have expired by then.
        if other and not (message.id in repeated and message.expires_ms is not None):
            report.add("misdirected", f"{message}")
        for one in meant:
            if is_delivery:
                judge.never_early(message, one.stamp_ms, one.wall_ms)
            if one.value != message.value or (is_delivery and one.place[0] != message.target):
                report.add("damaged", f"{message} at {one}")
    for strange in arrivals.keys() - by_source.keys():
        report.add("unexpected", f"{strange!r}")
    _check_order(judge, by_source, [copies[0] for copies in arrivals.values()])
    return report


def _check_purges(
    report: Report, sent: Collection[Sent], purges: Sequence[SentPurge], results: Sequence[SeenResult]
) -> set[str]:
    """Check that each purge has one answer, and that all messages that it takes, and no others, have left before.

    Returns:
        The positions in the intake of the messages that became dead letters.
    """
    answers: dict[str, list[SeenResult]] = {}
    left_at: dict[str, int] = {}
    for one in results:
        if one.outcome == Outcome.PURGED:
            answers.setdefault(one.source, []).append(one)
        elif one.outcome in {Outcome.FIRED, Outcome.DEAD}:
            left_at[one.source] = one.offset
    for purge in purges:
        found = answers.get(purge.source, [])
        if len(found) != 1:
            report.add("twice" if found else "lost", f"{len(found)} answers to {purge}")
            continue
        for message in sent:
            if purge.takes(message) and left_at.get(message.source, 0) > found[0].offset:
                report.add("not purged", f"{message} left after {purge}")
    purged = {one.source for one in results if one.fields.get("reason") == ErrorCode.PURGED}
    read = [(purge, int(one.fields["due_ms"])) for purge in purges for one in answers.get(purge.source, ())]
    for message in sent:
        if message.source in purged and not any(purge.may_take(message, read_ms) for purge, read_ms in read):
            report.add("misdirected", f"purged, and no purge was behind it: {message}")
    return purged


def _by_source(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for one in seen:
        found.setdefault(one.source, []).append(one)
    return found


def _check_order(judge: Judge[Sent], sent: Mapping[str, Sent], first: Iterable[Seen]) -> None:
    for one in sorted(first, key=_log_position):
        if (message := sent.get(one.source)) is not None:
            accepted_at = None if message.ends is None else message.ends[one.place]
            judge.in_order((message.key, message.place, one.place), message, one.offset, accepted_at)


def check_log_order(
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
    # By the intake's log alone: with a fixed delay, due times out of the log's order would be a fault themselves.
    judge = Judge[Sent](report, rank=lambda message: (0, message.offset))
    for one in sorted(delivered, key=_log_position):
        message = by_id.get(one.id)
        if message is None or one.id in repeated:
            continue  # `check` has already reported an unexpected record
        if message.key is None and one.place[1] != message.place[1] % counts[one.place[0]]:
            report.add("misdirected", f"without a key, and at {one.place}: {message}")
        judge.in_order((message.place, one.place), message, one.offset, 0, "out of the log's order")


def _log_position(seen: Seen) -> tuple[Place, int]:
    return seen.place, seen.offset
