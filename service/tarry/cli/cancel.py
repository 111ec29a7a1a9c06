"""`tarry cancel`: cancel a message before it is delivered."""

import json
from contextlib import ExitStack
from typing import Annotated

import typer

from tarry.cli.inspect import configured
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
    handle: Annotated[
        str | None, typer.Argument(help="The message's handle, from the receipt of tarry send.", show_default=False)
    ] = None,
    *,
    key: KeyOfNameOption = None,
    name: NameOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the final outcome and print it.")] = False,
    timeout: Annotated[
        str, typer.Option(metavar="30s", help="With --wait: the longest time to wait, such as 500ms, 30s or 1h.")
    ] = "30s",
    intake: HandleIntakeOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Cancel a message that has not been delivered.

    Prints `accepted` when the broker has acknowledged the cancel request. The message is not
    delivered if the service reads the cancel request before it delivers the message.

    With --wait the command then prints the service's answer: `cancelled` or `cancel-too-late`. If the message is not
    due soon (within 5 to 25 s by default), the service first answers `cancel-filed`, and gives the final answer shortly
    before the message is due.

    With --key and --name the command cancels the message that waits under that name. The answer is always final: the
    service gives it as soon as it reads the request.

    Exit codes: 1 if the message was not cancelled, if --wait timed out, or if the handle belongs to another intake than
    that of --intake or, without --intake, than the configured ones; 2 if HANDLE is not a handle.

    Example: tarry cancel 1.tarry.delayed.2.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21 --wait

    Example: tarry cancel --key 17 --name payment --wait
    """
    by_name = named(handle, key, name)
    timeout_ms = value_of("--timeout", parse_duration_ms, timeout)
    settings, cluster = configured(config, bootstrap_servers)
    if by_name is not None:
        _by_name(cluster, intake or default_intake(settings), *by_name, timeout_ms if wait else None, as_json=as_json)
        return
    wanted = parsed_handle(handle or "")
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
        raise UsageError(_no_answer(timeout_ms))
    if last is Outcome.CANCEL_FILED:
        raise UsageError(
            f"no final answer within {format_duration(timeout_ms)}: "
            f"the service gives it shortly before {format_instant(wanted.due_ms)}"
        )
    if last is not Outcome.CANCELLED:
        raise typer.Exit(1)


def _by_name(cluster: Cluster, intake: str, key: bytes, name: bytes, timeout_ms: int | None, *, as_json: bool) -> None:
    """Cancel the message that waits under a name; wait for the answer if there is a timeout."""
    with ExitStack() as open_clients:
        outcomes = None
        if timeout_ms is not None:
            outcomes = open_clients.enter_context(OutcomeReader(cluster.bootstrap_servers, intake, cluster.options))
        with DelayedProducer(cluster.bootstrap_servers, intake, cluster.options) as producer:
            receipt = producer.cancel_named(key, name)
        line = {"id": receipt.id, "state": "accepted", "source": receipt.source}
        typer.echo(json.dumps(line) if as_json else "accepted")
        if outcomes is None or timeout_ms is None:
            return
        try:
            result = outcomes.await_outcome(receipt, timeout_ms / 1_000)
        except TimeoutError:
            raise UsageError(_no_answer(timeout_ms)) from None
    outcome, reason = result["outcome"], result.get("reason")
    text = (
        f"{outcome}: no message waits under this name in {intake}"
        if outcome == Outcome.CANCEL_TOO_LATE
        else str(outcome)
    )
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else f"{text}: {reason}" if reason else text)
    if outcome != Outcome.CANCELLED:
        raise typer.Exit(1)


def _no_answer(timeout_ms: int) -> str:
    return (
        f"no answer within {format_duration(timeout_ms)}: the broker has accepted the cancel; "
        "check that `tarry serve` is running for this intake"
    )


def _refuse_fixed_delay(settings: Config, topic: str) -> None:
    if any(intake.topic == topic and intake.is_fixed for intake in settings.intakes):
        raise UsageError(f"intake {topic} has a fixed delay: its messages cannot be cancelled")


def _send(cluster: Cluster, handle: Handle, *, as_json: bool) -> CancelReceipt:
    with DelayedProducer(cluster.bootstrap_servers, handle.topic, cluster.options) as producer:
        receipt = producer.cancel(handle)
    line = {"handle": str(handle), "state": "accepted", "cancel_source": receipt.source}
    typer.echo(json.dumps(line) if as_json else "accepted")
    return receipt


def _text(outcome: Outcome, handle: Handle, reason: str | None) -> str:
    """Return an answer of the service as text for people."""
    if outcome is Outcome.CANCEL_FILED:
        return (
            f"{outcome}: accepted; the message is not due soon, "
            f"and the service decides shortly before {format_instant(handle.due_ms)}"
        )
    if outcome is Outcome.CANCEL_TOO_LATE:
        return f"{outcome}: there was nothing to cancel; the due time was {format_instant(handle.due_ms)}"
    return f"{outcome}: {reason}" if reason else str(outcome)
