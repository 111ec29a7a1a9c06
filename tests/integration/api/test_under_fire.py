"""Sends by HTTP, each repeated under its key until it is accepted, while all that is between breaks.

Connections are cut before and after Kafka has the message, the API is killed several times and the service once. Each
message arrives exactly once.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tarry.clock import SystemClock
from tarry.devbroker.ports import free_port
from tarry.testing.serve import Serve, ServeConfig
from tarry.units import format_instant
from tests.support.api import Api, ApiConfig
from tests.support.brokers import wait_until
from tests.support.topics import read_topic

SENDERS = 8
DUE_IN_MS = 5_000
CUT_OF = 10
"""One of so many attempts is cut."""


@dataclass
class Fire:
    """What happened."""

    accepted: int = 0
    attempts: int = 0
    cut: int = 0
    last_due_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *, accepted: bool, cut: bool, due_ms: int) -> None:
        with self.lock:
            self.attempts += 1
            self.cut += cut
            self.accepted += accepted
            self.last_due_ms = max(self.last_due_ms, due_ms)


def send_all(url: str, target: str, prefix: str, numbers: range, fire: Fire, seed: int) -> None:
    """Send each number until it is accepted, always with the same request."""
    chance, clock, patience = random.Random(seed), SystemClock(), threading.Event()
    client = httpx.Client(base_url=url, timeout=20, trust_env=False)
    with client:
        for number in numbers:
            due_ms = clock.now_ms() + DUE_IN_MS
            body = {
                "target": target,
                "key": f"k{number % 50}",
                "value": f"{prefix}{number}",
                "at": format_instant(due_ms),
            }
            accepted = False
            while not accepted:
                cut = chance.randrange(CUT_OF) == 0
                # A time limit of some milliseconds closes the connection before or after Kafka has the message.
                timeout = chance.uniform(0.0005, 0.02) if cut else 20
                try:
                    answer = client.post(
                        "/v1/messages", json=body, headers={"Idempotency-Key": f"n{number}"}, timeout=timeout
                    )
                except httpx.HTTPError as error:
                    if isinstance(error, httpx.ConnectError):
                        patience.wait(0.05)  # the API is being started again
                    fire.count(accepted=False, cut=cut, due_ms=due_ms)
                    continue
                accepted = answer.status_code in {200, 202}
                assert accepted or answer.status_code in {429, 503}, (answer.status_code, answer.text)
                fire.count(accepted=accepted, cut=False, due_ms=due_ms)


@pytest.fixture
def served(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[tuple[Serve, Api]]:
    """A service, and an API at a port that stays."""
    name = unique_name("fire")
    serve = Serve(ServeConfig(bootstrap, name, 2, f"{name}.group"), tmp_path, "serve")
    config = ApiConfig(
        bootstrap, name, 2, f"{name}.group", api={"port": free_port(), "rate": 100_000, "access_log": False}
    )
    try:
        serve.start()
        with Api(config, tmp_path) as api:
            yield serve, api
    finally:
        serve.close()


@pytest.mark.parametrize(
    ("sends", "kills"),
    [
        pytest.param(200, 2, id="200"),
        pytest.param(10_000, 4, id="10000", marks=pytest.mark.exhaustive),
        pytest.param(100_000, 10, id="100000", marks=pytest.mark.exhaustive),
    ],
)
def test_each_key_is_delivered_exactly_once_whatever_is_cut_or_killed(
    served: tuple[Serve, Api], orders: str, bootstrap: str, seed: int, sends: int, kills: int
) -> None:
    serve, api = served
    url, clock, fire, prefix = api.url, SystemClock(), Fire(), f"{sends}:"
    with api.client() as client:
        probe = {"target": orders, "value": "probe", "delay": "0s"}
        wait_until(lambda: client.post("/v1/messages", json=probe).status_code == 202, "the topics", 60)
    began_ms = clock.monotonic_ms()
    with ThreadPoolExecutor(SENDERS) as threads:
        tasks = [
            threads.submit(send_all, url, orders, prefix, range(first, sends, SENDERS), fire, seed + first)
            for first in range(SENDERS)
        ]
        for kill in range(1, kills + 1):
            enough = sends * kill // (kills + 1)
            wait_until(lambda enough=enough: fire.accepted >= enough, f"{enough} sends", 600)  # type: ignore[misc]
            api.process.kill()
            if kill == 1:
                serve.kill()
                serve.start()
            api.start()
        for task in tasks:
            task.result()
    took_s = (clock.monotonic_ms() - began_ms) / 1_000
    wait_until(lambda: clock.now_ms() > fire.last_due_ms, "the last due time", 120)

    def counts() -> Counter[str]:
        values = ((record.value() or b"").decode() for record in read_topic(bootstrap, orders))
        return Counter(value for value in values if value.startswith(prefix))

    wait_until(lambda: len(counts()) == sends, "all messages", 120)
    assert serve.stop() == 0
    found = counts()
    print(  # noqa: T201 - the figures of a run, for whoever asks pytest for them
        f"{sends} sends in {took_s:.1f} s, {fire.attempts} attempts, {fire.cut} cut, API killed {kills} times, "
        f"service killed once: {len(found)} delivered, {sum(found.values()) - len(found)} twice"
    )
    assert len(found) == sends
    assert max(found.values()) == 1
