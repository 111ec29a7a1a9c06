"""The programs of `examples/`, run as their users run them, and held to what they print or deliver."""

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tarry.devbroker.broker import KAFKA, KAFKA_VERSION
from tarry.errors import UsageError
from tarry.jars import Artefact, Jars, find_java
from tarry.progress_output import tell
from tarry.testing import LiveService
from tests.support import programs
from tests.support.brokers import no_broker

ROOT = Path(__file__).parents[2]
WITHIN_S = 120.0


@pytest.fixture
def serve(bootstrap: str, tmp_path: Path, unique_name: Callable[[str], str]) -> Iterator[Callable[..., LiveService]]:
    """Starts a service, given settings of its intake that may say {name}."""
    with ExitStack() as until_the_end:

        def start(**settings: Any) -> LiveService:
            name = unique_name("example")
            said = {key: value.format(name=name) for key, value in settings.items()}
            return until_the_end.enter_context(LiveService(bootstrap, tmp_path, name, **said))

        yield start


def run(*command: str, **environment: str) -> list[str]:
    """Run a program that must succeed; return its output."""
    return programs.run(*command, within_s=WITHIN_S, **environment).splitlines()


def example(name: str, service: LiveService) -> list[str]:
    """Run an example; return its output."""
    where = ("--bootstrap-servers", service.bootstrap_servers, "--intake", service.intake, "--prefix", service.name)
    return run(sys.executable, "-m", f"examples.{name}", *where)


def test_an_order_ships_only_after_its_payment_that_failed_three_times(serve: Callable[..., LiveService]) -> None:
    lines = example("order_life", serve())
    assert lines[-2:] == ["order-1: create, pay, ship, receive", "order-2: create, pay, ship, receive"]
    first = [line for line in lines[:-2] if line.startswith("order-1 pay")]
    assert first == [*(f"order-1 pay: fails, attempt {n}" for n in (1, 2, 3)), "order-1 pay: done, attempt 4"]
    # The other order was through before that payment was tried again.
    assert lines.index("order-2 receive: done, attempt 1") < lines.index("order-1 pay: done, attempt 4")
    assert lines.index("order-1 pay: done, attempt 4") < lines.index("order-1 ship: done, attempt 1")


def test_named_timers_debounce_throttle_and_let_a_lease_expire(serve: Callable[..., LiveService]) -> None:
    assert example("named_timers", serve()) == [
        "search: 5 sent, arrived: tarry",
        "mail: 6 sent, arrived: event 0",
        "lease: 4 sent, arrived: expired after renewal 3",
    ]


def test_holders_of_leases_are_told_over_a_window_and_not_after_the_end(serve: Callable[..., LiveService]) -> None:
    spread, told, late = example("leases", serve())
    found = re.fullmatch(r"12 leases are to be renewed within (\d\.\d) s", spread)
    # Of 12 random times in 3 s, all are within half a second once in ten million runs.
    assert found is not None
    assert 0.5 <= float(found[1]) <= 3.0
    assert told == "12 holders were told, lease-late among them: False"
    assert late == "lease-late: dead, expired"


def test_a_nightly_report_comes_each_night_however_often_it_is_deployed(serve: Callable[..., LiveService]) -> None:
    assert example("nightly_report", serve()) == [
        "first deploy: scheduled, scheduled, scheduled, scheduled",
        "second deploy: skipped, skipped, skipped, skipped",
        "reports: fast 1, fast 2, fast 3",
        "berlin closes: cancelled",
        "new-york closes: cancelled",
        "tokyo closes: cancelled",
        "fast closes: cancelled",
    ]


@pytest.mark.exhaustive
def test_a_retry_topic_brings_back_what_failed_until_it_is_done(serve: Callable[..., LiveService]) -> None:
    lines = example("retry_topic", serve(delay="1s", target="{name}.orders"))
    done = {found[1]: (int(found[2]), float(found[3])) for found in map(DONE.fullmatch, lines) if found}
    assert {order: attempt for order, (attempt, _) in done.items()} == {"order-1": 1, "order-2": 3, "order-3": 2}
    assert done["order-3"][1] >= 1.0
    assert done["order-2"][1] >= 2.0
    assert sum(line.endswith("fails") for line in lines) == 3


@pytest.mark.exhaustive
def test_timeouts_of_unpaid_orders_take_a_query_each_and_polling_takes_more(serve: Callable[..., LiveService]) -> None:
    lines = example("unpaid_orders", serve())
    found = {match[1]: [int(number) for number in match.groups()[1:]] for match in map(SHOP.fullmatch, lines) if match}
    assert set(found) == {"polling", "tarry"}
    polled, told = found["polling"], found["tarry"]
    assert polled[:2] == told[:2] == [6, 24]
    assert told[2] == 6
    assert polled[2] >= 8  # it asked every half a second for four seconds, and would for as long as there may be orders
    assert min(polled[4], told[4]) >= 0, "none is given up before its time is over"


@pytest.fixture
def console_producer(tmp_path: Path) -> Path:
    """A directory with `kafka-console-producer.sh`, which runs the class that Kafka's own script runs."""
    name = f"kafka-tools-{KAFKA_VERSION}"
    # What the tool itself needs is among the broker's jars.
    tools = Jars(name, name, (Artefact("org.apache.kafka", "kafka-tools", KAFKA_VERSION, alone=True),))
    try:
        java = find_java()
        jars = [*KAFKA.get(java, tell), *tools.get(java, tell)]
    except UsageError as refusal:
        no_broker([f"nor its console producer: {refusal}"])
    script = tmp_path / "bin" / "kafka-console-producer.sh"
    script.parent.mkdir()
    command = [str(java.path), "-Xmx128m", "-cp", os.pathsep.join(map(str, jars))]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} org.apache.kafka.tools.ConsoleProducer "$@"\n')
    script.chmod(0o755)
    return script.parent


def from_the_shell(producer: str, service: LiveService, path: str) -> None:
    """Run the example with one of its two producers, and check what arrives when."""
    target = service.make_topic("orders")
    where = ("--bootstrap-servers", service.bootstrap_servers, "--intake", service.intake, "--target", target)
    began_ms = time.time_ns() // 1_000_000
    assert run("examples/from_the_shell.sh", producer, *where, PATH=path) == ["sent"]
    first, second = service.read(target, 2)
    assert [(one.key(), one.value()) for one in (first, second)] == [
        (b"customer-1", b"first"),
        (b"customer-1", b"second"),
    ]
    assert first.timestamp()[1] >= began_ms + 1_000
    assert second.timestamp()[1] >= began_ms + 2_000


def test_javas_console_producer_sends_messages_that_arrive_later(
    serve: Callable[..., LiveService], console_producer: Path
) -> None:
    from_the_shell("kafka-console-producer.sh", serve(), f"{console_producer}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_sends_messages_that_arrive_later(serve: Callable[..., LiveService]) -> None:
    from_the_shell("kcat", serve(), os.environ["PATH"])


DONE = re.compile(r"(order-\d): done, attempt (\d), after ([\d.]+) s")
SHOP = re.compile(
    r"(\w+): (\d+) of (\d+) orders given up, (\d+) queries, "
    r"late by -?\d+ ms on average, (-?\d+) ms at most, (-?\d+) ms at least"
)
