"""Sends by HTTP, each repeated under its key until it is accepted, while all that is between breaks.

Connections are cut before and after Kafka has the message, the API is killed several times and the service once. Each
message arrives exactly once. Each tenth has a name, and replaces the one before: it arrives or is answered `replaced`,
never both and never neither.
"""

import http.client
import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tarry.clock import SystemClock
from tarry.devbroker.ports import free_port
from tarry.kafka.topics import RESULTS
from tarry.testing.serve import Serve, ServeConfig
from tarry.units import format_instant
from tests.support.api import Api, ApiConfig
from tests.support.brokers import wait_until
from tests.support.topics import read_topic

SENDERS = 8
KEYS = 40
"""A multiple of the senders: the messages of a key, and of a name, come from one sender."""

NAMED_OF = 10
"""One of so many messages of a sender has a name."""

DUE_IN_MS = 5_000
CUT_OF = 10
"""One of so many attempts is cut."""

WITHIN_S = 20.0


@dataclass(frozen=True)
class Plan:
    """How much is sent, and how often the API is killed; the sends are paced if there is a rate."""

    sends: int
    kills: int
    per_s: int = 0


@dataclass
class Fire:
    """What happened."""

    plan: Plan
    prefix: str
    target: str
    begun_ms: int
    accepted: int = 0
    attempts: int = 0
    cut: int = 0
    last_due_ms: int = 0
    named: dict[str, int] = field(default_factory=dict)
    """The numbers of named messages, by id."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *, accepted: bool, cut: bool, due_ms: int) -> None:
        with self.lock:
            self.attempts += 1
            self.cut += cut
            self.accepted += accepted
            self.last_due_ms = max(self.last_due_ms, due_ms)

    def body(self, number: int, due_ms: int) -> bytes:
        fields = {
            "target": self.target,
            "key": f"k{number % KEYS}",
            "value": f"{self.prefix}{number}",
            "at": format_instant(due_ms),
        }
        if number // SENDERS % NAMED_OF == 0:
            fields["name"] = "last"
        return json.dumps(fields).encode()


class Line:
    """A connection, which is opened again after a fault."""

    def __init__(self, url: str) -> None:
        found = urlsplit(url)
        self._connection = http.client.HTTPConnection(found.hostname or "", found.port, timeout=WITHIN_S)

    def post(self, body: bytes, key: str, timeout_s: float) -> tuple[int, bytes] | None:
        """Send, and return status and body; None if the time is over, or the API is away."""
        connection = self._connection
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(timeout_s)
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            connection.request("POST", "/v1/messages", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return None

    def close(self) -> None:
        self._connection.close()


def send_all(url: str, numbers: range, fire: Fire, seed: int) -> None:
    """Send each number until it is accepted, always with the same request."""
    chance, clock, patience, line = random.Random(seed), SystemClock(), threading.Event(), Line(url)
    for number in numbers:
        if fire.plan.per_s:
            early_ms = fire.begun_ms + number * 1_000 / fire.plan.per_s - clock.monotonic_ms()
            patience.wait(max(early_ms, 0) / 1_000)
        due_ms = clock.now_ms() + DUE_IN_MS
        body, accepted = fire.body(number, due_ms), False
        while not accepted:
            cut = chance.randrange(CUT_OF) == 0
            # A time limit of some milliseconds closes the connection before or after Kafka has the message.
            answer = line.post(body, f"n{number}", chance.uniform(0.0005, 0.02) if cut else WITHIN_S)
            if answer is None:
                if not cut:
                    patience.wait(0.05)  # the API is being started again
                fire.count(accepted=False, cut=cut, due_ms=due_ms)
                continue
            status, text = answer
            accepted = status in {200, 202}
            assert accepted or status in {429, 503}, (status, text)
            if accepted and b'"name"' in body:
                with fire.lock:
                    fire.named[json.loads(text)["id"]] = number
            fire.count(accepted=accepted, cut=False, due_ms=due_ms)
    line.close()


@pytest.fixture
def served(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[tuple[Serve, Api, str]]:
    """A service, an API at a port that stays, and their intake."""
    name = unique_name("fire")
    serve = Serve(ServeConfig(bootstrap, name, 2, f"{name}.group"), tmp_path, "serve")
    config = ApiConfig(
        bootstrap, name, 2, f"{name}.group", api={"port": free_port(), "rate": 100_000, "access_log": False}
    )
    try:
        serve.start()
        with Api(config, tmp_path) as api:
            yield serve, api, name
    finally:
        serve.close()


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(200, 2), id="200"),
        pytest.param(Plan(10_000, 4), id="10000", marks=pytest.mark.exhaustive),
        pytest.param(Plan(100_000, 5, per_s=330), id="100000", marks=pytest.mark.exhaustive),
    ],
)
def test_each_key_is_delivered_exactly_once_whatever_is_cut_or_killed(
    served: tuple[Serve, Api, str], orders: str, bootstrap: str, seed: int, plan: Plan
) -> None:
    serve, api, intake = served
    clock = SystemClock()
    with api.client() as client:
        probe = {"target": orders, "value": "probe", "delay": "0s"}
        wait_until(lambda: client.post("/v1/messages", json=probe).status_code == 202, "the topics", 60)
    fire = Fire(plan, f"{plan.sends}:", orders, clock.monotonic_ms())
    with ThreadPoolExecutor(SENDERS) as threads:
        tasks = [
            threads.submit(send_all, api.url, range(first, plan.sends, SENDERS), fire, seed + first)
            for first in range(SENDERS)
        ]
        for kill in range(1, plan.kills + 1):
            enough = plan.sends * kill // (plan.kills + 1)
            wait_until(lambda enough=enough: fire.accepted >= enough, f"{enough} sends", 600)  # type: ignore[misc]
            api.process.kill()
            if kill == 1:
                serve.kill()
                serve.start()
            api.start()
        for task in tasks:
            task.result()
    took_s = (clock.monotonic_ms() - fire.begun_ms) / 1_000
    wait_until(lambda: clock.now_ms() > fire.last_due_ms, "the last due time", 120)
    unnamed = {number for number in range(plan.sends) if b'"name"' not in fire.body(number, 0)}

    def counts() -> Counter[int]:
        values = ((record.value() or b"").decode() for record in read_topic(bootstrap, orders))
        return Counter(int(value.removeprefix(fire.prefix)) for value in values if value.startswith(fire.prefix))

    outcomes = defaultdict[str, Counter[str]](Counter)

    def are_decided() -> bool:
        """Whether each named message was delivered or replaced, by the results."""
        outcomes.clear()
        for record in read_topic(bootstrap, intake + RESULTS):
            result = json.loads(record.value() or b"{}")
            if result.get("id") in fire.named:
                outcomes[result["id"]][result["outcome"]] += 1
        return all(outcomes[id_]["fired"] or outcomes[id_]["replaced"] for id_ in fire.named)

    wait_until(lambda: counts().keys() >= unnamed, "all messages", 120)
    wait_until(are_decided, "the answers to the named ones", 120)
    assert serve.stop() == 0
    found = counts()
    delivered = {id_ for id_, number in fire.named.items() if found[number]}
    print(  # noqa: T201 - the figures of a run, for whoever asks pytest for them
        f"{plan.sends} sends in {took_s:.1f} s, {fire.attempts} attempts, {fire.cut} cut, API killed {plan.kills} "
        f"times, service killed once: {len(found)} delivered, {found.total() - len(found)} twice; of {len(fire.named)} "
        f"named {len(delivered)} delivered, {len(fire.named) - len(delivered)} replaced"
    )
    assert max(found.values()) == 1
    assert found.keys() == unnamed | {fire.named[id_] for id_ in delivered}
    assert {id_ for id_ in fire.named if outcomes[id_]["fired"]} == delivered
    assert all(outcomes[id_]["fired"] == 1 for id_ in delivered)
    assert {fire.named[id_] % KEYS for id_ in delivered} == {number % KEYS for number in fire.named.values()}
