"""The rows of the lists, made from what was read; what the asking principal may not see is left out here. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tarry.api.looking.cursor import LetterCursor
from tarry.api.looking.due import Row
from tarry.api.looking.letters import Letter, Letters, by_hour
from tarry.api.looking.models import (
    Dead,
    DeadCount,
    DeadHour,
    DueRow,
    IntakeRow,
    LetterRow,
    MessageRow,
    PartitionRow,
    RetryGroup,
    RetryKey,
    ScheduleRow,
    TargetRow,
)
from tarry.api.looking.owners import not_served
from tarry.api.looking.plans import Plan
from tarry.api.looking.published import Published, is_stale
from tarry.api.looking.reading import IntakeLook
from tarry.api.looking.shown import Shown, Sight
from tarry.api.looking.trouble import GroupLook
from tarry.config import Intake
from tarry.core.progress.source import INTAKE, PARKED
from tarry.core.request.pause import Pause
from tarry.handle import Handle
from tarry.kafka.inspector import Waiting


def intake_row(intake: Intake, look: IntakeLook | None, rows: Sequence[PartitionRow], dead: int) -> IntakeRow:
    """Return one intake."""
    accepts = {
        "intake": intake.topic,
        "max_delay_ms": intake.max_delay_ms,
        "delay_ms": intake.delay_ms,
        "targets": [] if intake.target else list(intake.targets),
        "target": intake.target,
        "dialect": intake.dialect,
    }
    if look is None:
        return IntakeRow.model_validate({**accepts, "exists": False, "partitions": intake.partitions})
    found = {
        "partitions": len(look.partitions),
        "at_most": look.at_most,
        "in_memory_at_most": look.in_memory,
        "parked": sum(one.messages for one in look.parked),
        "dead": dead,
        "names": sum(one.names for one in look.partitions),
        "late_since": look.late_since_ms,
        "not_served": not_served(rows),
    }
    return IntakeRow.model_validate({**accepts, **found})


def target_rows(
    intake: str,
    look: IntakeLook | None,
    published: Published,
    letters: Letters,
    pauses: Sequence[Pause],
    sight: Sight,
    now_ms: int,
) -> list[TargetRow]:
    """Return the targets of an intake of which something is known, by name."""
    parked: Counter[str] = Counter()
    since: dict[str, int] = {}
    for one in () if look is None else look.parked:
        parked[one.target] += one.messages
        if one.since_ms is not None:
            since[one.target] = min(one.since_ms, since.get(one.target, one.since_ms))
    held: Counter[str] = Counter()
    for each in published.parked():
        held[each.target] += each.messages
        since[each.target] = min(each.since_ms, since.get(each.target, each.since_ms))
    parked |= held  # the larger ones: what is in memory is not in the parked log yet
    dead = Counter(one.target for one in letters.seen(sight.sees) if one.target and not one.is_sent_again)
    rows = []
    paused = {one.target: one for one in pauses}
    for target in sorted({*published.targets, *parked, *dead, *paused}):
        if not sight.sees(target):
            continue
        lately, pause = published.lately(target), paused.get(target)
        rows.append(
            TargetRow(
                intake=intake,
                target=target,
                figures_as_of=published.as_of_ms,
                figures_are_stale=is_stale(published.as_of_ms, now_ms),
                delivered_per_s=lately.per_s,
                p50_ms=lately.p50_ms,
                p99_ms=lately.p99_ms,
                worst_ms=lately.worst_ms,
                last_delivery=published.last_ms(target),
                parked=parked[target],
                parked_since=since.get(target),
                dead=dead[target],
                paused_since=None if pause is None else pause.at_ms,
                paused_until=None if pause is None else pause.until_ms,
                paused_by=None if pause is None else pause.who,
                paused_reason=None if pause is None else pause.unreadable or pause.reason,
            )
        )
    return rows


def due_rows(found: Iterable[Row]) -> list[DueRow]:
    """Return counts by due time."""
    return [
        DueRow(due_from=one.from_ms, due_until=one.until_ms, at_most=one.at_most, resolution_ms=one.resolution_ms)
        for one in found
    ]


def message_row(found: Waiting, sight: Sight) -> MessageRow:
    """Return one message that waits."""
    level = found.source.level
    is_in_level = level > 0 and level != PARKED
    return MessageRow(
        handle=None if found.due_ms is None else str(Handle(*found.place, found.due_ms, found.id)),
        intake=found.place[0],
        partition=found.place[1],
        offset=found.sequence,
        kind="dead" if found.kind == "dead" else "message",
        id=found.id,
        due=found.due_ms,
        target=found.target,
        where="memory" if found.source == INTAKE else "parked" if level == PARKED else "level",
        level=level if is_in_level else None,
        level_offset=found.offset if is_in_level else None,
        schedule=None if found.repeated is None else found.repeated.schedule.decode(),
        key=sight.key(found.target, found.key),
        hidden=sight.hidden(found.target),
    )


def letter_row(intake: str, one: Letter, sight: Sight) -> LetterRow:
    """Return one dead letter."""
    key = sight.key(one.target, one.key)
    if key is not None and one.key_bytes > key.size_bytes:
        key = Shown(text=key.text, is_utf8=key.is_utf8, size_bytes=one.key_bytes, is_cut=True)
    return LetterRow(
        intake=intake,
        partition=one.place[1],
        offset=one.offset,
        at=one.at_ms,
        code=one.code,
        detail=one.detail if sight.sees_values(one.target) else None,
        target=one.target,
        id=one.id,
        is_sent_again=one.is_sent_again,
        is_dismissed=one.is_dismissed,
        key=key,
        name=sight.key(one.target, one.name),
        hidden=sight.hidden(one.target),
    )


def dead_page(
    intake: str,
    letters: Letters,
    sight: Sight,
    most: int,
    cursor: LetterCursor | None = None,
    code: str | None = None,
    target: str | None = None,
    *,
    sent_again_too: bool = False,
) -> Dead:
    """Return counts of dead letters, and a page of those that are wanted, the newest first.

    Args:
        intake: the intake.
        letters: its letters.
        sight: what the asking principal sees.
        most: the size of the page.
        cursor: the page is of older letters.
        code: only of this code.
        target: only of this target; empty: only without one.
        sent_again_too: also letters that were redriven or dismissed.
    """
    seen = letters.seen(sight.sees)
    still = [one for one in seen if sent_again_too or not one.is_sent_again]
    wanted = [
        one for one in still if (code is None or one.code == code) and (target is None or (one.target or "") == target)
    ]
    page = [one for one in wanted if cursor is None or one.order < tuple(cursor)]
    last = page[most - 1] if len(page) > most else None
    return Dead(
        as_of=0,
        intake=intake,
        open=sum(not one.is_sent_again for one in seen),
        counts=_counts(still),
        hours=[DeadHour(hour=hour, count=count) for hour, count in by_hour(wanted)],
        letters=[letter_row(intake, one, sight) for one in page[:most]],
        next=None if last is None else LetterCursor(last.at_ms, last.place[1], last.offset).text(),
        searched=len(seen),
        complete=letters.is_whole,
        forgotten=letters.forgotten,
    )


def _counts(letters: Iterable[Letter]) -> list[DeadCount]:
    found: dict[tuple[str, str | None], DeadCount] = {}
    for one in letters:
        before = found.get((one.code, one.target))
        first, last = (before.first, before.last) if before else (one.at_ms, one.at_ms)
        found[one.code, one.target] = DeadCount(
            code=one.code,
            target=one.target,
            count=before.count + 1 if before else 1,
            first=min(first, one.at_ms),
            last=max(last, one.at_ms),
        )
    return sorted(found.values(), key=lambda one: (-one.count, one.code, one.target or ""))


def retry_group(look: GroupLook, sight: Sight) -> RetryGroup:
    """Return one group of consumers that retry."""
    topic = look.group.topic
    keys = [
        RetryKey(
            partition=one.partition,
            key=sight.key(topic, one.key),
            head=one.trouble.episode,
            behind=one.behind,
            number=one.trouble.head,
            due=one.trouble.head_due_ms,
            attempts=one.trouble.attempts,
            since=one.trouble.since_ms or None,
            is_stopped=one.trouble.stopped,
        )
        for one in look.keys
    ]
    return RetryGroup(
        topic=topic,
        group=look.group.group,
        dead=look.group.dead,
        dead_at_most=look.dead_at_most,
        in_trouble=look.in_trouble,
        behind=look.behind,
        keys=keys,
        is_whole=len(keys) == look.in_trouble,
    )


def schedule_row(plan: Plan, sight: Sight) -> ScheduleRow:
    """Return one schedule."""
    found = plan.found
    due_ms = found.due_ms or 0
    return ScheduleRow.model_validate(
        {
            "intake": found.place[0],
            "partition": found.place[1],
            "id": plan.repeated.schedule.decode(),
            "handle": str(Handle(*found.place, due_ms, found.id)),
            "occurrence": plan.repeated.number,
            "state": plan.state,
            "next": due_ms,
            "then": list(plan.then_ms),
            "last": [
                {"outcome": one.outcome, "due": one.due_ms, "at": one.at_ms, "occurrence": one.occurrence}
                for one in plan.last
            ],
            **plan.rule,
            "until": plan.until_ms,
            "target": found.target,
            "key": sight.key(found.target, found.key),
            "name": sight.key(found.target, plan.name),
            "hidden": sight.hidden(found.target),
        }
    )
