"""`tarry send`: send delayed messages, one from the command line or many from a file."""

import json
import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from tarry.cli.inspect import configured
from tarry.cli.options import ConfigOption, ServersOption, default_intake, value_of
from tarry.cli.send_file import MessageFile, delay_of, read_time, time_in
from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt
from tarry.client.outcome.result import Result
from tarry.client.receipt import OnlyIf
from tarry.clock import SystemClock
from tarry.config import Config
from tarry.errors import HeaderError, UsageError
from tarry.headers import Outcome
from tarry.units import format_instant, shown


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments and options of the command line that describe one message."""

    target: str | None = None
    value: str | None = None
    delay: str | None = None
    at: str | None = None
    key: str | None = None
    id: str | None = None
    partition: int | None = None
    header: list[str] | None = None
    name: str | None = None
    only_if: OnlyIf | None = None
    expires_at: str | None = None
    expires_in: str | None = None
    window: str | None = None

    def message(self) -> DelayedMessage:
        """Return the message that they describe."""
        if self.target is None:
            raise typer.BadParameter("needs TARGET, or --file")
        if (self.delay is None) == (self.at is None):
            raise typer.BadParameter("needs either --delay or --at")
        if self.expires_at is not None and self.expires_in is not None:
            raise typer.BadParameter("needs either --expires-at or --expires-in")
        pairs: list[tuple[str, bytes]] = []
        for text in self.header or []:
            name, equals, content = text.partition("=")
            if not name or not equals:
                raise typer.BadParameter(f"--header must be NAME=VALUE: {shown(text)}")
            pairs.append((name, os.fsencode(content)))
        return DelayedMessage(
            self.target,
            sys.stdin.buffer.read() if self.value == "-" else os.fsencode(self.value or ""),
            None if self.key is None else os.fsencode(self.key),
            None if self.delay is None else value_of("--delay", delay_of, self.delay),
            None if self.at is None else value_of("--at", read_time, self.at),
            self.id,
            pairs,
            self.partition,
            None if self.name is None else os.fsencode(self.name),
            self.only_if,
            self._expiry(),
            None if self.window is None else value_of("--window", delay_of, self.window),
        )

    def _expiry(self) -> datetime | None:
        if self.expires_in is not None:
            return value_of("--expires-in", lambda text: time_in(text, SystemClock().now_ms()), self.expires_in)
        return None if self.expires_at is None else value_of("--expires-at", read_time, self.expires_at)


def send(
    target: Annotated[str | None, typer.Argument(help="The topic to deliver to.", show_default=False)] = None,
    value: Annotated[
        str | None,
        typer.Argument(
            help="The message's value as text. - reads it from standard input. Default: empty.", show_default=False
        ),
    ] = None,
    *,
    delay: Annotated[
        str | None, typer.Option(metavar="5s", help="Deliver after this delay: 250ms, 5s, 1h30m, 30d.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Deliver at this time: RFC 3339 with an offset, such as 2030-01-31T12:00:00Z."
        ),
    ] = None,
    intake: Annotated[
        str | None,
        typer.Option(
            metavar="I",
            help="The intake to send to. Default: the first configured intake without a fixed delay or dialect.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="K", help="The message's key. Messages of one key keep their order.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", metavar="UUID", help="The message's id. Default: a random UUID.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The partition of the target. Default: chosen by the key.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="K=V", help="A header of the message; repeat for more headers."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="The message's name: it replaces the message that waits under this name of its key. Needs --key.",
        ),
    ] = None,
    only_if: Annotated[
        OnlyIf | None,
        typer.Option(
            "--if", help="With --name: skip the message if one of its name waits (absent), or if none does (present)."
        ),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Do not deliver after this time: the message becomes a dead letter."),
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(metavar="1h", help="Do not deliver when this time from now has passed.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="5m", help="Deliver later by a part of this window, which follows from the message's id."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the outcome and print it. There is no timeout.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="F", help="Send the messages of a file with one JSON object per line."),
    ] = None,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Send one delayed message, or many from a file.

    When the broker has acknowledged a message, the command prints a receipt as one line of JSON: id, handle, due,
    due_ms, intake, partition, offset. With --wait it then prints the outcome that the service wrote, and exits with 1
    if the outcome is `dead`. With --if and --wait it first prints `scheduled`, as soon as the message waits; or it
    prints `skipped`, and ends.

    Each line of a file is a JSON object with the fields target, value, key, delay or at, id, partition, headers, name,
    if, expires_at or expires_in, and window.
    partition is a number, headers is an object of strings, and the other fields are strings in the format of the
    options. A null value or key is a null in Kafka; a missing value is empty, and a missing key is null. The command
    ends at the first bad line; it has sent the messages of the lines above, as their receipts show.

    Example: tarry send orders '{"order": 17}' --key 17 --delay 15m

    Example: tarry send reminders 'pay' --key 17 --name payment --delay 1d

    Example: tarry send caches 'refresh' --at 2030-01-31T12:00:00Z --window 5m --expires-at 2030-01-31T12:30:00Z
    """
    asked = _Asked(target, value, delay, at, key, id_, partition, header, name, only_if, expires_at, expires_in, window)
    if file is not None and (wait or asked != _Asked()):
        raise typer.BadParameter(
            "--file excludes TARGET, VALUE, --delay, --at, --key, --id, --partition, --header, --name, --if, "
            "--expires-at, --expires-in, --window and --wait"
        )
    settings, cluster = configured(config, bootstrap_servers)
    chosen_intake = intake or default_intake(settings)
    _refuse_other_headers(settings, chosen_intake)
    servers, options = cluster.bootstrap_servers, cluster.options
    producer = DelayedProducer(servers, chosen_intake, options, tick_ms=settings.wheel.tick_ms)
    if file is not None:
        with producer:
            _send_file(producer, file)
        return
    message = asked.message()
    with producer:
        if not wait:
            _print_receipt(_send_one(producer, message))
            return
        with OutcomeReader(servers, chosen_intake, options) as outcomes:
            receipt = _send_one(producer, message)
            _print_receipt(receipt)
            result = outcomes.await_decision(receipt)
            if result["outcome"] == Outcome.SCHEDULED:
                _print_result(result)
                result = outcomes.await_outcome(receipt)
    _print_result(result)
    if result["outcome"] == Outcome.DEAD:
        raise typer.Exit(1)


def _refuse_other_headers(settings: Config, topic: str) -> None:
    """Refuse an intake that does not read tarry's headers: the message would get another due time, or be dead."""
    for intake in settings.intakes:
        if intake.topic == topic and intake.is_fixed:
            raise UsageError(f"intake {topic} has a fixed delay: send to it with a plain Kafka producer")
        if intake.topic == topic and intake.dialect is not None:
            raise UsageError(
                f"intake {topic} has the dialect {intake.dialect}, and does not read the headers of `tarry send`: "
                "choose another intake with --intake, or send to it with a plain Kafka producer"
            )


def _send_one(producer: DelayedProducer, message: DelayedMessage) -> Receipt:
    (receipt,) = producer.send_many([message])
    return receipt


def _send_file(producer: DelayedProducer, path: Path) -> None:
    """Send the messages of a file, with a progress bar on a terminal."""
    console = Console(stderr=True)
    # If standard output is a terminal too, Progress must print the receipts above the bar; otherwise it must not
    # touch standard output.
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
            # The producer validates each message when it is read, so the bad message is the line read last.
            raise UsageError(f"{messages.place}: {error}") from error


def _print_result(result: Result) -> None:
    """Print a result as one line of JSON."""
    typer.echo(json.dumps(result, ensure_ascii=False))


def _print_receipt(receipt: Receipt) -> None:
    """Print a receipt as one line of JSON."""
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
