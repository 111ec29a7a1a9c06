"""Sends by HTTP at a steady rate (an open loop), and reads streams of events, in a separate process.

Requests are due at random times (a Poisson process), and are sent then, whatever became of the earlier ones. So the
time that an answer takes is counted from when its request was due, and a server that stalls is not spared the requests
that would have come meanwhile. Each connection has one request at a time; where all are taken, a new one is opened.

At the end it prints as JSON how long answers took, how late it was itself, and how much CPU it used.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import uvloop

from benches.support_kafka import KEYS, VALUE
from tarry.testing.judge import percentile

DELAY_MS: Final = 1_000
CONNECTIONS: Final = 64
"""How many are open before the first request."""

LAST_S: Final = 30.0
"""How long to wait for the last answers, and for the last events."""


@dataclass(slots=True)
class Seen:
    """What was seen, in microseconds.

    Attributes:
        answers_us: from when a request was due until its answer was there.
        lags_us: from when a request was due until it was sent.
        events_us: from when the service had fired a message until a stream had its result.
        statuses: of the answers.
        events: how many came.
        opened: how many connections were opened for requests.
    """

    answers_us: Counter[int] = field(default_factory=Counter)
    lags_us: Counter[int] = field(default_factory=Counter)
    events_us: Counter[int] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    events: int = 0
    opened: int = 0


class Sender(asyncio.Protocol):
    """A connection for requests, one after the other."""

    def __init__(self, on_answer: Callable[["Sender", int], None]) -> None:
        self.transport: Any = None
        self.due_s = 0.0
        self._on_answer = on_answer
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End the load: each request must be answered."""
        if self.due_s:
            raise SystemExit(f"a connection was closed in mid-request: {exc!r}")

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        held = self._held = self._held + data
        end = held.find(b"\r\n\r\n")
        if end < 0:
            return
        head = held[:end].lower()
        at = head.find(b"content-length: ") + len(b"content-length: ")
        if len(held) - end - 4 >= int(head[at:].partition(b"\r\n")[0]):
            self._held = b""
            self._on_answer(self, int(head[9:12]))


class Listener(asyncio.Protocol):
    """A stream of events."""

    def __init__(self, request: bytes, seen: Seen) -> None:
        self.is_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._seen = seen
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        """Count the events."""
        if not self.is_on.done():
            if not data.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a stream was refused: {data!r}")
            self.is_on.set_result(None)
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                self._seen.events += 1
                took_ms = time.time() * 1_000 - json.loads(line[6:])["at_ms"]
                self._seen.events_us[round(took_ms * 1_000)] += 1


class Load:
    """One load."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._seen = Seen()
        # The one that waits longest is next: the server closes what is idle for some seconds.
        self._idle: deque[Sender] = deque()
        self._under_way = 0
        self._targets = [f"{arguments.targets}{number:03}" for number in range(arguments.streams)]
        self._heads = f"Host: 127.0.0.1:{arguments.port}\r\n"
        if arguments.token:
            self._heads += f"Authorization: Bearer {arguments.token}\r\n"

    async def run(self) -> dict[str, Any]:
        """Send, and return the figures."""
        await self._listen()
        for _ in range(CONNECTIONS):
            self._idle.append(await self._connected())
        requests = [self._request(number) for number in range(1_000)]
        times = self._times()
        gc.freeze()
        gc.disable()
        # What was made before the first request is not its load.
        cpu_s, begun_s = time.process_time(), self._loop.time() + 0.1
        for number, after_s in enumerate(times):
            await self._until(begun_s + after_s)
            await self._send(begun_s + after_s, requests[number % 1_000])
        took_s = self._loop.time() - begun_s
        await self._all(lambda: not self._under_way, "answers")
        accepted = self._seen.statuses[202]
        if self._arguments.streams:
            await self._all(lambda: self._seen.events >= accepted, "events")
        return self._figures(len(times), took_s, time.process_time() - cpu_s)

    def _times(self) -> list[float]:
        choose, at_s, times = random.Random(self._arguments.seed), 0.0, list[float]()
        while at_s < self._arguments.seconds:
            at_s += choose.expovariate(self._arguments.rate)
            times.append(at_s)
        return times

    def _request(self, number: int) -> bytes:
        body = json.dumps(
            {
                "target": self._targets[number % len(self._targets)],
                "key": KEYS[number].decode(),
                "value": VALUE.decode(),
                "delay": f"{DELAY_MS}ms",
            }
        ).encode()
        head = f"POST /v1/messages HTTP/1.1\r\n{self._heads}Content-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _listen(self) -> None:
        for target in self._targets:
            head = f"GET /v1/events?target={target} HTTP/1.1\r\nHost: 127.0.0.1:{self._arguments.events}\r\n"
            head += f"Authorization: Bearer {self._arguments.listens}\r\n\r\n"
            _, listener = await self._loop.create_connection(
                lambda head=head: Listener(head.encode(), self._seen),  # type: ignore[misc]
                "127.0.0.1",
                self._arguments.events,
            )
            await asyncio.wait_for(listener.is_on, LAST_S)

    async def _connected(self) -> Sender:
        self._seen.opened += 1
        _, sender = await self._loop.create_connection(
            lambda: Sender(self._answered), "127.0.0.1", self._arguments.port
        )
        return sender

    async def _until(self, at_s: float) -> None:
        left_s = at_s - self._loop.time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def _send(self, due_s: float, request: bytes) -> None:
        sender = self._idle.popleft() if self._idle else await self._connected()
        sender.due_s = due_s
        self._under_way += 1
        self._seen.lags_us[round((self._loop.time() - due_s) * 1e6)] += 1
        sender.transport.write(request)

    def _answered(self, sender: Sender, status: int) -> None:
        self._seen.answers_us[round((self._loop.time() - sender.due_s) * 1e6)] += 1
        self._seen.statuses[status] += 1
        self._under_way -= 1
        sender.due_s = 0.0
        self._idle.append(sender)

    async def _all(self, are_there: Callable[[], bool], what: str) -> None:
        ends_s = self._loop.time() + LAST_S
        while not are_there():
            if self._loop.time() > ends_s:
                raise SystemExit(f"not all {what} came: {self._seen.statuses}, {self._seen.events} events")
            await asyncio.sleep(0.01)

    def _figures(self, sent: int, took_s: float, cpu_s: float) -> dict[str, Any]:
        seen = self._seen
        return {
            "sent": sent,
            "accepted": seen.statuses[202],
            "rate": sent / took_s,
            "seconds": took_s,
            "p50_ms": _ms(seen.answers_us, 50),
            "p99_ms": _ms(seen.answers_us, 99),
            "max_ms": _ms(seen.answers_us, 100),
            "lag_p99_ms": _ms(seen.lags_us, 99),
            "lag_max_ms": _ms(seen.lags_us, 100),
            "event_p50_ms": _ms(seen.events_us, 50),
            "event_p99_ms": _ms(seen.events_us, 99),
            "events": seen.events,
            "opened": seen.opened,
            "load_cpu": cpu_s / took_s,
        }


def _ms(taken_us: Counter[int], share: int) -> float | None:
    found = percentile(taken_us, share)
    return None if found is None else found / 1_000


async def load(arguments: argparse.Namespace) -> None:
    """Send, and print the figures."""
    sys.stdout.write(json.dumps(await Load(arguments).run()) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="send by HTTP at a steady rate")
    parser.add_argument("bootstrap", help="not needed")
    parser.add_argument("port", type=int, help="where to send")
    parser.add_argument("targets", help="what the names of the targets begin with")
    parser.add_argument("--token", default="", help="for sending")
    parser.add_argument("--rate", type=int, required=True, help="requests a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--streams", type=int, required=True, help="how many targets there are, with a stream for each")
    parser.add_argument("--events", type=int, required=True, help="the port of the streams")
    parser.add_argument("--listens", required=True, help="the token of the streams")
    parser.add_argument("--seed", type=int, default=1)
    uvloop.run(load(parser.parse_args()))


if __name__ == "__main__":
    main()
