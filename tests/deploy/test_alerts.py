"""Each alert fires once, in a real Prometheus, because what it warns of happens to a real service on a real broker.

All times of the rules are divided by `FASTER`; see `tests.support.prometheus` for the one number that is, too. Where a
test has no second broker, `deny` takes a right away as an operator does by mistake. The job of a service is the name of
its test.
"""

import os
import random
import signal
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin._acl import AclOperation

from tarry.clock import SystemClock
from tarry.config import Config
from tarry.core.request.pause import Pause
from tarry.devbroker import EmbeddedBroker
from tarry.kafka.control import Control
from tarry.testing.serve import Serve, ServeConfig
from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL
from tests.support.further_broker import FurtherBroker, make_intake, make_internal_topics
from tests.support.prometheus import RULES, Prometheus, prometheus
from tests.support.rights import deny
from tests.support.stage import Stage
from tests.support.stranger import stranger

pytestmark = pytest.mark.deploy

WITHIN_S: Final = 150.0
ANOTHER_VERSION: Final = """
import runpy, tarry
tarry.__version__ = "0.0.0"
runpy.run_module("tarry", run_name="__main__", alter_sys=True)
"""
ANOTHER_CLOCK: Final = """
import pathlib, time
real_ns, ahead = time.time_ns, pathlib.Path({path!r})
time.time_ns = lambda: real_ns() + int(ahead.read_text() or 0) * 1_000_000_000
time.time = lambda: time.time_ns() / 1_000_000_000
"""

CAUSED: set[str] = set()
"""The alerts that have fired so far."""


class Watched:
    """A service that Prometheus scrapes, its topics, and what fires for it."""

    def __init__(self, stage: Stage, directory: Path, watch: Prometheus, job: str) -> None:
        self.stage = stage
        self.directory = directory
        self.watch = watch
        self.job = job

    @property
    def group(self) -> tuple[str, str, str]:
        """The broker, the group and the intake."""
        return self.stage.cluster.bootstrap_servers, self.stage.group, self.stage.intake

    def start(self, **settings: Any) -> Serve:
        """Start the service; it is scraped, and no alert fires."""
        serve = self.serve("serve", **settings)
        serve.start().wait_serving()
        self.watch.follow(self.job, serve)
        assert self.watch.firing(self.job) == set()
        return serve

    def serve(self, name: str, command: tuple[str, ...] = ("tarry", "serve", "--config"), **settings: Any) -> Serve:
        config = ServeConfig(
            self.stage.cluster.bootstrap_servers,
            self.stage.intake,
            self.stage.partitions,
            self.stage.group,
            **settings,
        )
        serve = Serve(config, self.directory, name, command)
        self.stage.until_the_end.callback(serve.close)
        return serve

    def wait_for(self, *alerts: str, cause: Callable[[], object] = lambda: None, within_s: float = WITHIN_S) -> None:
        """Go on causing what these alerts warn of, until all of them have fired."""
        left = set(alerts)

        def have_fired() -> bool:
            cause()
            left.difference_update(self.watch.firing(self.job))
            return not left

        try:
            wait_until(have_fired, f"{', '.join(alerts)} fire", within_s)
        finally:
            CAUSED.update(set(alerts) - left)
        assert not left


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture
def make_watched(
    watch: Prometheus, unique_name: Callable[[str], str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Watched]]:
    with ExitStack() as until_the_end:

        def make(bootstrap: str, partitions: int = 1) -> Watched:
            stage = Stage(bootstrap, unique_name("alerts"), partitions, until_the_end)
            return Watched(stage, tmp_path, watch, request.node.name)

        yield make


@pytest.fixture
def watched(make_watched: Callable[..., Watched], bootstrap_of_authorizer: str) -> Watched:
    return make_watched(bootstrap_of_authorizer)


# -- no service; must be the first, because later ones are scraped -----------------------------------------------------


def test_no_service(watch: Prometheus) -> None:
    wait_until(lambda: watch.firing(None) == {"TarryAbsent"}, "TarryAbsent fires", WITHIN_S)
    CAUSED.add("TarryAbsent")


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_that_are_late_or_never_delivered(watched: Watched) -> None:
    watched.start()
    stage = watched.stage
    stage.make_topic(stage.target)

    def send() -> None:
        at = b"%d" % (SystemClock().now_ms() - 20_000)
        headers: list[tuple[str, bytes | None]] = [("tarry-target", stage.target.encode()), ("tarry-deliver-at", at)]
        stage.put(stage.intake, *[(0, b"k", b"late", headers)] * 20, (0, b"k", b"no headers", []))

    watched.wait_for("TarryMessagesLate", "TarryLateOften", "TarryLateSometimes", "TarryDeadLetters", cause=send)
    assert "TarryAbsent" not in watched.watch.firing(None)


def test_results_that_may_not_be_written(watched: Watched) -> None:
    watched.start(service={"memory_budget": "16MiB"})
    stage = watched.stage
    stage.make_topic(stage.target)
    deny(stage.admin, f"{stage.intake}.results", AclOperation.WRITE)
    for _ in range(40):
        stage.send(*[random.Random(1).randbytes(1_000)] * 1_000)
    watched.wait_for(
        "TarryOverdue", "TarryStandsStill", "TarryTransactionsAbort", "TarryMemoryFull", "TarryReadingBehind"
    )


def test_dead_letters_that_are_too_large(watched: Watched) -> None:
    watched.start()
    stage = watched.stage
    stage.configure(stage.intake, max_message_bytes="3000000")
    stage.put(stage.intake, (0, b"huge", random.Random(1).randbytes(2_000_000), []))
    watched.wait_for("TarryDeadLettersTooLarge")


def test_a_transaction_that_somebody_leaves_open(watched: Watched) -> None:
    watched.start()
    stage = watched.stage
    foreign = Producer(stage.cluster.client(transactional_id=f"{stage.group}.stranger", transaction_timeout_ms=600_000))
    foreign.init_transactions(30)
    foreign.begin_transaction()
    foreign.produce(stage.intake, b"open", partition=0)
    foreign.flush(30)
    try:
        watched.wait_for("TarryTransactionStaysOpen")
    finally:
        foreign.abort_transaction(30)


def test_a_target_that_may_not_be_written_to(watched: Watched) -> None:
    watched.start()
    stage = watched.stage
    stage.make_topic(stage.target)
    deny(stage.admin, stage.target, AclOperation.WRITE)
    stage.send(b"v")
    watched.wait_for("TarryTargetAway")


def test_a_target_that_was_paused_the_day_before_yesterday(watched: Watched) -> None:
    watched.start()
    stage, clock = watched.stage, SystemClock()
    stage.make_topic(stage.target)
    at_ms = clock.now_ms() - 2 * 86_400_000
    with closing(Control(stage.cluster, stage.group, clock)) as control:
        control.write(stage.intake, Pause(stage.target, paused=True, reason="forgotten", who="nobody", at_ms=at_ms))
    stage.send(b"v")
    watched.wait_for("TarryPausedForLong")
    assert "TarryTargetAway" not in watched.watch.firing(watched.job), "it is not away"


def test_levels_that_may_not_be_trimmed(watched: Watched) -> None:
    watched.start(**QUICK_WHEEL)
    stage = watched.stage
    stage.make_topic(stage.target)
    for level in (1, 2, 3):
        deny(stage.admin, f"{stage.intake}.wheel-{level}", AclOperation.DELETE)
    watched.wait_for("TarryTrimFails", "TarryBucketsNotEmptied", cause=lambda: stage.send(*[b"v"] * 50, delay_ms=5_000))


# -- partitions --------------------------------------------------------------------------------------------------------


def test_a_journal_with_a_foreign_record(watched: Watched) -> None:
    serve = watched.start()
    watched.stage.put(f"{watched.stage.intake}.journal", (0, None, b"not of tarry", []))
    os.kill(serve.workers[0], signal.SIGKILL)
    watched.wait_for("TarryPartitionQuarantined")


def test_a_strange_consumer_with_the_only_partition(watched: Watched) -> None:
    watched.start()
    with stranger(*watched.group) as other:
        watched.wait_for("TarryNobodyServes", cause=lambda: other.poll(0.1))
        assert "TarryPartitionsUnserved" not in watched.watch.firing(watched.job)


def test_a_strange_consumer_that_comes_and_goes(
    make_watched: Callable[..., Watched], bootstrap_of_authorizer: str
) -> None:
    watched = make_watched(bootstrap_of_authorizer, partitions=2)
    watched.start()
    with stranger(*watched.group) as other:
        watched.wait_for("TarryPartitionsUnserved", cause=lambda: other.poll(0.1))

    def come_and_go() -> None:
        with stranger(*watched.group):
            pass

    watched.wait_for("TarryRebalancesOften", cause=come_and_go)


def test_a_transaction_that_holds_up_a_take_over(watched: Watched) -> None:
    serve = watched.start()
    stage = watched.stage
    outside = Consumer(stage.cluster.client(group_id=stage.group))
    stuck = Producer(stage.cluster.client(transactional_id=f"{stage.group}.stranger", transaction_timeout_ms=300_000))
    stuck.init_transactions(30)
    stuck.begin_transaction()
    offsets = [TopicPartition(stage.intake, 0, 0)]
    stuck.send_offsets_to_transaction(offsets, outside.consumer_group_metadata(), 30)
    try:
        os.kill(serve.workers[0], signal.SIGKILL)
        watched.wait_for("TarryTakeOverLong", "TarryPartitionsUnserved")
    finally:
        stuck.abort_transaction(30)
        outside.close()


def test_a_log_without_a_leader_and_then_no_broker(
    make_watched: Callable[..., Watched], embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    watched = make_watched(embedded_broker.bootstrap_servers)
    stage = watched.stage
    stage.make_topic(stage.target)
    make_internal_topics(embedded_broker.bootstrap_servers, stage.target)
    further = FurtherBroker(embedded_broker, tmp_path / "further")
    stage.until_the_end.callback(further.stop)
    further.start()
    serve = watched.serve("serve")
    settings = Config(**tomllib.loads((tmp_path / "serve.toml").read_text(encoding="utf-8")))
    make_intake(embedded_broker.bootstrap_servers, settings, (".journal", 0))
    serve.start().wait_serving()
    watched.watch.follow(watched.job, serve)
    further.stop()
    watched.wait_for("TarryPartitionWaits")
    embedded_broker.kill()
    watched.wait_for("TarryBrokersSilent")


# -- processes ---------------------------------------------------------------------------------------------------------


def test_a_process_that_stops_and_one_that_dies_again_and_again(watched: Watched) -> None:
    serve = watched.start()
    os.kill(serve.workers[0], signal.SIGSTOP)
    watched.wait_for("TarryProcessHangs")
    killed: set[int] = set()

    def kill() -> None:
        if (pid := serve.workers[0]) not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    watched.wait_for("TarryProcessDown", "TarryProcessRestarts", cause=kill)


def test_a_clock_that_is_wrong_and_then_makes_a_step(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the service's Python sees another clock: that of the machine belongs to all that runs there."""
    ahead = watched.directory / "ahead_s"
    ahead.write_text("5", encoding="utf-8")
    (watched.directory / "sitecustomize.py").write_text(ANOTHER_CLOCK.format(path=str(ahead)), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(watched.directory))
        watched.start()
    watched.wait_for("TarryClockSkew")
    assert "TarryClockAhead" not in watched.watch.firing(watched.job)
    ahead.write_text("3600", encoding="utf-8")
    watched.wait_for("TarryClockAhead")


def test_two_versions(watched: Watched) -> None:
    (watched.directory / "another.py").write_text(ANOTHER_VERSION, encoding="utf-8")
    both = [watched.serve("old", ("another", "serve", "--config")), watched.serve("new")]
    for serve in both:
        serve.start().wait_listening()
    watched.watch.follow(watched.job, *both)
    watched.wait_for("TarryVersionsMixed", within_s=300)


def test_no_alert_is_left_that_has_not_fired(request: pytest.FixtureRequest) -> None:
    """Must be the last. It says nothing if only some of the tests ran."""
    here = [item for item in request.session.items if item.path == request.path]
    if len(here) < len([name for name in globals() if name.startswith("test_")]):
        pytest.skip("only some of the alerts were tried")
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert alerts == CAUSED
