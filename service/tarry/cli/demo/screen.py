"""The demo's output: a live table on a terminal or plain lines elsewhere, and the summary."""

from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tarry.cli.demo.tally import RunTally
from tarry.units import format_instant

ROWS: Final = 5
LINE_EVERY_MS: Final = 2_000


class Screen(Protocol):
    """Shows the demo's progress. A context manager."""

    def show(self, tally: RunTally, elapsed_ms: int, now_ms: int) -> None:
        """Show the progress.

        Args:
            tally: the counts so far.
            elapsed_ms: the time since the first message.
            now_ms: wall time.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def screen_for(console: Console, for_ms: int) -> Screen:
    """Return a live screen for a terminal, else a screen of lines."""
    return LiveScreen(console, for_ms) if console.is_terminal else LineScreen(console)


class LiveScreen:
    """A table that is redrawn in place.

    Args:
        console: a terminal.
        for_ms: how long the demo runs.
    """

    def __init__(self, console: Console, for_ms: int) -> None:
        self._for_ms = for_ms
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, tally: RunTally, elapsed_ms: int, now_ms: int) -> None:
        """Redraw the table."""
        self._live.update(render(tally, elapsed_ms, self._for_ms, now_ms), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class LineScreen:
    """A line every two seconds, for logs and pipes.

    Args:
        console: the console to print to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_ms = 0

    def show(self, tally: RunTally, elapsed_ms: int, now_ms: int) -> None:
        """Print a line, if the last one is at least `LINE_EVERY_MS` old."""
        del now_ms
        if elapsed_ms < self._next_ms:
            return
        self._next_ms = elapsed_ms + LINE_EVERY_MS
        line = f"{elapsed_ms / 1_000:6.1f} s  {counts(tally)}  {tally.report.lateness}  {promises(tally)}"
        self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def render(tally: RunTally, elapsed_ms: int, for_ms: int, now_ms: int) -> RenderableType:
    """Return the live table: the messages that are due next, the last arrivals with their lateness, and the counts."""
    due = Table(title="due next", title_justify="left", expand=True)
    arrived = Table(title="arrived", title_justify="left", expand=True)
    for table, last in ((due, "due in"), (arrived, "late by")):
        for heading in ("due at (UTC)", "key", "id"):
            table.add_column(heading, no_wrap=True)
        table.add_column(last, justify="right", no_wrap=True)
    waiting = tally.next_due(ROWS)
    for message in waiting:
        in_s = max(0, message.due_ms - now_ms) / 1_000
        due.add_row(_time_of_day(message.due_ms), message.key, message.id[:8], f"{in_s:.1f} s")
    recent = list(reversed(tally.recent))[:ROWS]
    for delivery in recent:
        message = delivery.message
        arrived.add_row(_time_of_day(message.due_ms), message.key, message.id[:8], f"{delivery.late_ms} ms")
    for table, rows in ((due, len(waiting)), (arrived, len(recent))):
        for _ in range(rows, ROWS):  # a table of constant height does not jump on the screen
            table.add_row("", "", "", "")
    style = "bold green" if tally.report.is_clean else "bold red"
    return Group(
        Text(f"tarry demo  {elapsed_ms / 1_000:.0f} of {for_ms / 1_000:g} s  {counts(tally)}", style="bold"),
        due,
        arrived,
        Text(str(tally.report.lateness)),
        Text(promises(tally), style=style),
    )


def counts(tally: RunTally) -> str:
    """Return the numbers of messages that were sent, wait and have arrived, as text."""
    return f"sent {tally.report.sent:,}  waiting {tally.waiting:,}  delivered {tally.delivered:,}"


def promises(tally: RunTally) -> str:
    """Return how often each promise was broken so far, as text."""
    return "  ".join(f"{kind} {tally.report.count(kind)}" for kind in ("early", "twice", "out of order"))


def summary(tally: RunTally) -> list[str]:
    """Return the lines of the summary; messages that have not arrived are waiting or, in a closed tally, lost."""
    report = tally.report
    missing = f"lost {report.count('lost')}" if tally.is_closed else f"still waiting {tally.waiting}"
    broken = [f"{kind} {report.count(kind)}" for kind in ("twice", "early", "out of order")]
    if unexpected := report.count("unexpected"):
        broken.append(f"unexpected {unexpected}")
    return [
        f"sent {report.sent:,}, delivered {tally.delivered:,}: {', '.join([missing, *broken])}",
        f"{report.lateness}, from being due to being read by a read_committed consumer",
    ]


def _time_of_day(epoch_ms: int) -> str:
    return format_instant(epoch_ms)[11:-1]
