"""A right on the levels of the overflow wheel that is missing, or is taken away for a while."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclOperation

from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL
from tests.support.processes import Serve, ServeConfig
from tests.support.rights import allow, deny
from tests.support.stage import Inbox, Stage
from tests.support.topics import read_topic

NEAR_MS, FAR_MS = 4_000, 13_000
"""Delays that go to a level: the second one to the highest of the three, and from there down."""


class Running:
    """A service with a small overflow wheel, on a broker with an authorizer; and what it has delivered."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.stage = stage
        config = ServeConfig(stage.cluster.bootstrap_servers, stage.intake, 1, stage.group, **QUICK_WHEEL)
        self.serve = Serve(config, directory)
        stage.until_the_end.callback(self.serve.close)
        self.serve.start().wait_serving()
        stage.make_topic(stage.target)
        self.arrived: Inbox = stage.committed(stage.target)
        self.sent: list[bytes | None] = []

    @property
    def levels(self) -> list[str]:
        topics = self.stage.admin.list_topics(timeout=10).topics
        return [name for name in topics if name.startswith(f"{self.stage.intake}.wheel-")]

    def send(self, delay_ms: int) -> None:
        value = b"%d" % len(self.sent)
        self.stage.send(value, delay_ms=delay_ms)
        self.sent.append(value)

    def all_arrive(self) -> None:
        wait_until(lambda: len(self.arrived.poll()) >= len(self.sent), "all of it arrives", 40)
        assert self.arrived.values() == self.sent

    @property
    def untrimmed(self) -> float:
        return self.serve.metric("tarry_untrimmed_records", intake=self.stage.intake, partition="0")

    @property
    def trim_failures(self) -> float:
        return self.serve.metric("tarry_trim_failures_total", intake=self.stage.intake)

    def said(self, event: str) -> list[tuple[int, dict[str, Any]]]:
        """The events of a name that the service has logged, with their times."""
        return [(at_ms, one) for at_ms, one in self.serve.history() if one["event"] == event]


@pytest.fixture
def running(bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as until_the_end:
        yield Running(Stage(bootstrap_of_authorizer, unique_name("rights"), 1, until_the_end), tmp_path)


def test_without_the_right_to_empty_buckets_it_does_not_start_and_says_which_is_missing(running: Running) -> None:
    serve, topic = running.serve, f"{running.stage.intake}.wheel-2"
    assert serve.stop() == 0
    deny(running.stage.admin, topic, AclOperation.DELETE)
    serve.start()
    assert serve.wait_ended(30) == 1
    why = f"rights are missing: DELETE on topic {topic} (docs/security.md lists all that is needed)"
    assert serve.tail(1) == f"tarry: {why}"
    allow(running.stage.admin, topic, AclOperation.DELETE)
    serve.start().wait_serving()
    assert serve.stop() == 0


@pytest.mark.exhaustive
def test_the_right_to_empty_buckets_is_taken_away_and_comes_back(running: Running) -> None:
    serve, admin = running.serve, running.stage.admin
    for topic in running.levels:
        deny(admin, topic, AclOperation.DELETE)
    for _ in range(4):
        running.send(NEAR_MS)
        running.all_arrive()
    wait_until(lambda: bool(serve.events("buckets_not_emptied")), "it is said")
    wait_until(lambda: running.untrimmed >= len(running.sent), "they are counted")
    wait_until(lambda: running.trim_failures >= 2, "each try is counted", 30)
    bootstrap = running.stage.cluster.bootstrap_servers
    used = {topic for topic in running.levels if read_topic(bootstrap, topic)}
    wait_until(lambda: {one["topic"] for _, one in running.said("buckets_not_emptied")} == used, "it is said of all")
    for topic in used:
        said = [(at_ms, one) for at_ms, one in running.said("buckets_not_emptied") if one["topic"] == topic]
        assert said[0][1]["logs"] == 1
        assert "authorization" in said[0][1]["reason"]
        assert all(later_ms - at_ms > 50_000 for (at_ms, _), (later_ms, _) in pairwise(said)), "said once a minute"
    for topic in running.levels:
        allow(admin, topic, AclOperation.DELETE)
    wait_until(lambda: running.untrimmed == 0, "all are emptied", 30)
    failures = running.trim_failures
    assert sorted(one["topic"] for one in serve.events("buckets_emptied_again")) == sorted(used)
    assert not any(read_topic(bootstrap, topic) for topic in used)
    running.send(NEAR_MS)
    running.all_arrive()
    assert running.trim_failures == failures
    assert serve.stop() == 0


def test_levels_that_may_not_be_written_to_for_a_while_condemn_nothing(running: Running) -> None:
    serve, stage = running.serve, running.stage
    dead = stage.committed(f"{stage.intake}.dead")
    for topic in running.levels:
        deny(stage.admin, topic, AclOperation.WRITE)
    for _ in range(5):
        running.send(FAR_MS)

    def aborted() -> int:
        return sum(1 + event.get("left_out", 0) for event in serve.events("filing_aborted"))

    wait_until(lambda: aborted() >= 4, "filing is tried again and again", 40)
    assert not running.arrived.poll()
    for topic in running.levels:
        allow(stage.admin, topic, AclOperation.WRITE)
    running.all_arrive()
    assert serve.stop() == 0
    assert dead.read_to_the_end() == []
