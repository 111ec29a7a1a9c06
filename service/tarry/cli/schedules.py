"""`tarry schedules`: list the messages that are repeated."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.cli.inspect import configured, instants, open_inspector
from tarry.cli.options import ConfigOption, JsonOption, ServersOption
from tarry.cli.pending import say_unserved
from tarry.cli.pending_rows import level_shown
from tarry.clock import SystemClock
from tarry.config import Config
from tarry.core.murmur2 import partition_of
from tarry.core.progress.source import PARKED
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.request.schedule_times import next_times, rule_fields, rule_text
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.headers import NAME
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import Inspector, States, Waiting
from tarry.service.app import policy_at
from tarry.units import format_instant, shown

if TYPE_CHECKING:
    from tarry.kafka.types import Place

THEN = 2
"""How many times are shown after the one that comes next."""


def schedules(
    *,
    intake: Annotated[
        str | None,
        typer.Option(metavar="I", help="The intake. Default: all configured intakes that accept schedules."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="Only schedules of this key.")] = None,
    name: Annotated[str | None, typer.Option(metavar="N", help="Only schedules of this name.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """List the messages that are repeated, by due time.

    The command prints of each schedule when the next occurrence is due, key, name, rule, target, the number of that
    occurrence, and the two times after it; and whether the occurrence is overdue, or parked because
    its target is paused or cannot be written to.

    It reads the messages that wait, with a progress bar on a terminal. With --key it reads one partition; with --key
    and --name only one bucket of the overflow wheel, beside the records of the partition that are not read yet and its
    parked log.

    Example: tarry schedules

    Example: tarry schedules --key 17 --name report --json
    """
    settings, cluster = configured(config, bootstrap_servers)
    raw_key = None if key is None else os.fsencode(key)
    raw_name = None if name is None else os.fsencode(name)
    topics = [intake] if intake else [one.topic for one in settings.intakes if one.may_repeat]
    if not topics:
        raise UsageError("no configured intake accepts schedules: each has a fixed delay or a dialect")
    with open_inspector(settings, cluster) as inspector:
        for topic in topics:
            # Rows are as of now: an occurrence that is due while the logs are read is not late.
            now_ms = SystemClock().now_ms()
            place = None if raw_key is None else partition_of(raw_key, inspector.partitions(topic))
            backlogs, states = inspector.look(topic, place)
            say_unserved(topic, settings.service.group, backlogs)
            waiting = _waiting(inspector, settings, backlogs, states, raw_key, raw_name)
            found = _newest(one for one in waiting if _is_wanted(one, raw_key, raw_name))
            _print(topic, found, now_ms, settings.wheel.tick_ms, as_json=as_json)


def _waiting(
    inspector: Inspector,
    settings: Config,
    backlogs: Sequence[Backlog],
    states: States,
    key: bytes | None,
    name: bytes | None,
) -> Iterator[Waiting]:
    """Yield what waits where such schedules can be, in the order in which messages move, so that none is missed."""
    requests = RequestReader(policy_at(settings, backlogs[0].place[0]))
    yield from inspector.in_intake(backlogs, requests, states, to_now=True)
    # A schedule has a name, and the journal knows all names of what waits in the levels.
    named = [one for one in backlogs if states[one.place].names.index.count]
    if key is None or name is None:
        yield from inspector.in_levels(named, states, to_now=True)
    for backlog in named if key is not None and name is not None else []:
        entry = states[backlog.place].names.index.find(hash_of(key or b"", name or b""))
        for bucket in [] if entry is None else backlog.buckets_of(entry.due_ms):
            yield from inspector.in_levels([backlog], states, bucket, to_now=True)
    yield from inspector.in_parked(named, states, to_now=True)


def _is_wanted(found: Waiting, key: bytes | None, name: bytes | None) -> bool:
    if found.repeated is None or found.kind != "message":
        return False
    return (key is None or found.key == key) and (name is None or found.repeated.headers.get(NAME) == name)


def _newest(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Return one occurrence of each schedule: while the logs are read, one may be delivered, and the next one met."""
    newest: dict[tuple[Place, bytes], Waiting] = {}
    for found in waiting:
        if found.repeated is not None:
            identity = found.place, found.repeated.schedule
            before = newest.get(identity)
            if before is None or before.repeated is None or before.repeated.number <= found.repeated.number:
                newest[identity] = found
    return sorted(newest.values(), key=lambda one: (one.due_ms or 0, one.key or b"", one.sequence))


def _print(topic: str, found: Sequence[Waiting], now_ms: int, tick_ms: int, *, as_json: bool) -> None:
    if not as_json:
        typer.echo(f"{topic}: {_counted(len(found))}")
    for one in found:
        line, fields = row(one, now_ms, tick_ms)
        typer.echo(json.dumps({"intake": topic, **fields}, ensure_ascii=False) if as_json else line)


def _counted(count: int) -> str:
    return "1 schedule" if count == 1 else f"{count or 'no'} schedules"


def row(found: Waiting, now_ms: int, tick_ms: int) -> tuple[str, dict[str, Any]]:
    """Return a schedule as a line of text and as a JSON object.

    Args:
        found: the occurrence that waits.
        now_ms: the time when the command began to read.
        tick_ms: due times are rounded up to multiples of this.
    """
    repeated, due_ms = found.repeated, found.due_ms or 0
    assert repeated is not None  # noqa: S101 - only schedules are listed
    key, name = (_text(raw) for raw in (found.key, repeated.headers.get(NAME)))
    # As the service does: what was missed is not made up for.
    then_ms = next_times(repeated.headers, repeated.schedule, max(now_ms, due_ms), tick_ms, THEN)
    is_parked = found.source.level == PARKED
    state = "parked" if is_parked else "overdue" if due_ms < now_ms else "waiting"
    fields = {
        "partition": found.place[1],
        "id": repeated.schedule.decode(),
        "key": key,
        "name": name,
        **rule_fields(repeated.headers),
        "target": found.target,
        "state": state,
        "occurrence": repeated.number,
        "handle": str(Handle(*found.place, due_ms, found.id)),
        **instants(next=due_ms),
        "then": [format_instant(one) for one in then_ms],
        "then_ms": list(then_ms),
        "level": level_shown(found.source),
    }
    late = {
        "parked": ", parked because its target is paused or cannot be written to",
        "overdue": ", overdue",
        "waiting": "",
    }[state]
    then = f"; then {', '.join(map(format_instant, then_ms))}" if then_ms else ""
    rule = f"{rule_text(repeated.headers)}  {found.target}  occurrence {repeated.number}{late}{then}"
    return f"{format_instant(due_ms)}  {shown(key)}  {shown(name)}  {rule}", fields


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace")
