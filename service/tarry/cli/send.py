"""`tarry send`: messages that arrive later, one from the command line or many from a file."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from tarry.cli.inspect import configured
from tarry.cli.options import ConfigOption, ServersOption, default_intake, value_of
from tarry.cli.send_file import MessageFile, read_delay, read_time
from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt
from tarry.config import Config
from tarry.errors import HeaderError, UsageError
from tarry.headers import Outcome
from tarry.units import format_instant, shown


def send(
    target: Annotated[str | None, typer.Argument(help="The topic to deliver to.", show_default=False)] = None,
    value: Annotated[
        str | None,
        typer.Argument(
            help="The payload: text; - reads it from standard input; without it, empty.", show_default=False
        ),
    ] = None,
    *,
    delay: Annotated[str | None, typer.Option(metavar="5s", help="How long from now: 250ms, 5s, 1h30m, 30d.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When: RFC 3339 with an offset, 2030-01-31T12:00:00Z.")
    ] = None,
    intake: Annotated[
        str | None,
        typer.Option(metavar="I", help="The intake; by default the first one without a fixed delay or dialect."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="K", help="Messages of one key keep their order.")] = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="The message's id; by default random.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The target's partition; by default by the key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="K=V", help="A header, as often as needed.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the outcome, without a time-out, and print it.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="F", help="Send the messages of a file, one JSON object a line, instead."),
    ] = None,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Send messages that are delivered later.

    Prints, once the broker has acknowledged, a receipt as a line of JSON: id, handle, due, due_ms, intake, partition,
    offset. With --wait it then prints the outcome as the service wrote it, and exits with 1 if that is `dead`.

    A line of a file is an object with the fields target, value, key, delay or at, id, partition, headers: texts,
    written as the options are; partition a number, headers an object of texts. A value or key of null is Kafka's null;
    a missing value is empty. A bad line ends the command; what stands before it is sent, as the receipts say.

    Example: tarry send orders '{"order": 17}' --key 17 --delay 15m
    """
    if file is not None:
        _refuse_beside_file(target, value, delay, at, key, id_, partition, header, wait)
    settings, cluster = configured(config, bootstrap_servers)
    chosen_intake = intake or default_intake(settings)
    _refuse_other_headers(settings, chosen_intake)
    servers, options = cluster.bootstrap_servers, cluster.options
    producer = DelayedProducer(servers, chosen_intake, options, tick_ms=settings.wheel.tick_ms)
    if file is not None:
        with producer:
            _send_file(producer, file)
        return
    message = _message(target, value, delay, at, key, id_, partition, header)
    with producer:
        if not wait:
            _print_receipt(_send_one(producer, message))
            return
        with OutcomeReader(servers, chosen_intake, options) as outcomes:
            receipt = _send_one(producer, message)
            _print_receipt(receipt)
            result = outcomes.await_outcome(receipt)
    typer.echo(json.dumps(result, ensure_ascii=False))
    if result["outcome"] == Outcome.DEAD:
        raise typer.Exit(1)


def _refuse_beside_file(*others: object) -> None:
    """A file brings everything."""
    if any(other is not None and other is not False for other in others):
        raise typer.BadParameter("--file stands without TARGET, VALUE and the options of one message")


def _refuse_other_headers(settings: Config, topic: str) -> None:
    """Where our headers are not read, the message would have another due time and handle, or be dead."""
    for intake in settings.intakes:
        if intake.topic == topic and intake.is_fixed:
            raise UsageError(f"intake {topic} has a fixed delay: produce to it with any producer")
        if intake.topic == topic and intake.dialect is not None:
            raise UsageError(
                f"intake {topic} has the dialect {intake.dialect}, and does not read the headers of `tarry send`: "
                "choose another with --intake, or produce to it with any producer"
            )


def _message(
    target: str | None,
    value: str | None,
    delay: str | None,
    at: str | None,
    key: str | None,
    id_: str | None,
    partition: int | None,
    header: list[str] | None,
) -> DelayedMessage:
    """The one message of the command line."""
    if target is None:
        raise typer.BadParameter("needs TARGET, or --file")
    if (delay is None) == (at is None):
        raise typer.BadParameter("needs either --delay or --at")
    pairs: list[tuple[str, bytes]] = []
    for text in header or []:
        name, equals, content = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--header is NAME=VALUE: {shown(text)}")
        pairs.append((name, os.fsencode(content)))
    return DelayedMessage(
        target,
        sys.stdin.buffer.read() if value == "-" else os.fsencode(value or ""),
        None if key is None else os.fsencode(key),
        None if delay is None else value_of("--delay", read_delay, delay),
        None if at is None else value_of("--at", read_time, at),
        id_,
        pairs,
        partition,
    )


def _send_one(producer: DelayedProducer, message: DelayedMessage) -> Receipt:
    (receipt,) = producer.send_many([message])
    return receipt


def _send_file(producer: DelayedProducer, path: Path) -> None:
    """Send a file's messages, with a progress bar where somebody looks."""
    console = Console(stderr=True)
    # With standard output on the same terminal, receipts go above the bar; elsewhere they go where they should.
    with Progress(
        *Progress.get_default_columns(),
        console=console,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        disable=not console.is_terminal,
    ) as progress:
        total_bytes = path.stat().st_size if path.is_file() else None
        task = progress.add_task("sending", total=total_bytes)
        messages = MessageFile(path, lambda read_bytes: progress.advance(task, read_bytes))
        try:
            for receipt in producer.send_many(messages):
                _print_receipt(receipt)
        except HeaderError as error:
            # The producer takes a message as soon as it is read, so it is the last line's.
            raise UsageError(f"{messages.place}: {error}") from error


def _print_receipt(receipt: Receipt) -> None:
    """One line of JSON."""
    handle = receipt.handle
    line = {
        "id": receipt.id,
        "handle": str(handle),
        "due": format_instant(handle.due_ms),
        "due_ms": handle.due_ms,
        "intake": handle.topic,
        "partition": handle.partition,
        "offset": receipt.offset,
    }
    typer.echo(json.dumps(line))
