"""`tarry status`: show where a message is."""

import json
from dataclasses import replace
from typing import Annotated, Any

import typer

from tarry.cli.inspect import configured, instants, open_inspector
from tarry.cli.options import (
    ConfigOption,
    HandleIntakeOption,
    JsonOption,
    KeyOfNameOption,
    NameOption,
    ServersOption,
    default_intake,
    named,
    parsed_handle,
    refuse_other_intakes,
)
from tarry.cli.pending_rows import level_shown
from tarry.clock import SystemClock
from tarry.config import Config
from tarry.core.progress.source import PARKED
from tarry.core.request.schedule_times import next_times, rule_fields, rule_text
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.headers import Outcome, id_text, name_fault
from tarry.kafka.inspector import Inspector
from tarry.kafka.whereabouts import Whereabouts, find
from tarry.service.app import policy_at
from tarry.units import format_duration, format_instant

_LOOKS = 5
"""How often to look for the message of a name: an occurrence may be delivered meanwhile, and the next one waits."""

_THEN = 2
"""How many times of a schedule are shown after the one that comes next."""


def status(
    handle: Annotated[
        str | None, typer.Argument(help="The message's handle, from the receipt of tarry send.", show_default=False)
    ] = None,
    *,
    key: KeyOfNameOption = None,
    name: NameOption = None,
    intake: HandleIntakeOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Show where a message is: waiting, fired, cancelled and so on.

    The states are waiting, fired, cancelled, replaced, skipped, dead, duplicate and unknown. For a waiting message, the
    command prints where it waits (in memory, in a bucket of the overflow wheel, or in the parked log), when it is due,
    and whether a cancel for it is pending.

    The command searches the results and the waiting messages; of those in the levels it reads only those of about the
    same due time. Results are kept for 7 days; a message with an older result is unknown.

    With --key and --name the command finds only a message that still waits: after the delivery the name is free. Of a
    schedule it shows the occurrence that comes next, the rule, and the two times after it.

    Exit codes: 1 if the message is unknown, or none waits under the name; 2 if HANDLE is not a handle.

    Example: tarry status 1.tarry.delayed.2.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21

    Example: tarry status --key 17 --name payment
    """
    by_name = named(handle, key, name)
    given = None if handle is None else parsed_handle(handle)
    settings, cluster = configured(config, bootstrap_servers)
    if given is not None:
        refuse_other_intakes(given, settings, intake)
    # The answer is as of when reading began: what is due while the logs are read is not late.
    now_ms, tick_ms = SystemClock().now_ms(), settings.wheel.tick_ms
    with open_inspector(settings, cluster) as inspector:
        if given is not None:
            wanted, found = given, find(inspector, given, policy_at(settings, given.topic))
        else:
            topic = intake or default_intake(settings)
            wanted, found, now_ms = _named(inspector, settings, topic, *(by_name or (b"", b"")))
    line = json.dumps(_fields(wanted, found, now_ms, tick_ms)) if as_json else _text(wanted, found, now_ms, tick_ms)
    typer.echo(line)
    if _state(found) == "unknown":
        raise typer.Exit(1)


def _named(
    inspector: Inspector, settings: Config, intake: str, key: bytes, name: bytes
) -> tuple[Handle, Whereabouts, int]:
    """Return the handle of the message that waits under a name, where it is, and when the look began that found it.

    Raises:
        UsageError: none does.
    """
    if fault := name_fault(name):
        raise UsageError(f"--name {fault}")
    for _ in range(_LOOKS):
        now_ms = SystemClock().now_ms()
        handle = _handle_of(inspector, intake, key, name)
        found = find(inspector, handle, policy_at(settings, intake))
        if _state(found) != "unknown":
            break
    return (handle if found.id is None else replace(handle, id=found.id)), found, now_ms


def _handle_of(inspector: Inspector, intake: str, key: bytes, name: bytes) -> Handle:
    """Return the handle of the message that waits under a name; of an occurrence, with the id of its schedule."""
    (topic, partition), entry, is_served = inspector.named(intake, key, name)
    if not is_served:
        raise UsageError(f"`tarry serve` has not served {topic}/{partition} yet: names are looked up in what it writes")
    if entry is None:
        raise UsageError(f"no message waits under this name in {topic}/{partition}, as far as the service has read it")
    return Handle(topic, partition, entry.due_ms, id_text(entry.id).decode())


def _state(found: Whereabouts) -> str:
    if found.waits_in is not None:
        return "waiting"
    return "unknown" if found.result is None else str(found.result["outcome"])


def _fields(handle: Handle, found: Whereabouts, now_ms: int, tick_ms: int) -> dict[str, Any]:
    """Return the JSON object."""
    fields = {"handle": str(handle), "state": _state(found), **instants(due=handle.due_ms)}
    if found.waits_in is not None:
        fields["level"] = level_shown(found.waits_in)
        if found.bucket is not None:
            fields |= instants(bucket_from=found.bucket[0].start_ms, bucket_until=found.bucket[1])
    if found.result is not None:
        fields |= instants(at=found.result.get("at_ms"))
        fields |= {
            name: found.result[name]
            for name in ("target", "source", "reason", "cancel_source", "replaced_by")
            if name in found.result
        }
    if found.repeated is not None:
        schedule, number, headers = found.repeated
        then_ms = next_times(headers, schedule, max(now_ms, handle.due_ms), tick_ms, _THEN)
        fields |= {"schedule": schedule.decode(), "occurrence": number, **rule_fields(headers)}
        fields |= {"then": [format_instant(one) for one in then_ms], "then_ms": list(then_ms)}
    return {**fields, "cancel_waits": found.cancel_waits, "served": found.is_served}


def _text(handle: Handle, found: Whereabouts, now_ms: int, tick_ms: int) -> str:
    """Return one line of text for people."""
    due = f"due {format_instant(handle.due_ms)}"
    cancel = "; a cancel for it is pending" if found.cancel_waits else ""
    if found.waits_in is not None:
        ahead_ms = handle.due_ms - now_ms
        when = f"in {_rounded(ahead_ms)}" if ahead_ms > 0 else f"{_rounded(-ahead_ms)} ago"
        return f"waiting: {_place(found)}; {due}, {when}{cancel}{_schedule(handle, found, now_ms, tick_ms)}"
    if found.result is None:
        served = "" if found.is_served else "; `tarry serve` has not served its partition yet"
        return f"unknown: the message is not waiting and has no result; {due}{cancel}{served}"
    return _outcome(found.result, handle, due) + cancel


def _schedule(handle: Handle, found: Whereabouts, now_ms: int, tick_ms: int) -> str:
    """Return that a message is repeated, as text to append; empty if it is not."""
    if found.repeated is None:
        return ""
    schedule, number, headers = found.repeated
    then_ms = next_times(headers, schedule, max(now_ms, handle.due_ms), tick_ms, _THEN)
    then = f", then {', '.join(map(format_instant, then_ms))}" if then_ms else ""
    return f"; occurrence {number} of a schedule: {rule_text(headers)}{then}"


def _place(found: Whereabouts) -> str:
    if found.waits_in is not None and found.waits_in.level == PARKED:
        return "parked, because its target is paused or cannot be written to"
    if found.bucket is None:
        if not found.is_served:
            return "`tarry serve` has not served its partition yet"
        return (
            "the service has not read it yet, and will write it to the dead letters"
            if found.will_be_dead
            else "in memory"
        )
    bucket, until_ms = found.bucket
    return f"level {bucket.level}, the bucket from {format_instant(bucket.start_ms)} to {format_instant(until_ms)}"


def _outcome(result: dict[str, Any], handle: Handle, due: str) -> str:
    outcome, at_ms = str(result["outcome"]), int(result["at_ms"])
    at = format_instant(at_ms)
    match outcome:
        case Outcome.FIRED:
            late = f"{_rounded(at_ms - handle.due_ms)} after it was due" if at_ms >= handle.due_ms else due
            return f"fired: at {at}, {late}, to {result.get('target')}"
        case Outcome.DEAD:
            return f"dead: {result.get('reason')}, at {at}; it is in {handle.topic}.dead"
        case Outcome.DUPLICATE:
            return (
                "duplicate: the service had another message with this id and due time, and did not deliver this one "
                f"(decided at {at}); {due}"
            )
        case _:
            return f"{outcome}: at {at}; {due}"


def _rounded(duration_ms: int) -> str:
    """Return a duration rounded down to about two units, such as `3h20m`."""
    for unit_ms in (3_600_000, 60_000, 1_000):
        if duration_ms >= 24 * unit_ms:
            return format_duration(duration_ms // unit_ms * unit_ms)
    return format_duration(duration_ms)
