"""`tarry cancel`: takes a message back before it is due."""

import json
from typing import Annotated

import typer

from tarry.cli.inspect import configured
from tarry.cli.options import (
    ConfigOption,
    HandleIntakeOption,
    JsonOption,
    ServersOption,
    refuse_other_intakes,
    value_of,
)
from tarry.client import CancelReceipt, DelayedProducer, OutcomeReader
from tarry.config import Config
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.headers import Outcome
from tarry.kafka.settings import Cluster
from tarry.units import format_duration, format_instant, parse_duration_ms


def cancel(
    handle: Annotated[str, typer.Argument(help="The message's handle, from its receipt.", show_default=False)],
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the definite outcome, and print it.")] = False,
    timeout: Annotated[str, typer.Option(metavar="30s", help="How long --wait waits: 500ms, 30s, 1h.")] = "30s",
    intake: HandleIntakeOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Cancel a message that has not been delivered.

    Prints `accepted` once the broker has acknowledged the cancel. If that is before the message is due, it will not be
    delivered. With --wait it then prints what the service says: `cancelled`, or `cancel-too-late`. A message that is
    still beyond the hot window is cancelled shortly before it is due: until then the answer is `cancel-filed`.

    Exits with 1 if it was too late, the time of --wait is over, or the handle is of an intake that is neither
    configured nor named by --intake; with 2 if the handle is none.

    Example: tarry cancel 1.tarry.delayed.2.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21 --wait
    """
    wanted = Handle.parse(handle)
    timeout_ms = value_of("--timeout", parse_duration_ms, timeout)
    settings, cluster = configured(config, bootstrap_servers)
    refuse_other_intakes(wanted, settings, intake)
    _refuse_fixed_delay(settings, wanted.topic)
    if not wait:
        _send(cluster, wanted, as_json=as_json)
        return
    with OutcomeReader(cluster.bootstrap_servers, wanted.topic, cluster.options) as outcomes:
        receipt = _send(cluster, wanted, as_json=as_json)
        last: Outcome | None = None
        for result in outcomes.of_cancel(receipt, timeout_ms / 1_000):
            last = Outcome(result["outcome"])
            typer.echo(json.dumps(result, ensure_ascii=False) if as_json else _text(last, wanted, result.get("reason")))
    if last is None:
        raise UsageError(f"no answer within {format_duration(timeout_ms)}: the cancel is accepted; is it served?")
    if last is Outcome.CANCEL_FILED:
        raise UsageError(
            f"no definite answer within {format_duration(timeout_ms)}: it comes before {format_instant(wanted.due_ms)}"
        )
    if last is not Outcome.CANCELLED:
        raise typer.Exit(1)


def _refuse_fixed_delay(settings: Config, topic: str) -> None:
    if any(intake.topic == topic and intake.is_fixed for intake in settings.intakes):
        raise UsageError(f"intake {topic} has a fixed delay: nothing in it can be cancelled")


def _send(cluster: Cluster, handle: Handle, *, as_json: bool) -> CancelReceipt:
    with DelayedProducer(cluster.bootstrap_servers, handle.topic, cluster.options) as producer:
        receipt = producer.cancel(handle)
    line = {"handle": str(handle), "state": "accepted", "cancel_source": receipt.source}
    typer.echo(json.dumps(line) if as_json else "accepted")
    return receipt


def _text(outcome: Outcome, handle: Handle, reason: str | None) -> str:
    """An answer for people."""
    if outcome is Outcome.CANCEL_FILED:
        return f"{outcome}: accepted; it is beyond the hot window, and cancelled before {format_instant(handle.due_ms)}"
    if outcome is Outcome.CANCEL_TOO_LATE:
        return f"{outcome}: there was nothing to cancel by {format_instant(handle.due_ms)}"
    return f"{outcome}: {reason}" if reason else str(outcome)
