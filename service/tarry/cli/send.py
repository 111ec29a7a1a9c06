"""`tarry send`: send delayed messages, one from the command line or many from a file."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from tarry.cli.asked import Asked
from tarry.cli.inspect import configured, instants
from tarry.cli.interrupts import is_interrupted, stop_if_interrupted
from tarry.cli.options import ConfigOption, ServersOption, default_intake
from tarry.cli.send_file import MessageFile
from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt, RepeatedMessage, ScheduleReceipt
from tarry.client.outcome.result import Result
from tarry.client.receipt import OnlyIf
from tarry.client.record import to_schedule
from tarry.clock import SystemClock
from tarry.config import Config
from tarry.core.request.schedule_times import next_times
from tarry.errors import HeaderError, UsageError
from tarry.handle import Handle
from tarry.headers import Outcome, occurrence_id
from tarry.kafka.settings import Cluster
from tarry.service.repeating import begun


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
            metavar="TIME",
            help="Deliver at this time: RFC 3339 with an offset, such as 2030-01-31T12:00:00Z. With --every: the time "
            "from which it counts.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="15m", help="Repeat the message at this interval, 1s or longer. Needs --key and --name."),
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="Repeat the message at the times of a cron rule with five fields, such as '0 9 * * MON-FRI'. Needs "
            "--key and --name.",
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="The zone of --cron, such as Europe/Berlin. Default: UTC.")
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
            help="The message's name: the message replaces a waiting one with the same key and name. Needs --key.",
        ),
    ] = None,
    only_if: Annotated[
        OnlyIf | None,
        typer.Option(
            "--if",
            help="With --name: send only if no message with this key and name waits (absent), or only if one waits "
            "(present). Otherwise the service skips the message.",
        ),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Do not deliver after this time: the message becomes a dead letter."),
    ] = None,
    expires_in: Annotated[str | None, typer.Option(metavar="1h", help="The same, as a time from now.")] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="5m", help="Deliver later by a time between 0 and this; it is computed from the message's id."
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait for the outcome and print it; of a schedule, that of its first occurrence. There is no timeout.",
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="F", help="Send the messages of a file with one JSON object per line."),
    ] = None,
    config: ConfigOption = None,
    bootstrap_servers: ServersOption = None,
) -> None:
    """Send one delayed message, or one that is repeated, or many from a file.

    When the broker has acknowledged a message, the command prints a receipt as one line of JSON: id, handle, due,
    due_ms, intake, partition, offset. With --wait it then prints the outcome that the service wrote, and exits with 1
    if the outcome is `dead`. With --if and --wait it first prints `scheduled`, as soon as the message waits; or it
    prints `skipped`, and ends.

    With --every or --cron the message is a schedule: it is delivered again and again, until `tarry cancel --key K
    --name N`, or another message of its name. The command checks the rule at once. Its receipt says in next and next_ms
    when the first occurrence is due; it has no handle, due and due_ms. With --wait the command prints the outcome of
    the first occurrence; or the end of the schedule, if that comes first. `tarry schedules` lists schedules.

    Each line of a file is a JSON object with the fields target, value, key, delay or at, id, partition, headers, name,
    if, expires_at or expires_in, window, every or cron, and zone.
    partition is a number, headers is an object of strings, and the other fields are strings in the format of the
    options. A null value or key is a null in Kafka; a missing value is empty, and a missing key is null. The command
    ends at the first bad line; it has sent the messages of the lines above, as their receipts show.

    Example: tarry send orders '{"order": 17}' --key 17 --delay 15m

    Example: tarry send reminders 'pay' --key 17 --name payment --delay 1d

    Example: tarry send reports 'make' --key 17 --name report --cron '0 9 * * MON-FRI' --zone Europe/Berlin

    Example: tarry send polls 'ask' --key feed-3 --name poll --every 15m --if absent

    Example: tarry send caches 'refresh' --at 2030-01-31T12:00:00Z --window 5m --expires-at 2030-01-31T12:30:00Z
    """
    asked = Asked(
        *(target, value, delay, at, key, id_, partition, header, name, only_if, expires_at, expires_in, window),
        *(every, cron, zone),
    )
    if file is not None and (wait or asked != Asked()):
        raise typer.BadParameter(
            "--file excludes TARGET, VALUE, --delay, --at, --key, --id, --partition, --header, --name, --if, "
            "--expires-at, --expires-in, --window, --every, --cron, --zone and --wait"
        )
    settings, cluster = configured(config, bootstrap_servers)
    chosen_intake = intake or default_intake(settings)
    _refuse_other_headers(settings, chosen_intake)
    servers, options = cluster.bootstrap_servers, cluster.options
    tick_ms = settings.wheel.tick_ms
    if file is not None:
        with DelayedProducer(servers, chosen_intake, options, tick_ms=tick_ms) as producer:
            _send_file(producer, file, tick_ms)
        return
    message = asked.message()
    if isinstance(message, RepeatedMessage):
        _repeat(cluster, chosen_intake, message, tick_ms, wait=wait)
        return
    with DelayedProducer(servers, chosen_intake, options, tick_ms=tick_ms) as producer:
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
    _print_last(result)


class _GivenTime(SystemClock):
    """Wall time that stands still, so that the command knows the timestamp of its record."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def _repeat(cluster: Cluster, intake: str, asked: RepeatedMessage, tick_ms: int, *, wait: bool) -> None:
    """Begin a schedule; wait for its first occurrence, or its end, if asked to."""
    clock = _GivenTime(SystemClock().now_ms())
    message, next_ms = begun(asked, clock.now_ms(), tick_ms)
    servers, options = cluster.bootstrap_servers, cluster.options
    with DelayedProducer(servers, intake, options, tick_ms=tick_ms, clock=clock) as producer:
        if not wait:
            _print_schedule(_repeat_one(producer, message), next_ms)
            return
        with OutcomeReader(servers, intake, options) as outcomes:
            receipt = _repeat_one(producer, message)
            _print_schedule(receipt, next_ms)
            if message.only_if is not None:
                decision = outcomes.await_decision(receipt)
                if decision["outcome"] != Outcome.SCHEDULED:
                    _print_last(decision)
                    return
                _print_result(decision)
            # The broker may give the record a later timestamp (LogAppendTime): then the time after it is the first one.
            found, id_ = dict(to_schedule(message, clock.now_ms()).headers), receipt.id.encode()
            due_ms = next_times(found, id_, clock.now_ms(), tick_ms, 2)
            ids = [(one, occurrence_id(id_, one).decode()) for one in due_ms]
            firsts = [Handle(intake, receipt.partition, one, occurrence) for one, occurrence in ids]
            ways = [outcomes.outcome(receipt), *map(outcomes.outcome, firsts)]
            done, _ = wait_for(ways, return_when=FIRST_COMPLETED)
            result = next(one.result() for one in ways if one in done)
    _print_last(result)


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


def _repeat_one(producer: DelayedProducer, message: RepeatedMessage) -> ScheduleReceipt:
    (receipt,) = producer.send_many([message])
    return receipt


def _send_file(producer: DelayedProducer, path: Path, tick_ms: int) -> None:
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
        nexts: deque[int] = deque()
        try:
            for receipt in producer.send_many(_begun(messages, nexts, tick_ms)):
                stop_if_interrupted()
                if isinstance(receipt, ScheduleReceipt):
                    _print_schedule(receipt, nexts.popleft())
                else:
                    _print_receipt(receipt)
        except HeaderError as error:
            # The producer validates each message when it is read, so the bad message is the line read last.
            raise UsageError(f"{messages.place}: {error}") from error
        except BaseException:
            if is_interrupted():
                where = f"stopped at {messages.place}: messages up to this line may be sent without a printed receipt"
                typer.echo(f"tarry: {where}", err=True)
            raise


def _begun(messages: MessageFile, nexts: deque[int], tick_ms: int) -> Iterator[DelayedMessage | RepeatedMessage]:
    """Yield messages; check each schedule among them, and note when its first occurrence is due."""
    for message in messages:
        if isinstance(message, RepeatedMessage):
            repeated, next_ms = begun(message, SystemClock().now_ms(), tick_ms)
            nexts.append(next_ms)
            yield repeated
        else:
            yield message


def _print_last(result: Result) -> None:
    """Print the result that the command has waited for; end with 1 if it is `dead`."""
    _print_result(result)
    if result["outcome"] == Outcome.DEAD:
        raise typer.Exit(1)


def _print_result(result: Result) -> None:
    """Print a result as one line of JSON."""
    typer.echo(json.dumps(result, ensure_ascii=False))


def _print_receipt(receipt: Receipt) -> None:
    """Print a receipt as one line of JSON."""
    handle = receipt.handle
    line = {
        "id": receipt.id,
        "handle": str(handle),
        **instants(due=handle.due_ms),
        "intake": handle.topic,
        "partition": handle.partition,
        "offset": receipt.offset,
    }
    typer.echo(json.dumps(line))


def _print_schedule(receipt: ScheduleReceipt, next_ms: int) -> None:
    """Print the receipt of a schedule as one line of JSON."""
    line = {
        "id": receipt.id,
        **instants(next=next_ms),
        "intake": receipt.intake,
        "partition": receipt.partition,
        "offset": receipt.offset,
    }
    typer.echo(json.dumps(line))
