"""Whether all is well, in lines that say what is not; pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tarry.api.looking.models import PartitionRow, Problem
from tarry.api.looking.reading import IntakeLook
from tarry.core.request.pause import Pause
from tarry.kafka.broker_time import ComparedClock
from tarry.units import format_duration

DEAD_WITHIN_MS = 86_400_000
"""Dead letters of the last day make all not well; older ones are only counted, as they stay for ever."""

RUNBOOKS: Mapping[str, str] = {
    "late": "tarryoverdue",
    "dead": "tarrydeadletters",
    "parked": "tarrytargetaway",
    "paused": "tarrypausedforlong",
    "quarantined": "partitions-set-aside",
    "not-served": "tarrypartitionsunserved",
    "clock": "tarryclockskew",
}


def problems_of(
    intake: str,
    look: IntakeLook,
    rows: Sequence[PartitionRow],
    pauses: Sequence[Pause],
    dead_today: int,
    now_ms: int,
    sees: Callable[[str], bool],
) -> Iterator[Problem]:
    """Return what is not well with an intake, the worst first.

    Args:
        intake: its topic.
        look: what a look at it found.
        rows: its partitions.
        pauses: those of its targets that hold now.
        dead_today: how many open dead letters were written within `DEAD_WITHIN_MS`.
        now_ms: the present time.
        sees: whether a target may be seen by whoever asks.
    """
    refused = [row for row in rows if row.state == "quarantined"]
    if refused:
        text = f"{_partitions(refused)} can't be taken over: {refused[0].refusal}"
        yield _problem("quarantined", intake, len(refused), None, text)
    unserved = [row for row in rows if row.state in {"unassigned", "idle", "new"}]
    if unserved:
        why = "no process serves it" if len(unserved) == 1 else "no process serves them"
        yield _problem("not-served", intake, len(unserved), None, f"{_partitions(unserved)}: {why}")
    late = [one for one in look.partitions if one.late_since_ms is not None]
    since_ms = look.late_since_ms
    if since_ms is not None:
        text = f"a message has been due for {_for(now_ms - since_ms)} and is not delivered"
        yield _problem("late", intake, len(late), since_ms, text)
    paused = {one.target for one in pauses}
    pauses = [one for one in pauses if sees(one.target)]
    if pauses:
        which = pauses[0].target if len(pauses) == 1 else f"{len(pauses)} targets"
        text = f"{which} {'is' if len(pauses) == 1 else 'are'} paused: {_reason(pauses)}"
        yield _problem("paused", intake, len(pauses), min(one.at_ms for one in pauses), text)
    parked = [one for one in look.parked if one.target not in paused and sees(one.target)]
    targets = {one.target for one in parked}
    if targets:
        since = [one.since_ms for one in parked if one.since_ms is not None]
        messages = sum(one.messages for one in parked)
        which = next(iter(targets)) if len(targets) == 1 else f"{len(targets)} targets"
        text = f"{messages:,} {_messages(messages)} parked, because {which} can't be written to"
        yield _problem("parked", intake, messages, min(since, default=None), text)
    if dead_today:
        letters = "1 dead letter" if dead_today == 1 else f"{dead_today:,} dead letters"
        yield _problem("dead", intake, dead_today, None, f"{letters} within a day, not sent again")


def clock_problems(clocks: Iterable[ComparedClock]) -> Iterator[Problem]:
    """Return a problem for each machine whose clock is wrong."""
    for one in clocks:
        if one.is_wrong:
            word = "ahead of" if one.ahead_ms > 0 else "behind"
            text = f"the clock of {one.host} is {_for(abs(one.ahead_ms))} {word} the brokers'"
            yield _problem("clock", None, 1, None, text)


def _problem(kind: str, intake: str | None, count: int, since_ms: int | None, text: str) -> Problem:
    return Problem.model_validate(
        {"kind": kind, "intake": intake, "count": count, "since": since_ms, "text": text, "runbook": RUNBOOKS[kind]}
    )


def _reason(pauses: Sequence[Pause]) -> str:
    oldest = min(pauses, key=lambda one: one.at_ms)
    return oldest.unreadable or f"{oldest.reason} (by {oldest.who})"


def _partitions(rows: Sequence[PartitionRow]) -> str:
    numbers = ", ".join(str(row.partition) for row in rows[:6])
    more = f" and {len(rows) - 6} more" if len(rows) > 6 else ""
    return f"partition {numbers}" if len(rows) == 1 else f"partitions {numbers}{more}"


def _messages(count: int) -> str:
    return "message is" if count == 1 else "messages are"


def _for(duration_ms: int) -> str:
    return format_duration(max(0, duration_ms) // 1_000 * 1_000)
