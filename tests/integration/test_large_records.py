"""Large records on a broker: what only fits compressed, what fits nowhere, and more than a quota lets through."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from tarry.core.progress.checkpoint import Geometry
from tarry.devbroker.broker import KAFKA
from tarry.jars import find_java
from tarry.kafka.settings import Cluster
from tarry.service.worker.plan import IntakePlan
from tests.support.stage import Running, Stage

pytestmark = pytest.mark.stage(partitions=2)

Headers = list[tuple[str, bytes | None]]

HUGE = 5_000_000
"""Compressed it is far below what a topic takes by default; as it is, far above."""

GOOD = 200
GEOMETRY = Geometry(2_000, 2, 1)
"""One level, of buckets of 2 s."""

LARGE = 100_000
MANY = 60
SLOW = 400_000
"""Bytes a second: fifteen for all of them, and the client library waits for five."""

DEADLINE_S = 180.0


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.make_topic(stage.target, 2)
    stage.make_intake(geometry=GEOMETRY)
    return stage


def serve(stage: Stage, **plan: Any) -> Running:
    worker = stage.worker(intakes={stage.intake: IntakePlan(stage.reader, False, GEOMETRY, 3_600_000)}, **plan)
    worker.until_serving()
    return worker


def send_compressed(stage: Stage, value: bytes, headers: Headers | None = None) -> None:
    """Write a record as a producer with zstd does that has raised its own limit."""
    producer = Producer(stage.cluster.client(acks="all", compression_type="zstd", message_max_bytes=10_000_000))
    failures: list[str] = []

    def report(error: object, _record: object) -> None:
        if error is not None:
            failures.append(str(error))

    given: Any = headers
    producer.produce(stage.intake, value, b"huge", 0, on_delivery=report, headers=given)
    assert producer.flush(20) == 0
    assert not failures


def send_good(stage: Stage, due_ms: int) -> None:
    headers: Headers = [("tarry-target", stage.target.encode()), ("tarry-deliver-at", b"%d" % due_ms)]
    stage.put(stage.intake, *[(number % 2, b"k", b"%d" % number, headers) for number in range(GOOD)])


def headers_of(record: "Message[Any, Any]") -> dict[str, bytes]:
    headers: Any = record.headers()
    return dict(headers or [])


def soon_ms() -> int:
    return time.time_ns() // 1_000_000 + 2_000


def test_a_record_that_only_fits_compressed_is_a_dead_letter_and_no_good_message_waits(stage: Stage) -> None:
    worker = serve(stage)
    arrived, dead = stage.committed(stage.target), stage.committed(f"{stage.intake}.dead")
    due_ms = soon_ms()
    send_compressed(stage, b"." * HUGE)
    send_good(stage, due_ms)
    worker.until(lambda: len(arrived.poll()) == GOOD and dead.poll(), "all are out")
    (letter,) = dead.records
    assert (letter.key(), letter.value()) == (b"huge", b"." * HUGE)
    assert headers_of(letter)["tarry-error"] == b"no-delay"
    assert not worker.events.of("transaction_aborted")


def test_a_record_too_large_for_any_dead_letter_has_a_stub_until_the_limit_is_raised(stage: Stage) -> None:
    worker = serve(stage)
    arrived, dead = stage.committed(stage.target), stage.committed(f"{stage.intake}.dead")
    stage.configure(stage.intake, max_message_bytes="3000000")
    value = random.Random(1).randbytes(2_000_000)
    due_ms = soon_ms()
    stage.put(stage.intake, (0, b"huge", value, []))
    send_good(stage, due_ms)
    worker.until(lambda: len(arrived.poll()) == GOOD and dead.poll(), "all good ones are out, and a stub")
    (stub,) = dead.records
    assert (stub.key(), stub.value()) == (b"huge", None)
    assert headers_of(stub)["tarry-stub"] == f"{stage.intake}/0/0".encode()
    assert headers_of(stub)["tarry-error"] == b"no-delay"
    worker.close()
    assert stage.watermarks()[stage.intake, 0][0] == 0, "it is not done"
    stage.configure(f"{stage.intake}.dead", max_message_bytes="3000000")
    worker = serve(stage)
    worker.until(lambda: len(dead.poll()) == 2, "the whole letter is there")
    assert (dead.records[1].key(), dead.records[1].value()) == (b"huge", value)
    results = stage.committed(f"{stage.intake}.results").read_to_the_end()
    assert len(results) == GOOD + 1
    worker.until(lambda: len(arrived.poll()) == GOOD, "nothing is twice")


@pytest.fixture
def throttled(stage: Stage) -> Iterator[Cluster]:
    """A cluster whose clients may write no more than so much."""
    name = f"{stage.group}.slow"
    entity = ["--entity-type", "clients", "--entity-name", name]
    configure(stage, "--add-config", f"producer_byte_rate={SLOW}", *entity)
    yield Cluster(stage.cluster.bootstrap_servers, {"client.id": name})
    configure(stage, "--delete-config", "producer_byte_rate", *entity)


def configure(stage: Stage, *change: str) -> None:
    """Run Kafka's own tool: the client library cannot set quotas."""
    java = find_java()
    command = [
        str(java.path),
        "-cp",
        os.pathsep.join(map(str, KAFKA.get(java, lambda _text: None))),
        "kafka.admin.ConfigCommand",
    ]
    whole = [*command, "--bootstrap-server", stage.cluster.bootstrap_servers, "--alter", *change]
    subprocess.run(whole, check=True, capture_output=True, timeout=120)


def large_values() -> list[bytes]:
    """They are as large compressed, as what is filed is."""
    choose = random.Random(1)
    return [choose.randbytes(LARGE) for _ in range(MANY)]


@pytest.mark.exhaustive
@pytest.mark.some_of("kind")
@pytest.mark.parametrize("kind", ["fired", "filed", "parked"])
def test_more_than_a_quota_lets_through_in_time_goes_in_smaller_transactions(
    stage: Stage, throttled: Cluster, kind: str
) -> None:
    if kind == "parked":
        stage.configure(stage.target, min_insync_replicas="2")
    arrived, values = stage.committed(stage.target), large_values()
    delay_ms = 6_000 if kind == "filed" else 0
    headers: Headers = [("tarry-target", stage.target.encode()), ("tarry-delay-ms", b"%d" % delay_ms)]
    stage.put(stage.intake, *[(0, b"k", value, headers) for value in values])
    worker = serve(stage, cluster=throttled)
    aborted = {"fired": "transaction_aborted", "filed": "filing_aborted", "parked": "target_still_away"}[kind]
    worker.until(lambda: worker.events.of(aborted), "it was too much", DEADLINE_S)
    if kind == "parked":
        stage.configure(stage.target, min_insync_replicas="1")
    worker.until(lambda: len(arrived.poll()) == MANY, "all are out", DEADLINE_S)
    assert arrived.values() == values
