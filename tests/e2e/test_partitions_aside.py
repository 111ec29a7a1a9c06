"""A fault of one partition stops only this partition, on a real broker, and an operator sees which one and why."""

import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tarry.config import Config
from tarry.devbroker import EmbeddedBroker
from tarry.testing.serve import Serve
from tests.e2e.conftest import PARTITIONS, Lab, verdict
from tests.support.brokers import wait_until
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.further_broker import FurtherBroker, make_intake, make_internal_topics
from tests.support.workload import Flow

PER_S = 200
WITHIN_S = 60.0
PLACE = 1


@pytest.fixture
def further(embedded_broker: EmbeddedBroker, tmp_path: Path) -> Iterator[FurtherBroker]:
    """A second broker, not started."""
    broker = FurtherBroker(embedded_broker, tmp_path / "further")
    yield broker
    broker.stop()


def body_of(serve: Serve) -> str:
    status, body = serve.get("/readyz")
    assert status == 200, body
    return body


def checked(directory: Path) -> str:
    [config] = directory.glob("*.toml")
    command = [sys.executable, "-m", "tarry", "check", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize("away", [".results", ".journal"])
def test_one_log_without_a_leader_stops_its_own_partition_alone(
    embedded_broker: EmbeddedBroker,
    further: FurtherBroker,
    make_lab: Callable[[str], Lab],
    away: str,
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    lab = make_lab(embedded_broker.bootstrap_servers)
    make_internal_topics(lab.bootstrap, lab.targets[0].topic)
    further.start()
    serve = lab.serve()
    [config] = tmp_path.glob("*.toml")
    make_intake(lab.bootstrap, Config(**tomllib.loads(config.read_text(encoding="utf-8"))), (away, PLACE))
    serve.start().wait_serving()
    workload, reader, watch = lab.watched(delays_ms=(200, 2_000))
    log = f"{lab.intake}{away}/{PLACE}"
    with Flow(workload, PER_S):
        watch.wait_served()
        further.stop()
        gone_s = time.monotonic()
        wait_until(lambda: bool(serve.events("partition_waits")), "the partition waits", WITHIN_S)
        tell(f"known after {time.monotonic() - gone_s:.1f} s")
        sent = dict(workload.newest)
        others = {place: offset for place, offset in sent.items() if not place.endswith(f"/{PLACE}")}
        assert len(others) == PARTITIONS - 1
        reader.wait_until(
            lambda _: all(reader.newest.get(place, -1) > offset for place, offset in others.items()),
            "what the other partitions had",
            WITHIN_S,
        )
        tell(f"the others fire after {time.monotonic() - gone_s:.1f} s")
        wait_until(lambda: f"{log} has no leader" in body_of(serve), "/readyz says it, which is told once a second")
        assert serve.metric("tarry_waiting_partitions", intake=lab.intake, partition=str(PLACE)) == 1
        tell(f"/readyz: {body_of(serve)!r}\n{serve.events('partition_waits')[0]}\n{checked(tmp_path)}")
        assert f"{log} has no leader" in checked(tmp_path)
        said = checked(tmp_path)
        assert "note  broker 2: is not in the cluster now, and has replicas of " in said
        fails = [line for line in said.splitlines() if line.startswith("FAIL  partition ")]
        assert len(fails) == 1, fails
        further.start()
        wait_until(lambda: bool(serve.events("partition_back")), "the partition is served again", WITHIN_S)
        watch.wait_served()
    report = verdict(workload, reader, [serve])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
def test_a_record_in_a_journal_that_is_not_ours_stops_its_own_partition_alone(
    lab: Lab, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    serve = lab.serve().start()
    serve.wait_serving()
    workload, reader, watch = lab.watched(delays_ms=(200, 2_000))
    with Flow(workload, PER_S):
        watch.wait_served()
        assert serve.stop() == 0
        producer = Producer({"bootstrap.servers": lab.bootstrap})
        producer.produce(f"{lab.intake}.journal", value=b"not of tarry", partition=PLACE)
        assert producer.flush(10) == 0
        serve.start().wait_serving()
        sent = dict(workload.newest)
        others = {place: offset for place, offset in sent.items() if not place.endswith(f"/{PLACE}")}
        reader.wait_until(
            lambda _: all(reader.newest.get(place, -1) > offset for place, offset in others.items()),
            "what the other partitions had",
            WITHIN_S,
        )
    [said] = serve.events("partition_quarantined")
    assert (said["partition"], said["level"]) == (PLACE, "error")
    assert serve.metric("tarry_quarantined_partitions", intake=lab.intake, partition=str(PLACE)) == 1
    assert "not a journal record" in body_of(serve)
    tell(f"/readyz: {body_of(serve)!r}\n{said}\n{checked(tmp_path)}")
    assert f"{lab.intake}/{PLACE} can't be taken over" in checked(tmp_path)
    assert serve.stop() == 0
