"""The supervisor: keeps N worker processes running, stops them together, and serves HTTP for all of them.

It has one thread and one selector, and never blocks elsewhere: signals, the processes' channels and HTTP are handled in
the same loop. So a response of `/livez` proves that the loop is running.

A process that dies is restarted, the first time at once, then after growing delays. A process without a heartbeat for
longer than its budget hangs, in a call to a broker or elsewhere: it is killed, and its partitions are assigned to other
processes. A process that ends on purpose, because a restart would be useless, ends the whole service.
"""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from selectors import EVENT_READ, DefaultSelector
from socket import socket
from typing import Final

from tarry.clock import Clock
from tarry.errors import ConfigError, UsageError
from tarry.service.http import HttpServer, Response
from tarry.service.metrics import Exposition, Totals
from tarry.service.metrics.exposition import CONTENT_TYPE
from tarry.service.metrics.families import HANGS, RESTARTS, UP
from tarry.service.supervisor.channel import Beat, StartRefused
from tarry.service.supervisor.child import ChildProcess
from tarry.service.supervisor.seat import Seat
from tarry.service.supervisor.signals import StopSignals

TURN_S: Final = 1.0
"""The longest wait of the loop: restarts and missing heartbeats are checked at least that often."""

REAP_S: Final = 0.02
"""How often to check whether a process has ended whose channel is closed: it usually ends within microseconds."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Time limits of the supervisor.

    Attributes:
        silence_ms: the longest time without a heartbeat. It is longer than every timeout of a call. A commit has no
            timeout, and librdkafka has none when it waits for a coordinator that went away (#5456), sometimes long
            after the coordinator is back. A process that waits for longer than this is better restarted.
        hand_over_ms: the time from SIGTERM to SIGKILL; a little less than the 10 s that are documented for a stop.
    """

    silence_ms: int = 20_000
    hand_over_ms: int = 9_000


class Supervisor:
    """Keeps worker processes running.

    Args:
        spawn: starts the process with an index.
        processes: the number of processes.
        listener: the listening socket for HTTP, from `tarry.service.http.listen`; closed at the end.
        totals: adds up the processes' metrics.
        version: the service's version, for the metrics.
        clock: monotonic time.
        stop: says when to stop.
        on_event: takes an event's name and fields, for the log.
        limits: the time limits.
    """

    def __init__(
        self,
        spawn: Callable[[int], ChildProcess],
        processes: int,
        listener: socket,
        totals: Totals,
        version: str,
        clock: Clock,
        stop: StopSignals,
        on_event: Callable[..., None],
        limits: TimeLimits | None = None,
    ) -> None:
        self._spawn = spawn
        self._totals = totals
        self._clock = clock
        self._stop = stop
        self._on_event = on_event
        self._limits = limits or TimeLimits()
        self._seats = [Seat(index) for index in range(processes)]
        self._exposition = Exposition(totals.sum, version)
        self._ends_ms: int | None = None
        self._refused: StartRefused | None = None
        self._selector = DefaultSelector()
        self._selector.register(stop, EVENT_READ, lambda _mask: stop.drain())
        self._http = HttpServer(
            listener,
            {"/livez": self.livez, "/readyz": self.readyz, "/metrics": self.metrics},
            self._selector,
            clock,
        )

    def run(self) -> None:
        """Keep the processes running until asked to stop; then stop them.

        Raises:
            UsageError: a process ended on purpose; the text is its reason, one line.
            ConfigError: the same, if the configuration is wrong.
        """
        self._on_event("http_listening", port=self._http.port)
        try:
            while self._turn():
                pass
        finally:
            self._kill_all()
            self._http.close()
            self._selector.close()
        if self._refused is not None:
            raise (ConfigError if self._refused.configuration else UsageError)(self._refused.text)

    def _turn(self) -> bool:
        """Run one turn of the loop; return False when all processes have ended after a stop."""
        if self._ends_ms is None and (self._stop.asked or self._refused is not None):
            self._terminate_all()
        self._start_those_due()
        for key, mask in self._selector.select(self._patience_s()):
            key.data(mask)
        for seat in self._seats:
            self._watch(seat)
        self._http.expire()
        return self._ends_ms is None or any(seat.child is not None for seat in self._seats)

    def _patience_s(self) -> float:
        """Return how long to wait for events: a second; less if a process is to be reaped or started, or in a stop."""
        if any(seat.child is not None and seat.child.silent for seat in self._seats):
            return REAP_S
        if self._ends_ms is not None:
            return TURN_S / 10
        now_ms = self._clock.monotonic_ms()
        waits_ms = [seat.start_at_ms - now_ms for seat in self._seats if seat.child is None]
        return max(0.0, min([TURN_S, *(wait_ms / 1000 for wait_ms in waits_ms)]))

    # -- lives -----------------------------------------------------------------------------------------------------

    def _start_those_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for seat in self._seats:
            if self._ends_ms is None and seat.child is None and seat.start_at_ms <= now_ms:
                if seat.lives:
                    self._totals.own.count(RESTARTS)
                self._start(seat)

    def _start(self, seat: Seat) -> None:
        try:
            child = self._spawn(seat.index)
        except OSError as error:  # no memory, or too many processes: try again as if it had died
            now_ms = self._clock.monotonic_ms()
            seat.started_ms = seat.heard_ms = now_ms
            delay_ms = max(seat.end(now_ms), 1)
            self._on_event("process_not_started", process=seat.index, reason=str(error), again_in_ms=delay_ms)
            return
        seat.begin(child, self._clock.monotonic_ms())
        self._selector.register(child, EVENT_READ, lambda _mask: self._hear(seat))
        self._on_event("process_started", process=seat.index, pid=child.pid)

    def _hear(self, seat: Seat) -> None:
        child = seat.child
        if child is None:
            return
        try:
            said = child.hear()
        except ValueError as error:
            self._on_event("process_garbled", process=seat.index, pid=child.pid, reason=str(error))
            self._kill(seat, child)
            return
        for word in said:
            if isinstance(word, Beat):
                seat.hear(word, self._clock.monotonic_ms())
                self._totals.update(seat.index, word.snapshot)
            elif self._refused is None and self._ends_ms is None:
                self._refused = word
        if child.silent:
            self._selector.unregister(child)

    def _watch(self, seat: Seat) -> None:
        """Reap a process that has ended, kill one that hangs or takes too long to end."""
        child = seat.child
        if child is None:
            return
        how = child.ended()
        now_ms = self._clock.monotonic_ms()
        if how is not None:
            self._reap(seat, child, how, now_ms)
        elif seat.is_killed:
            return
        elif self._ends_ms is not None and now_ms >= self._ends_ms:
            self._on_event("process_killed", process=seat.index, pid=child.pid, reason="it did not end in time")
            self._kill(seat, child)
        elif seat.silent_ms(now_ms) > self._limits.silence_ms:
            self._totals.own.count(HANGS)
            self._on_event("process_hung", process=seat.index, pid=child.pid, silent_ms=seat.silent_ms(now_ms))
            self._kill(seat, child)

    def _kill(self, seat: Seat, child: ChildProcess) -> None:
        """Kill a child. Its seat is free only when it has ended: before that, no other may use its identity."""
        seat.is_killed = True
        child.kill()

    def _reap(self, seat: Seat, child: ChildProcess, how: str, now_ms: int) -> None:
        if not child.silent:
            self._hear(seat)  # its last message
        if not child.silent:  # the message could not be parsed
            self._selector.unregister(child)
        child.close()
        self._totals.end(seat.index)
        delay_ms = seat.end(now_ms)
        if self._ends_ms is None and self._refused is None:
            self._on_event("process_ended", process=seat.index, pid=child.pid, how=how, again_in_ms=delay_ms)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _terminate_all(self) -> None:
        self._ends_ms = self._clock.monotonic_ms() + self._limits.hand_over_ms
        for seat in self._seats:
            if seat.child is not None:
                seat.child.terminate()

    def _kill_all(self) -> None:
        """Kill all children that are left, whatever happened."""
        for seat in self._seats:
            if seat.child is not None:
                seat.child.kill()
                seat.child.wait()
                seat.child.close()

    # -- HTTP pages ------------------------------------------------------------------------------------------------

    def livez(self) -> Response:
        """Return 200 if no process is without a heartbeat for too long, else 503."""
        now_ms = self._clock.monotonic_ms()
        for seat in self._seats:
            if (silent_ms := seat.silent_ms(now_ms)) > self._limits.silence_ms:
                return _unavailable(f"process {seat.index} has been silent for {silent_ms // 1000} s")
        return Response(b"ok\n")

    def readyz(self) -> Response:
        """Return 200 if each process has taken over all partitions that it can serve, else 503.

        Partitions that cannot be served are listed, but do not make the service unready: they must not stop a rollout.
        """
        if self._ends_ms is not None or self._stop.asked:
            return _unavailable("ending")
        for seat in self._seats:
            if why := seat.not_ready():
                return _unavailable(why)
        notes = "".join(f"{note}\n" for seat in self._seats if (note := seat.unserved()))
        return Response(f"ok\n{notes}".encode())

    def metrics(self) -> Response:
        """Return all metrics."""
        now_ms = self._clock.monotonic_ms()
        self._totals.own.replace_gauges(
            {
                (UP.name, str(seat.index)): float(
                    seat.beat is not None and seat.silent_ms(now_ms) <= self._limits.silence_ms
                )
                for seat in self._seats
            }
        )
        return Response(self._exposition.text(), content_type=CONTENT_TYPE)


def _unavailable(why: str) -> Response:
    return Response(f"{why}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
