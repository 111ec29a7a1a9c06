"""`tarry spark audit`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tarry.cli.options import value_of
from tarry.cli.spark.job import SparkOptions, job, named_or_all, of_intakes, with_session
from tarry.errors import ConfigError
from tarry.pipelines.faults import CARRIED, FAULTS, MATCHED, NO_FAULTS
from tarry.progress_output import tell
from tarry.service.app import policy_at
from tarry.units import parse_duration_ms, parse_instant_ms

_OF_RECORDS = [kind for kind in NO_FAULTS if kind not in {MATCHED, CARRIED}]
"""Kinds of records at targets that are no fault, unless `--fail-on` names them."""


@with_session
def audit(
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="Directory of tables and report; any path that Spark can write.")
    ],
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Directory for the messages that the next run must judge; default: OUT/state."
        ),
    ] = None,
    intake: Annotated[
        list[str] | None, typer.Option(metavar="I", help="An intake; repeatable; default: all configured intakes.")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Audit only messages with a timestamp from this time on (RFC 3339). The run neither uses nor changes "
            "the state of other runs.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="Audit only messages with a timestamp before this time; otherwise as --from."
        ),
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="60s", help="Judge only messages that have been due for at least this time.")
    ] = "60s",
    accepted_within: Annotated[
        str,
        typer.Option(
            metavar="60s",
            help="Also judge the order of messages that were sent at least this long before they were due: the audit "
            "assumes that the service had read them by then.",
        ),
    ] = "60s",
    max_late: Annotated[
        str | None,
        typer.Option(metavar="5s", help="A message that arrives later than this after its due time is a fault."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help=f"Exit with 1 on any of these faults: {','.join(FAULTS)}; or on any of these kinds of records, which "
            f"are no fault by themselves: {','.join(_OF_RECORDS)}.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
    session: SparkOptions,
) -> None:
    """Compare each accepted message with its result and with the records at its target.

    A run continues where the last run ended, and leaves messages that are not due yet to the next run. It writes the
    tables messages, findings and lateness, summary.json and report.html. With --from or --to it audits only messages of
    that time span, independently of other runs.

    Examples:
      tarry spark audit --out /audit --fail-on lost,duplicate,early,order
      tarry spark audit --out /tmp/yesterday --from 2030-01-30T00:00:00Z --to 2030-01-31T00:00:00Z
    """
    wanted = _kinds(fail_on)
    max_late_ms = None if max_late is None else value_of("--max-late", parse_duration_ms, max_late)
    if "late" in wanted and max_late_ms is None:
        raise ConfigError("--fail-on late needs --max-late, such as --max-late 5s")
    grace_ms = value_of("--grace", parse_duration_ms, grace)
    within_ms = value_of("--accepted-within", parse_duration_ms, accepted_within)
    from_ms = None if from_ is None else value_of("--from", parse_instant_ms, from_)
    to_ms = None if to is None else value_of("--to", parse_instant_ms, to)
    with job("audit", session, of_intakes(intake)) as running:
        from tarry.pipelines.audit import Audit, Span

        names = list(dict.fromkeys(named_or_all(running.config, intake)))
        summary = Audit(
            policies=[policy_at(running.config, name) for name in names],
            out=out,
            state=state or f"{out.rstrip('/')}/state",
            span=None if from_ms is None and to_ms is None else Span(from_ms, to_ms),
            grace_ms=grace_ms,
            accepted_within_ms=within_ms,
            max_late_ms=max_late_ms,
        ).run(running.topics, tell)
    typer.echo(json.dumps(asdict(summary)) if as_json else f"{summary.line}\n{summary.account}")
    if any((summary.accounted | summary.faults)[kind] for kind in wanted):
        raise typer.Exit(1)


def _kinds(text: str | None) -> list[str]:
    kinds = [kind.strip() for kind in text.split(",")] if text else []
    for kind in kinds:
        if kind not in {*FAULTS, *_OF_RECORDS}:
            raise typer.BadParameter(f"--fail-on: {kind} is not one of {', '.join((*FAULTS, *_OF_RECORDS))}")
    return kinds
