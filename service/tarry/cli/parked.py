"""`tarry parked`: show which targets have messages in the parked log, how many, and since when; or purge one."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import typer

from tarry.cli.inspect import configured, instants, open_inspector
from tarry.cli.options import ConfigOption, JsonOption, ServersOption, positive_duration_ms, value_of
from tarry.client import OutcomeReader
from tarry.client.purging import send_purges
from tarry.clock import SystemClock
from tarry.errors import UsageError
from tarry.headers import is_legal_topic
from tarry.kafka.inspector import Inspector, ParkedMessages
from tarry.kafka.settings import Cluster
from tarry.units import format_duration, format_instant


class ParkedTarget(NamedTuple):
    """The parked messages of one target, in all partitions.

    Attributes:
        target: the target.
        messages: how many they are.
        since_ms: the due time of the first one; None if it is not in the log any more.
        partitions: the partitions of the intake that they came to.
    """

    target: str
    messages: int
    since_ms: int | None
    partitions: tuple[int, ...]


def parked(
    intake: Annotated[
        str | None, typer.Option(metavar="I", help="The intake. Default: all configured intakes.")
    ] = None,
    *,
    purge: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Make dead letters of this target's messages. Without --run: only say how many."
        ),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="With --purge: do it.")] = False,
    timeout: Annotated[
        str,
        typer.Option(metavar="10m", help="With --run: the longest time to wait for the service, such as 30s or 1h."),
    ] = "10m",
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Show the messages that are due and cannot be delivered, by target.

    A target is paused, or Kafka accepts no records for it now: a partition has no leader or too few in-sync replicas,
    or the service has no WRITE right. (A message for a topic that does not exist becomes a dead letter.) Its messages
    wait in memory at first, and after 30 s in the parked log. The command prints one row for each target with messages
    there: how many, and since when the first one is due. The service delivers them in order when the target accepts
    records again, or is resumed. A message that is cancelled or replaced by its name meanwhile counts until then.

    If a target never comes back, --purge makes dead letters of its messages: all that are due when the service reads
    the request and not delivered, in memory or in the log. Each has the error code `purged`, and one result. The
    command waits until the service has done it in all partitions. The service does it even if the command is stopped.

    Exit code: 1 if --timeout is over before the service has done it.

    Examples:
      tarry parked --intake tarry.delayed
      tarry parked --purge orders.old
      tarry parked --purge orders.old --run
    """
    if run and purge is None:
        raise typer.BadParameter("--run needs --purge TARGET")
    if purge is not None and not is_legal_topic(purge):
        raise typer.BadParameter(f"--purge: not a legal topic name: {purge}")
    timeout_ms = value_of("--timeout", positive_duration_ms, timeout)
    settings, cluster = configured(config, bootstrap_servers)
    with open_inspector(settings, cluster) as inspector:
        for topic in [intake] if intake else [one.topic for one in settings.intakes]:
            if purge is not None and run:
                _purge(cluster, inspector, topic, purge, timeout_ms, as_json=as_json)
            rows = by_target(inspector.parked(*inspector.look(topic)))
            if purge is not None:
                messages = sum(row.messages for row in rows if row.target == purge)
                typer.echo(_told(topic, purge, messages, purged=run, as_json=as_json))
                continue
            for line in lines(topic, rows, as_json=as_json):
                typer.echo(line)


def _told(intake: str, target: str, messages: int, *, purged: bool, as_json: bool) -> str:
    """Return what a purge would do, or has done."""
    if as_json:
        return json.dumps({"intake": intake, "target": target, "messages": messages, "purged": purged})
    if purged:
        return f"{intake}: the messages for {target} are dead letters now; {messages} were parked after the purge"
    return (
        f"{intake}: {messages} messages for {target} in the parked log would become dead letters, and with them those "
        "that are due and in memory; --run does it"
    )


def _purge(cluster: Cluster, inspector: Inspector, intake: str, target: str, timeout_ms: int, *, as_json: bool) -> None:
    """Purge a target in all partitions of an intake, and wait until the service has done it.

    Raises:
        UsageError: the time is over.
    """
    clock, places = SystemClock(), [backlog.place for backlog in inspector.survey(intake)]
    end_ms, done = clock.monotonic_ms() + timeout_ms, 0
    with OutcomeReader(cluster.bootstrap_servers, intake, cluster.options) as outcomes:
        for receipt in send_purges(cluster, intake, [partition for _, partition in places], target):
            try:
                outcomes.await_outcome(receipt, max(0, end_ms - clock.monotonic_ms()) / 1_000)
            except TimeoutError:
                raise UsageError(
                    f"{done} of {len(places)} partitions of {intake} have answered within "
                    f"{format_duration(timeout_ms)}: the others still purge, or `tarry serve` does not run for them"
                ) from None
            done += 1
            if not as_json:
                typer.echo(f"{intake}/{receipt.handle.partition}: purged", err=True)


def by_target(found: Iterable[ParkedMessages]) -> list[ParkedTarget]:
    """Add up the parked messages of all partitions, the target that has waited longest first."""
    rows: dict[str, ParkedTarget] = {}
    for one in found:
        row = rows.get(one.target) or ParkedTarget(one.target, 0, one.since_ms, ())
        known = [at_ms for at_ms in (row.since_ms, one.since_ms) if at_ms is not None]
        rows[one.target] = ParkedTarget(
            one.target, row.messages + one.messages, min(known, default=None), (*row.partitions, one.place[1])
        )
    return sorted(rows.values(), key=lambda row: (row.since_ms is None, row.since_ms or 0, row.target))


def lines(intake: str, rows: Iterable[ParkedTarget], *, as_json: bool) -> list[str]:
    """Return the rows as lines of text, or as JSON objects."""
    if as_json:
        return [json.dumps(_fields(intake, row)) for row in rows]
    found = [
        f"{row.messages:>12}  {row.target}"
        + ("" if row.since_ms is None else f", the first one due since {format_instant(row.since_ms)}")
        for row in rows
    ]
    return (
        [f"{intake}: {sum(row.messages for row in rows)} are parked", *found]
        if found
        else [f"{intake}: nothing is parked"]
    )


def _fields(intake: str, row: ParkedTarget) -> dict[str, Any]:
    return {
        "intake": intake,
        "target": row.target,
        "messages": row.messages,
        **instants(since=row.since_ms),
        "partitions": list(row.partitions),
    }
