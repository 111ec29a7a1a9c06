"""The demo's output: a live table on a terminal or plain lines elsewhere, and the summary."""

from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tarry.cli.demo.tally import Tally
from tarry.units import format_instant

ROWS: Final = 5
LINE_EVERY_MS: Final = 2_000
_NO_VALUE: Final = "-"


class Screen(Protocol):
    """Shows the demo's progress. A context manager."""

    def show(self, tally: Tally, elapsed_ms: int, now_ms: int) -> None:
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

    def show(self, tally: Tally, elapsed_ms: int, now_ms: int) -> None:
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

    def show(self, tally: Tally, elapsed_ms: int, now_ms: int) -> None:
        """Print a line, if the last one is at least `LINE_EVERY_MS` old."""
        del now_ms
        if elapsed_ms < self._next_ms:
            return
        self._next_ms = elapsed_ms + LINE_EVERY_MS
        line = f"{elapsed_ms / 1_000:6.1f} s  {counts(tally)}  {lateness(tally)}  {promises(tally)}"
        self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return


def render(tally: Tally, elapsed_ms: int, for_ms: int, now_ms: int) -> RenderableType:
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
    style = "bold red" if tally.broken else "bold green"
    return Group(
        Text(f"tarry demo  {elapsed_ms / 1_000:.0f} of {for_ms / 1_000:g} s  {counts(tally)}", style="bold"),
        due,
        arrived,
        Text(lateness(tally)),
        Text(promises(tally), style=style),
    )


def counts(tally: Tally) -> str:
    """Return the numbers of messages that were sent, wait and have arrived, as text."""
    return f"sent {tally.sent:,}  waiting {tally.waiting:,}  delivered {tally.delivered:,}"


def lateness(tally: Tally) -> str:
    """Return the percentiles of the lateness, as text."""
    late = tally.lateness()
    shown = [_NO_VALUE if value is None else str(value) for value in (late.p50_ms, late.p99_ms, late.max_ms)]
    return "late p50 {} p99 {} max {} ms".format(*shown)


def promises(tally: Tally) -> str:
    """Return how often each promise was broken so far, as text."""
    return f"early {tally.early}  twice {tally.twice}  out of order {tally.out_of_order}"


def summary(tally: Tally, *, finished: bool) -> list[str]:
    """Return the lines of the summary.

    Args:
        tally: the final counts.
        finished: whether the demo has waited long enough for each message. If not, messages that have not arrived are
            counted as waiting, not as lost.
    """
    missing = f"lost {tally.waiting}" if finished else f"still waiting {tally.waiting}"
    broken = f"{missing}, twice {tally.twice}, early {tally.early}, out of order {tally.out_of_order}"
    if tally.unexpected:
        broken += f", unexpected {tally.unexpected}"
    return [
        f"sent {tally.sent:,}, delivered {tally.delivered:,}: {broken}",
        f"{lateness(tally)}, from being due to being read by a read_committed consumer",
    ]


def _time_of_day(epoch_ms: int) -> str:
    return format_instant(epoch_ms)[11:-1]
