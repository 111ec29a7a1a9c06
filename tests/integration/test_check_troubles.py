"""`tarry check` on the troubles of a service that runs, or should run: a line for each, and what to do."""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation

from tarry.cli.check import troubles as module
from tarry.cli.check.troubles import troubles
from tarry.config import Config
from tarry.kafka.broker_time import BrokerTime, clocks_of
from tarry.service.app import cluster_of
from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL
from tests.support.freezing import frozen
from tests.support.processes import Serve, ServeConfig
from tests.support.rights import deny
from tests.support.stage import Events, Later, Stage
from tests.support.stranger import CLIENT, stranger


class Checked:
    """A service, and what `tarry check` says of its troubles."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.stage = stage
        self.config = ServeConfig(
            stage.cluster.bootstrap_servers, stage.intake, stage.partitions, stage.group, **QUICK_WHEEL
        )
        self.serve = Serve(self.config, directory)
        stage.until_the_end.callback(self.serve.close)
        self.serve.start().wait_serving()

    def lines(self, later_ms: int = 0) -> list[str]:
        """Return the lines, as if the command ran some time later."""
        settings = Config(**tomllib.loads(self.config.toml()))
        admin = self.stage.admin
        there = admin.list_topics(timeout=30).topics
        found = troubles(settings, settings.intakes, cluster_of(settings), admin, there, (), Later(later_ms))
        return [f"{finding.word} {finding.text}" for finding in found]


@pytest.fixture
def until_the_end() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def checked(
    bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path, until_the_end: ExitStack
) -> Checked:
    return Checked(Stage(bootstrap_of_authorizer, unique_name("troubles"), 1, until_the_end), tmp_path)


def test_a_service_that_works_has_no_trouble_and_one_that_is_gone_serves_nobody(checked: Checked) -> None:
    stage = checked.stage
    stage.make_topic(stage.target)
    arrived = stage.committed(stage.target)
    stage.send(b"now", b"soon", delay_ms=500)
    wait_until(lambda: len(arrived.poll()) == 2, "it delivers")
    assert checked.lines() == []
    assert checked.serve.stop() == 0
    group = stage.group
    assert checked.lines() == [f"note group {group}: no process is in it, so nothing is delivered; start `tarry serve`"]


def test_a_stranger_that_has_a_partition_is_named(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAKE_OVER_MS", 1_000)
    stage = checked.stage
    with stranger(stage.cluster.bootstrap_servers, stage.group, stage.intake):
        [line] = checked.lines()
    assert line.startswith(
        f"FAIL partition {stage.intake}/0: is not served: group {stage.group} has assigned it to {CLIENT} at 127.0.0.1"
        ", which has not taken it over; if that is no process of tarry, end it; "
    )
    wait_until(lambda: checked.lines() == [], "the service serves it again", 60)


def test_messages_that_are_overdue_in_the_intake_and_in_buckets_are_noted(checked: Checked) -> None:
    stage = checked.stage
    stage.make_topic(stage.target)
    stage.send(b"filed", delay_ms=14_000)
    wait_until(lambda: checked.serve.metric("tarry_filed_messages_total") >= 1, "it is filed")
    with frozen(checked.serve, stage.cluster.bootstrap_servers, stage.intake):
        assert checked.lines() == []
        [line] = checked.lines(later_ms=200_000)
        place = f"{stage.intake}/0"
        assert line.startswith(f"note partition {place}: a message has been due for 3m")
        assert line.endswith("(docs/operations.md#tarryoverdue)")
        stage.send(b"waits", delay_ms=0)
        [line] = checked.lines(later_ms=3_600_000)
        begin = f"note partition {place}: a message has been due for "
        assert line.startswith((f"{begin}1h", f"{begin}59m")), line


def test_a_machine_whose_clock_is_wrong_is_noted_with_its_name(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = checked.stage
    [own] = clocks_of(stage.cluster, stage.intake, stage.offsets, Later(0))
    assert -5_000 <= own.ahead_ms <= 100
    # An hour, because the way to the broker, which takes seconds on a busy machine, counts as behind.
    for ahead_ms, host in ((3_600_000, "fast"), (-3_600_000, "slow"), (-1_000, "right")):
        monkeypatch.setattr("tarry.kafka.broker_time.node", lambda host=host: host)
        asked = BrokerTime(stage.cluster, [stage.intake], Later(ahead_ms), Events())
        asked.ask(1.0)
        wait_until(lambda asked=asked: asked.look(0.1), "the broker answers")  # type: ignore[misc]
        asked.close()
    fast, slow = checked.lines()
    assert fast.startswith(("note clock of fast: was 1h ahead of", "note clock of fast: was 59m"))
    assert slow.startswith("note clock of slow: was 1h")
    assert " ahead of the brokers" in fast
    assert " behind the brokers" in slow


def test_done_records_that_are_not_deleted_are_noted(checked: Checked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNTRIMMED", 1)
    stage = checked.stage
    stage.make_topic(stage.target)
    arrived = stage.committed(stage.target)
    for level in (1, 2, 3):
        deny(stage.admin, f"{stage.intake}.wheel-{level}", AclOperation.DELETE)
    for sent in range(1, 4):
        stage.send(b"v", b"w", delay_ms=4_000)
        wait_until(lambda sent=sent: len(arrived.poll()) == 2 * sent, "they arrive", 30)  # type: ignore[misc]

    def noted() -> bool:
        return [
            line for line in checked.lines() if "done records that should have been deleted; grant DELETE" in line
        ] != []

    wait_until(noted, "a checkpoint says that they are done", 30)
