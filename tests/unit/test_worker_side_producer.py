"""A producer beside the loop: built without waiting, renewed after a failure, and what it has open can be aborted."""

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tarry.errors import FatalError, RetriableError
from tarry.kafka.settings import BATCH_BYTES, Cluster
from tarry.kafka.transaction import INIT_TIMEOUT_S, Transactor
from tarry.service.worker import side_producer
from tarry.service.worker.side_producer import RENEWAL_MS, SideProducer
from tarry.testing import FakeBroker, ManualClock, Step
from tarry.testing.fake.clients import FakeClients

LAG_MS = 50
"""How long a marker takes, and who registers waits for that."""


class Slow(FakeClients):
    """Clients whose calls in the background take until somebody says what came of them."""

    def __init__(self) -> None:
        self.running: list[tuple[Callable[[], None], Future[None]]] = []

    def in_background(self, call: Callable[[], None]) -> "Future[None]":
        self.running.append((call, Future()))
        return self.running[-1][1]

    def finish(self) -> None:
        call, future = self.running.pop()
        call()
        future.set_result(None)


class Side:
    """A producer on a cluster with the topic `t`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, marker_lag_ms=(LAG_MS, LAG_MS))
        self.broker.make_topic("t")
        self.cluster = Cluster("fake", {}, self.broker.clients())
        self.batch_bytes = BATCH_BYTES
        self.producer = self.of(self.cluster)

    def of(self, cluster: Cluster, clients: FakeClients | None = None) -> SideProducer:
        return SideProducer(
            Transactor(cluster, "side"), clients or cluster.clients, self.clock, lambda: self.batch_bytes
        )

    def build(self) -> None:
        """Look until it is ready, as the loop does."""
        for _ in range(100):
            if self.producer.is_ready():
                return
            self.clock.advance(20)
        raise AssertionError("it is not ready")

    def fail_to_build(self) -> None:
        """Look until it is told that the brokers, which are away, do not answer."""
        assert not self.producer.is_ready()
        self.clock.advance(int(2 * INIT_TIMEOUT_S * 1000))
        with pytest.raises(RetriableError):
            self.producer.is_ready()

    def open(self, value: bytes) -> None:
        """Begin a transaction, with a record that is in the log."""
        self.producer.begin()
        transactor = self.producer.transactor
        transactor.produce("t", 0, None, value, None, lambda _error, _record: None)
        transactor.deliver(lambda: False)

    def values(self) -> list[bytes | None]:
        """Return the records that a reader gets once the markers are written."""
        self.clock.advance(LAG_MS)
        return [record.value for record in self.broker.records("t")]

    def fence(self) -> None:
        Transactor(self.cluster, "side").renew()


@pytest.fixture
def side() -> Side:
    return Side()


def test_the_first_look_begins_to_build_it_and_a_later_one_finds_it(side: Side) -> None:
    assert not side.producer.is_ready()
    assert side.producer.is_ready()
    assert side.producer.transactor.started


def test_after_a_commit_the_records_are_readable_and_no_transaction_is_open(side: Side) -> None:
    side.build()
    side.open(b"a")
    side.producer.commit()
    side.producer.stop()
    assert side.values() == [b"a"]


def test_a_stop_aborts_the_open_transaction_and_keeps_the_producer(side: Side) -> None:
    side.build()
    side.open(b"aborted")
    side.producer.stop()
    assert side.producer.is_ready()
    side.open(b"b")
    side.producer.commit()
    assert side.values() == [b"b"]


def test_a_stop_says_that_the_producer_was_fenced(side: Side) -> None:
    side.build()
    side.open(b"aborted")
    side.fence()
    with pytest.raises(FatalError):
        side.producer.stop()


def test_a_renewal_aborts_what_is_open_and_no_turn_waits_for_the_marker(side: Side) -> None:
    side.build()
    side.open(b"aborted")
    before_ms = side.clock.monotonic_ms()
    side.producer.renew()
    assert not side.producer.is_ready()
    assert side.clock.monotonic_ms() == before_ms
    side.build()
    side.open(b"b")
    side.producer.commit()
    assert side.values() == [b"b"]


def test_a_renewal_takes_the_size_of_batches_that_fits_by_then(side: Side) -> None:
    side.build()
    assert side.producer.fits()
    side.batch_bytes = 1_000
    assert not side.producer.fits()
    side.producer.renew()
    assert side.producer.fits()
    assert side.producer.transactor.batch_bytes == 1_000


def test_without_other_wishes_batches_are_as_large_as_the_firing_producers(side: Side) -> None:
    producer = SideProducer(Transactor(side.cluster, "other"), side.cluster.clients, side.clock)
    assert producer.fits()
    producer.renew()
    assert producer.transactor.batch_bytes == BATCH_BYTES


def test_a_renewal_that_failed_is_told_once_and_begun_again(side: Side) -> None:
    side.broker.stop()
    side.fail_to_build()
    assert not side.producer.is_ready(), "the next is being built, and the failure is not told again"
    side.broker.start()
    side.build()


def test_a_renewal_that_finds_the_producer_fenced_makes_settle_raise_but_not_stop(side: Side) -> None:
    side.build()
    side.open(b"aborted")
    side.fence()
    side.producer.renew()
    side.producer.stop()
    with pytest.raises(FatalError):
        side.producer.settle()


def test_to_settle_is_to_wait_for_what_is_being_built(side: Side) -> None:
    side.build()
    side.open(b"aborted")
    side.producer.renew()
    side.producer.settle()
    assert side.producer.is_ready()
    assert side.values() == []


def test_settle_gives_up_on_a_slow_renewal_and_stop_does_not_touch_it(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_producer, "SETTLE_S", 0)
    slow = Slow()
    side.producer = side.of(side.cluster, slow)
    assert not side.producer.is_ready()
    slow.finish()
    side.build()
    side.open(b"open")
    side.producer.renew()
    with pytest.raises(RetriableError, match="side is still being built"):
        side.producer.settle()
    side.producer.stop()
    assert side.broker.end("t") == 1  # the record, and no marker
    assert not side.producer.is_ready()
    slow.finish()
    side.producer.settle()
    assert side.producer.is_ready()
    assert side.values() == []


def test_building_a_producer_that_hangs_is_waited_for_a_limited_time_only(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_producer, "SETTLE_S", 0)
    side.producer = side.of(side.cluster, Slow())
    assert not side.producer.is_ready()
    side.clock.advance(RENEWAL_MS)
    assert not side.producer.is_ready()
    side.clock.advance(1)
    for look in (side.producer.is_ready, side.producer.settle):
        with pytest.raises(FatalError, match="side is still not built after 60001 ms"):
            look()


@pytest.mark.parametrize("call", ["list_topics", "init_transactions"])
@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_producer_that_is_renamed_while_it_is_built_is_built_again_under_the_new_name(
    side: Side, call: str, phase: str
) -> None:
    transactor = side.producer.transactor
    to_rename = [transactor.rename]

    def rename_once(step: Step) -> None:
        if (step.call, step.phase) == (call, phase) and to_rename:
            to_rename.pop()()

    side.broker.clients("main", rename_once)
    with pytest.raises(RetriableError, match="side was replaced by side-2"):
        side.build()
    assert (transactor.started, transactor.is_stuck, transactor.former) == (False, False, {"side"})
    side.build()
    side.open(b"a")
    side.producer.commit()
    assert side.values() == [b"a"]


def test_a_forgotten_transaction_is_neither_aborted_nor_reported(side: Side) -> None:
    side.build()
    side.open(b"open")
    side.fence()
    side.producer.renew()
    side.producer.forget()
    side.producer.stop()
    side.producer.settle()
    side.producer.transactor.close()
    assert not side.producer.is_ready()
    side.build()


def test_a_coordinator_that_is_away_holds_up_neither_a_renewal_nor_a_stop(side: Side) -> None:
    side.build()
    side.open(b"given up")
    side.broker.stop()
    side.producer.renew()
    side.fail_to_build()
    side.producer.stop()
    side.broker.start()
    side.build()
    side.open(b"open")
    side.broker.stop()
    side.producer.stop()
    assert not side.producer.transactor.started
    side.broker.start()
    side.build()
    side.open(b"good")
    side.producer.commit()
    assert side.values() == [b"good"]
