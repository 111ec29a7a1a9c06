"""`tarry pending`: count the messages that wait, by due time."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from tarry.cli.inspect import configured, open_inspector
from tarry.cli.options import ConfigOption, JsonOption, ServersOption, value_of
from tarry.cli.pending_rows import PendingRow, at_most, by_due_time, listed
from tarry.clock import SystemClock
from tarry.core.request.reader import RequestReader
from tarry.kafka.backlog import Backlog
from tarry.kafka.each_once import all_waiting, waiting_about
from tarry.kafka.inspector import Waiting
from tarry.service.app import policy_at
from tarry.units import parse_instant_ms, shown

LEAST_EPOCH_MS = 10**12
"""The smallest number (September 2001) that is accepted as milliseconds. A smaller one is probably in seconds. The
header `tarry-deliver-at` has the same limit."""

MOST_DIGITS = 14
"""The largest number of digits of an epoch time in milliseconds: 14 digits reach the year 5138."""


def pending(
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="The intake. Default: all configured intakes.")
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="List the messages in the buckets that cover this time: RFC 3339, or milliseconds since the epoch.",
        ),
    ] = None,
    *,
    by_bucket: Annotated[
        bool, typer.Option("--by-bucket", help="Show one row for each bucket, which is a range of due times.")
    ] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Read all waiting messages and count them.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Count the messages that wait, by due time.

    Without options, the command counts from the journal and reads no message. This is fast at any backlog, and gives an
    upper bound. It prints one row for the messages that are in memory or not read yet, one row for each level of the
    overflow wheel in which messages may wait, and one row for the parked log, whose messages wait for targets that are
    paused or away. With --by-bucket, each range of due times of a level has a row of its own.

    With --exact, it reads all waiting messages and counts them by the time until they are due. With --bucket, it lists
    the messages in the buckets of one time, level by level: due time, id, target, key.

    Example: tarry pending --exact
    """
    if exact + by_bucket + (bucket is not None) > 1:
        raise typer.BadParameter("--exact, --by-bucket and --bucket exclude each other: use only one")
    at_ms = None if bucket is None else _read_time(bucket)
    settings, cluster = configured(config, bootstrap_servers)
    with open_inspector(settings, cluster) as inspector:
        for topic in [intake] if intake else [one.topic for one in settings.intakes]:
            backlogs, states = inspector.look(topic)
            say_unserved(topic, settings.service.group, backlogs)
            requests = RequestReader(policy_at(settings, topic))
            if at_ms is not None:
                width_ms = settings.overflow.width_ms
                _list(waiting_about(inspector, backlogs, states, requests, at_ms, width_ms), as_json=as_json)
            elif exact:
                rows = by_due_time(all_waiting(inspector, backlogs, states, requests), SystemClock().now_ms())
                _table(topic, "", list(rows), as_json=as_json)
            else:
                rows = at_most(backlogs, states, by_bucket=by_bucket)
                _table(topic, "at most ", list(rows), as_json=as_json)


def _read_time(text: str) -> int:
    if text.isdecimal():
        if len(text) > MOST_DIGITS or int(text) < LEAST_EPOCH_MS:
            raise typer.BadParameter(
                f"--bucket: a number must be milliseconds since the epoch, with 13 or 14 digits: {shown(text)}"
            )
        return int(text)
    return value_of("--bucket", parse_instant_ms, text)


def say_unserved(topic: str, group: str, backlogs: Sequence[Backlog]) -> None:
    """Say on stderr of which partitions the group has no checkpoint."""
    unserved = [str(backlog.place[1]) for backlog in backlogs if backlog.checkpoint is None]
    if unserved:
        which = topic if len(unserved) == len(backlogs) else f"{topic}, partitions {', '.join(unserved)}"
        text = "`tarry serve` has not served it yet, or its offsets are lost; all of its records count as waiting"
        typer.echo(f"tarry: {which}: group {group} has no checkpoint: {text}", err=True)


def _table(topic: str, bound: str, rows: Sequence[PendingRow], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(json.dumps({"intake": topic, **row.fields}))
        return
    if not rows:
        typer.echo(f"{topic}: nothing waits")
        return
    typer.echo(f"{topic}: {bound}{sum(row.size for row in rows)} wait")
    for row in rows:
        typer.echo(f"{bound}{row.size:>12}  {row.text}")


def _list(found: Iterable[Waiting], *, as_json: bool) -> None:
    try:
        for one in found:
            line, fields = listed(one)
            typer.echo(json.dumps(fields, ensure_ascii=False) if as_json else line)
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
