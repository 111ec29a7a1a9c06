"""The one writer of a partition: what it says of a write is true, whatever becomes of requests and answers.

A proxy stands before the broker; what is found in the topic is read past it.
"""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest

from tarry.client.exclusive import ExclusiveWriter, LastRecord, SourceRecord
from tarry.client.exclusive_record import POSITION, WRITER
from tarry.devbroker import EmbeddedBroker
from tarry.errors import BrokerError, ConfigError, FencedError, HeaderError, RetriableError, UndecidedError, UsageError
from tarry.testing import PRODUCE, Fault
from tests.support import writing
from tests.support.brokers import starting_brokers, wait_until
from tests.support.chaos import proxied_broker
from tests.support.dying import Step
from tests.support.proxy_process import ProxyProcess
from tests.support.stage import Stage
from tests.support.topics import read_topic

pytestmark = pytest.mark.broker

ADD_PARTITIONS = 24
END_TXN = 26
TIMEOUT_S = 3.0
# The client library answers a lost request or answer by itself only after this, and so later than the writer does.
PATIENT = {"socket.timeout.ms": 20_000, "reconnect.backoff.max.ms": 200}
# Here it does so by itself, in time.
QUICK = {"socket.timeout.ms": 1_000, "reconnect.backoff.max.ms": 200}


@dataclass
class Lab:
    """A topic of one partition, and writers to it."""

    stage: Stage
    proxy: ProxyProcess
    topic: str

    def writer(self, *, proxied: bool = False, **settings: Any) -> ExclusiveWriter:
        address = self.proxy.address if proxied else self.stage.cluster.bootstrap_servers
        writer = ExclusiveWriter(address, self.topic, timeout_s=settings.pop("timeout_s", TIMEOUT_S), **settings)
        self.stage.until_the_end.callback(writer.close)
        return writer

    def values(self) -> list[bytes | None]:
        return [record.value() for record in read_topic(self.stage.cluster.bootstrap_servers, self.topic)]

    def leave_aborted(self, count: int) -> None:
        """Write records that are aborted."""
        with self.stage.transaction(self.topic, [b"aborted"] * count) as stranger:
            stranger.abort()

    def trim(self, below: int) -> None:
        """Delete records."""
        deletion = self.stage.offsets.trim({(self.topic, 0): below})
        wait_until(lambda: deletion.done, "the records are deleted")
        assert deletion.failures() == []


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[ProxyProcess, EmbeddedBroker]]:
    with starting_brokers() as start, proxied_broker(start) as both:
        yield both


@pytest.fixture
def lab(proxied: tuple[ProxyProcess, EmbeddedBroker], unique_name: Callable[[str], str]) -> Iterator[Lab]:
    proxy, broker = proxied
    with ExitStack() as until_the_end:
        stage = Stage(broker.bootstrap_servers, unique_name("writer"), 1, until_the_end)
        yield Lab(stage, proxy, stage.make_topic(stage.target))


def rows(*positions: int) -> list[SourceRecord]:
    return [SourceRecord(str(position), b"%d" % position) for position in positions]


def place(last: LastRecord | None) -> tuple[bytes | None, int] | None:
    return None if last is None else (last.position, last.offset)


def test_records_of_a_write_stand_together_and_the_next_writer_goes_on_behind_them(lab: Lab) -> None:
    first = lab.writer()
    assert first.resume() is None
    records = [SourceRecord("a", "1", "k", {"own": "header"}), SourceRecord(b"\xff", None, None, [("n", None)])]
    assert place(first.write(records)) == (b"\xff", 1)
    looking = lab.writer()
    wait_until(lambda: place(looking.last()) == (b"\xff", 1), "the commit can be read")
    assert place(lab.writer().resume()) == (b"\xff", 1)
    one, two = read_topic(lab.stage.cluster.bootstrap_servers, lab.topic)
    assert (one.key(), one.value(), two.key(), two.value()) == (b"k", b"1", None, None)
    first_headers: Any = one.headers()
    second_headers: Any = two.headers()
    assert first_headers[:2] == [("own", b"header"), (POSITION, b"a")]
    assert second_headers[:2] == [("n", None), (POSITION, b"\xff")]
    assert first_headers[2] == second_headers[2]
    assert first_headers[2][0] == WRITER


@pytest.mark.some_of("fault")
@pytest.mark.parametrize("api_key", [PRODUCE, ADD_PARTITIONS, END_TXN], ids=["produce", "add-partitions", "end"])
@pytest.mark.parametrize("fault", Fault)
def test_a_write_succeeds_once_whatever_becomes_of_a_request_that_is_sent_again(
    lab: Lab, fault: Fault, api_key: int
) -> None:
    writer = lab.writer(proxied=True, options=QUICK, timeout_s=10.0)
    writer.resume()
    writer.write(rows(1, 2))
    struck = lab.proxy.struck
    lab.proxy.plan(fault, api_key)
    last = writer.write(rows(3, 4))
    assert lab.proxy.struck == struck + 1
    assert last.position == b"4"
    writer.write(rows(5))
    assert lab.values() == [b"1", b"2", b"3", b"4", b"5"]


def test_a_write_whose_commit_never_reached_the_broker_is_said_to_have_failed_and_can_be_made_again(lab: Lab) -> None:
    writer = lab.writer(proxied=True, options=PATIENT)
    writer.resume()
    writer.write(rows(1))
    lab.proxy.plan(Fault.LOSE_REQUEST, END_TXN)
    with pytest.raises(RetriableError, match="nothing was written") as refusal:
        writer.write(rows(2, 3))
    assert not isinstance(refusal.value, UndecidedError)
    assert lab.values() == [b"1"]
    writer.write(rows(2, 3))
    assert lab.values() == [b"1", b"2", b"3"]


def test_a_write_whose_commit_was_done_and_not_answered_is_found_to_have_succeeded(lab: Lab) -> None:
    writer = lab.writer(proxied=True, options=PATIENT)
    writer.resume()
    lab.proxy.plan(Fault.LOSE_RESPONSE, END_TXN)
    assert place(writer.write(rows(1, 2))) == (b"2", 1)
    writer.write(rows(3))
    assert lab.values() == [b"1", b"2", b"3"]


def test_records_that_never_reached_the_broker_are_aborted_and_can_be_written_again(lab: Lab) -> None:
    writer = lab.writer(proxied=True, options=PATIENT)
    writer.resume()
    lab.proxy.plan(Fault.LOSE_REQUEST, PRODUCE)
    with pytest.raises(RetriableError, match="nothing was written"):
        writer.write(rows(1))
    writer.write(rows(1))
    assert lab.values() == [b"1"]


def test_a_zombie_whose_write_was_never_sent_does_not_fence_the_other_writer(lab: Lab) -> None:
    zombie, healthy = lab.writer(), lab.writer()
    zombie.resume()
    zombie.write(rows(1))
    healthy.resume()
    healthy.write(rows(2))
    # The client refuses it by itself, and aborts by itself: no broker says that another has taken over.
    with pytest.raises(FencedError, match="another writer"):
        zombie.write([SourceRecord("2", bytes(200_000_001))])
    with pytest.raises(FencedError):
        zombie.write(rows(2))
    healthy.write(rows(3))
    assert lab.values() == [b"1", b"2", b"3"]


@pytest.mark.some_of("fault")
@pytest.mark.parametrize(
    ("fault", "expected"), [(Fault.LOSE_RESPONSE, b"2"), (Fault.LOSE_REQUEST, b"1")], ids=["done", "not-done"]
)
def test_a_write_of_unknown_outcome_is_undecided_until_the_brokers_are_back(
    lab: Lab, fault: Fault, expected: bytes
) -> None:
    writer = lab.writer(proxied=True, options=PATIENT, timeout_s=TIMEOUT_S)
    wait_until(lambda: is_resumed(writer), "it has taken over")
    writer.write(rows(1))
    struck = lab.proxy.struck

    def silence() -> None:
        wait_until(lambda: lab.proxy.struck > struck, "the commit is lost")
        lab.proxy.stall()

    lab.proxy.plan(fault, END_TXN)
    with ThreadPoolExecutor(1) as thread:
        silencing = thread.submit(silence)
        with pytest.raises(UndecidedError, match="not known yet whether the write succeeded"):
            writer.write(rows(2))
        silencing.result(20)
    lab.proxy.resume()
    with pytest.raises(UsageError, match="call resume first"):
        writer.write(rows(3))
    wait_until(lambda: is_resumed(writer), "it has taken over again", 60.0)
    last = writer.last()
    assert last is not None
    assert last.position == expected


def is_resumed(writer: ExclusiveWriter) -> bool:
    """Whether a short-tempered writer could take over, this time."""
    try:
        writer.resume()
    except RetriableError:
        return False
    return True


def test_a_second_writer_fences_the_first_one_permanently(lab: Lab) -> None:
    zombie, healthy = lab.writer(), lab.writer()
    zombie.resume()
    zombie.write(rows(1))
    assert place(healthy.resume()) == (b"1", 0)
    for _ in range(2):
        with pytest.raises(FencedError, match="another writer"):
            zombie.write(rows(100))
    with pytest.raises(FencedError):
        zombie.resume()
    assert place(zombie.last()) == (b"1", 0)
    healthy.write(rows(2))
    assert lab.values() == [b"1", b"2"]


def test_a_writer_fenced_in_the_middle_of_a_write_leaves_no_visible_record(lab: Lab) -> None:
    zombie, healthy = lab.writer(proxied=True, options=PATIENT, timeout_s=8.0), lab.writer()
    zombie.resume()
    zombie.write(rows(1))
    wait_until(lambda: lab.stage.end(lab.topic) == 2, "the first write's marker is there")

    def go_on() -> None:
        wait_until(lambda: lab.stage.end(lab.topic) > 2, "the zombie's records are in the log")
        assert place(healthy.resume()) == (b"1", 0)
        healthy.write(rows(2))

    lab.proxy.plan(Fault.LOSE_REQUEST, END_TXN)
    with ThreadPoolExecutor(1) as thread:
        going_on = thread.submit(go_on)
        with pytest.raises(FencedError, match="another writer has written"):
            zombie.write(rows(100, 101))
        going_on.result(20)
    # That the zombie found out has not shut out the healthy one.
    healthy.write(rows(3))
    assert lab.values() == [b"1", b"2", b"3"]


def test_the_last_record_is_found_behind_any_number_of_aborted_ones(lab: Lab) -> None:
    writer = lab.writer()
    writer.resume()
    writer.write(rows(1, 2))
    for count in (1, 100, 2_000, 1):
        lab.leave_aborted(count)
    assert place(lab.writer().last()) == (b"2", 1)
    assert place(lab.writer().resume()) == (b"2", 1)


def test_a_partition_with_nothing_but_aborted_records_has_no_last_one(lab: Lab) -> None:
    lab.leave_aborted(300)
    assert lab.writer().resume() is None


def test_a_partition_that_was_trimmed_to_its_end_has_no_last_record_and_can_be_written_to(lab: Lab) -> None:
    writer = lab.writer()
    writer.resume()
    writer.write(rows(1, 2))
    lab.trim(lab.stage.end(lab.topic))
    assert lab.writer().last() is None
    assert writer.write(rows(3)).position == b"3"
    assert lab.values() == [b"3"]


def test_a_partition_that_is_emptied_before_it_can_tell_is_not_guessed_about(lab: Lab) -> None:
    writer = lab.writer(proxied=True, options=PATIENT, timeout_s=8.0)
    writer.resume()
    writer.write(rows(1))
    # A record, and the marker of its commit, which is answered before that is written.
    wait_until(lambda: lab.stage.end(lab.topic) == 2, "the first write's marker is there")

    def empty() -> None:
        wait_until(lambda: lab.stage.end(lab.topic) == 4, "the second write is committed")
        lab.trim(4)

    lab.proxy.plan(Fault.LOSE_RESPONSE, END_TXN)
    with ThreadPoolExecutor(1) as thread:
        emptying = thread.submit(empty)
        with pytest.raises(UsageError, match="was emptied"):
            writer.write(rows(2))
        emptying.result(20)
    assert writer.resume() is None


def test_a_partition_that_begins_later_is_read_from_there(lab: Lab) -> None:
    writer = lab.writer()
    writer.resume()
    writer.write(rows(*range(10)))
    lab.trim(9)
    lab.leave_aborted(100)
    assert place(writer.resume()) == (b"9", 9)


def test_a_record_that_no_exclusive_writer_wrote_has_no_position(lab: Lab) -> None:
    lab.stage.put(lab.topic, (0, b"k", b"foreign", None))
    writer = lab.writer()
    assert writer.resume() == LastRecord(None, 0)
    assert writer.write(rows(1)).offset == 1


def test_a_compacted_log_keeps_its_last_record(lab: Lab) -> None:
    lab.topic = lab.stage.make_topic(
        f"{lab.topic}.compacted",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.0",
        segment_ms="100",
        min_compaction_lag_ms="0",
    )
    writer = lab.writer()
    writer.resume()
    written = 0

    def is_compacted() -> bool:
        # Only closed segments are compacted, and a write closes the one before it: once that is old enough.
        nonlocal written
        written += 1
        writer.write([SourceRecord(str(written), b"v", b"one key")])
        return len(lab.values()) < written

    wait_until(is_compacted, "the log is compacted", 60.0)
    last = lab.writer().resume()
    assert last is not None
    assert last.position == b"%d" % written


def test_a_record_that_the_broker_never_accepts_is_refused_permanently_and_the_next_write_succeeds(lab: Lab) -> None:
    lab.stage.configure(lab.topic, max_message_bytes="10000")
    writer = lab.writer()
    writer.resume()
    with pytest.raises(BrokerError, match="nothing was written") as refusal:
        writer.write([*rows(1), SourceRecord("2", b"x" * 20_000)])
    assert not isinstance(refusal.value, RetriableError)
    writer.write(rows(1))
    assert lab.values() == [b"1"]


def test_another_ones_open_transaction_hides_nothing_that_was_committed_before_it(lab: Lab) -> None:
    writer = lab.writer()
    writer.resume()
    writer.write(rows(1))
    looking = lab.writer()
    with lab.stage.transaction(lab.topic, [b"open"]) as stranger:
        wait_until(lambda: place(looking.last()) == (b"1", 0), "the commit can be read")
        stranger.abort()


@pytest.mark.some_of("steps")
@pytest.mark.parametrize("steps", [("begun", "produced", "committing"), ("committed", "produced", "committed")])
def test_a_source_that_resumes_loses_and_repeats_nothing_through_kill_9(lab: Lab, steps: tuple[Step, ...]) -> None:
    bootstrap, count = lab.stage.cluster.bootstrap_servers, 2_000
    for number, step in enumerate(steps):
        assert writing.run(bootstrap, lab.topic, count, step, 5 + number) == -signal.SIGKILL
    assert 0 < len(lab.values()) < count
    assert writing.run(bootstrap, lab.topic, count) == 0
    assert lab.values() == [writing.record(position).value for position in range(count)]


def test_writers_of_two_partitions_do_not_meet_unless_told_to(lab: Lab) -> None:
    topic = lab.stage.make_topic(f"{lab.topic}.two", 2)
    bootstrap = lab.stage.cluster.bootstrap_servers
    with (
        closing(ExclusiveWriter(bootstrap, topic, 0)) as one,
        closing(ExclusiveWriter(bootstrap, topic, 1)) as two,
        closing(ExclusiveWriter(bootstrap, topic, 1, transactional_id=one.transactional_id)) as namesake,
    ):
        assert one.transactional_id != two.transactional_id
        for writer in (one, two):
            writer.resume()
        for writer in (one, two):
            writer.write(rows(1))
        namesake.resume()
        two.write(rows(2))
        with pytest.raises(FencedError):
            one.write(rows(2))


def test_wrong_use_is_refused_before_anything_is_sent(lab: Lab) -> None:
    writer = lab.writer()
    with pytest.raises(UsageError, match="call resume first"):
        writer.write(rows(1))
    writer.resume()
    with pytest.raises(UsageError, match="at least one record"):
        writer.write([])
    for bad in (
        SourceRecord("1", b"", headers={POSITION: b""}),
        SourceRecord("\ud800", b""),
        SourceRecord(1, b""),  # type: ignore[arg-type]  # that is what is wrong with it
        SourceRecord(None, b""),  # type: ignore[arg-type]  # likewise
    ):
        with pytest.raises(HeaderError):
            writer.write([*rows(1), bad])
    writer.write(rows(1))
    writer.close()
    writer.close()
    for call in (lambda: writer.write(rows(2)), writer.resume, writer.last):
        with pytest.raises(UsageError, match="closed"):
            call()
    for settings in ({"timeout_s": 30.0}, {"timeout_s": 0.0}, {"partition": -1}, {"transactional_id": ""}):
        with pytest.raises(ConfigError):
            lab.writer(**settings)
    with pytest.raises(HeaderError):
        ExclusiveWriter("localhost:9092", "no topic")
    with pytest.raises(UsageError, match="no partition"):
        lab.writer(partition=1).resume()
    assert lab.values() == [b"1"]
