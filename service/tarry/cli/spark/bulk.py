"""`tarry spark shift` and `tarry spark cancel`: reschedule or cancel the waiting messages that match a predicate."""

import json
import uuid
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tarry.cli.inspect import configured
from tarry.cli.options import signed_duration_ms, value_of
from tarry.cli.spark.job import Job, SparkOptions, job, with_results, with_session
from tarry.clock import SystemClock
from tarry.errors import ConfigError, UsageError
from tarry.progress_output import tell
from tarry.service.app import policy_at
from tarry.units import format_duration, format_instant, parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from tarry.config import Config
    from tarry.core.request.intake_policy import IntakePolicy
    from tarry.pipelines.backlog.plan import Action, PlanSummary

WhereOption = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Predicate over target, key, value, id, due, due_ms, level, partition, offset, headers['name'].",
    ),
]
PlanOption = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="DIR",
        help="With --where: write the plan to this new directory. Without --where, with --run: run the plan in this "
        "directory.",
    ),
]
RunOption = Annotated[bool, typer.Option("--run", help="Run the plan; without it, only show the plan.")]
IntakeOption = Annotated[str | None, typer.Option(metavar="I", help="The intake; needed if several are configured.")]
MarginOption = Annotated[
    str,
    typer.Option(
        metavar="30s",
        help="Skip messages that are due sooner than this: the service may deliver them before it reads the cancel.",
    ),
]
AtOnceOption = Annotated[int, typer.Option(metavar="N", min=1, max=2_000, help="The most messages in one transaction.")]
WaitOption = Annotated[str, typer.Option(metavar="30s", help="How long to wait for the results of the cancels.")]


class BulkOptions(NamedTuple):
    """The options of a shift or cancel."""

    action: "Action"
    where: str | None
    by_ms: int
    path: str | None
    intake: str | None
    margin_ms: int
    at_once: int
    wait_ms: int
    is_run: bool


@with_session
def shift(
    *,
    where: WhereOption = None,
    by: Annotated[str | None, typer.Option(metavar="2h", help="Move due times later by this; -2h: earlier.")] = None,
    plan: PlanOption = None,
    run: RunOption = False,
    intake: IntakeOption = None,
    margin: MarginOption = "30s",
    at_once: AtOnceOption = 500,
    wait: WaitOption = "30s",
    session: SparkOptions,
) -> None:
    """Deliver waiting messages later or earlier: all messages that match a predicate.

    Without --run, shows the matching messages and writes the plan to --plan DIR. With --run, cancels each message and
    sends its replacement, with a new id and due time, in one transaction. The replacement of a named message has its
    name. After a killed run, --plan DIR --run does the rest.

    Examples:
      tarry spark shift --where "target = 'campaign' and key like 'x%'" --by 2h --plan later
      tarry spark shift --plan later --run
      tarry spark shift --where "headers['tenant'] = 'acme' and due < '2030-01-31 12:00'" --by -30m --plan p --run
    """
    if (where is None) != (by is None):
        raise ConfigError("--where needs --by, and --by needs --where; to run a written plan, use --plan DIR --run")
    by_ms = 0 if by is None else value_of("--by", signed_duration_ms, by)
    margin_ms = value_of("--margin", parse_duration_ms, margin)
    wait_ms = value_of("--wait", parse_duration_ms, wait)
    wanted = BulkOptions("shift", where, by_ms, plan, intake, margin_ms, at_once, wait_ms, run)
    _check(wanted, session)
    with job("shift", session, _topics(intake)) as running:
        _work(running, wanted)


@with_session
def cancel(
    *,
    where: WhereOption = None,
    plan: PlanOption = None,
    run: RunOption = False,
    intake: IntakeOption = None,
    margin: MarginOption = "30s",
    at_once: AtOnceOption = 500,
    wait: WaitOption = "30s",
    session: SparkOptions,
) -> None:
    """Cancel waiting messages: all messages that match a predicate.

    Works like `tarry spark shift`, without replacement messages.

    Examples:
      tarry spark cancel --where "target = 'campaign' and get_json_object(value, '$.season') = 'spring'" --plan gone
      tarry spark cancel --plan gone --run
    """
    margin_ms = value_of("--margin", parse_duration_ms, margin)
    wait_ms = value_of("--wait", parse_duration_ms, wait)
    wanted = BulkOptions("cancel", where, 0, plan, intake, margin_ms, at_once, wait_ms, run)
    _check(wanted, session)
    with job("cancel", session, _topics(intake)) as running:
        _work(running, wanted)


def _check(wanted: BulkOptions, session: SparkOptions) -> None:
    """Before Spark starts, refuse options that exclude each other, and an unknown or ambiguous intake."""
    if wanted.where is None and not wanted.is_run:
        raise ConfigError("give --where SQL to make a plan, or --plan DIR --run to run one")
    if wanted.path is None and wanted.is_run:
        raise ConfigError("--run needs --plan DIR: without a written plan, a killed run cannot be completed")
    settings, _ = configured(session.config, session.bootstrap_servers)
    _intake(settings, wanted.intake)


def _work(running: Job, wanted: BulkOptions) -> None:
    """Make a plan if there is a predicate, and run it with `--run`."""
    from tarry.pipelines.backlog import plan as planning

    accepts = policy_at(running.config, _intake(running.config, wanted.intake))
    planning.refuse_unsuitable(accepts, wanted.action)
    if wanted.where is not None:
        _plan(running, wanted, accepts, wanted.where)
    if wanted.is_run and wanted.path is not None:
        _run(running, wanted, accepts, wanted.path)


def _plan(running: Job, wanted: BulkOptions, accepts: "IntakePolicy", where: str) -> None:
    """Find the messages, show the plan, and write it with `--plan`."""
    from tarry.pipelines.backlog import plan as planning
    from tarry.pipelines.backlog.waiting import matching_messages, refuse_bad, waiting

    refuse_bad(running.spark, where)
    if wanted.path is not None:
        planning.refuse_existing(running.spark, wanted.path)
    now_ms = SystemClock().now_ms()
    group = running.config.service.group
    found = matching_messages(waiting(running.topics, group, accepts, on_progress=tell), where).localCheckpoint()
    in_time = found.where(found["due_ms"] >= now_ms + wanted.margin_ms)
    soon = found.count() - in_time.count()
    planned = planning.plan(in_time, accepts, wanted.action, by_ms=wanted.by_ms, name=uuid.uuid4(), made_ms=now_ms)
    short = planning.summarise_plan(planned)
    latest_ms = now_ms + accepts.max_delay_ms
    if short.last_new_ms is not None and short.last_new_ms > latest_ms:
        raise UsageError(
            f"messages would be due up to {format_instant(short.last_new_ms)}, and {accepts.topic} accepts due times "
            f"up to {format_instant(latest_ms)}: shift by less, or raise its max_delay"
        )
    if wanted.path is not None:
        planning.write(planned, wanted.path)
    _show(wanted.action, short)
    if soon:
        tell(f"{soon:,} more messages are due within {format_duration(wanted.margin_ms)} and stay unchanged")
    if not wanted.is_run:
        would = {"action": wanted.action, "plan": wanted.path, "would": short.count, "too_soon": soon}
        typer.echo(json.dumps({**would, "by_target": short.by_target}))


def _run(running: Job, wanted: BulkOptions, accepts: "IntakePolicy", path: str) -> None:
    """Run a written plan, and print the outcome."""
    from tarry.pipelines.backlog import plan as planning
    from tarry.pipelines.backlog.bulk import Run

    run = Run(
        running.topics,
        running.config.service.group,
        accepts,
        margin_ms=wanted.margin_ms,
        at_once=wanted.at_once,
        wait_s=wanted.wait_ms / 1_000,
        on_progress=tell,
    )
    done = run.run(planning.read_plan(running.spark, path, wanted.action), is_new=wanted.where is not None)
    typer.echo(json.dumps({"action": wanted.action, "plan": path, **done._asdict()}))
    if done.missed:
        tell(f"{done.missed:,} messages with a name are unchanged, because they did not wait any more")
    if done.too_late:
        outcome = "are delivered twice" if wanted.action == "shift" else "were delivered"
        raise UsageError(f"{done.too_late:,} cancels came too late: those messages {outcome}")
    if done.refused:
        raise UsageError(f"{done.refused:,} of the sent records became dead letters")


def _topics(wanted: str | None) -> "Callable[[Config], list[str]]":
    """The topics that must exist before Spark starts."""
    return lambda settings: with_results([_intake(settings, wanted)])


def _intake(settings: "Config", wanted: str | None) -> str:
    """The intake to use. It must be configured: only then is it known whether it accepts cancels."""
    topics = [one.topic for one in settings.intakes]
    if wanted is None and len(topics) > 1:
        raise ConfigError(f"--intake is needed: several intakes are configured ({', '.join(topics)})")
    if wanted is not None and wanted not in topics:
        raise ConfigError(f"--intake: {wanted} is not configured; configured: {', '.join(topics)}")
    return wanted or topics[0]


def _show(action: "Action", short: "PlanSummary") -> None:
    """Print a plan on stderr."""
    tell(f"{action}: {short.count:,} messages")
    for target, count in short.by_target.items():
        tell(f"  {count:,} to {target}")
    for handle, target, due_ms, new_due_ms in short.first:
        later = "" if new_due_ms is None else f" -> {format_instant(new_due_ms)}"
        tell(f"  {format_instant(due_ms)}{later}  {target}  {handle}")
    if short.count > len(short.first):
        tell(f"  and {short.count - len(short.first):,} more")
