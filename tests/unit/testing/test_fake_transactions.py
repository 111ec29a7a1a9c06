"""Faults of transactions: crashes, lost answers, slow markers, a cluster that is away."""

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from tarry.testing import FakeBroker, Fate, ManualClock, ProcessKilled, Step
from tests.unit.testing.stage import GROUP, TopicStage, error_in


class Crash(BaseException):
    """kill -9."""


def test_each_step_of_a_transaction_is_told_before_and_after(stage: TopicStage) -> None:
    steps: list[Step] = []
    producer = stage.producer(hook=steps.append)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.commit_transaction(-1)
    assert [(step.process, step.call, step.phase) for step in steps] == [
        ("p", "produce", "before"),
        ("p", "produce", "after"),
        ("p", "commit_transaction", "before"),
        ("p", "commit_transaction", "after"),
    ]
    numbers = [step.number for step in steps]
    assert numbers == list(range(numbers[0], numbers[0] + 4))


@pytest.mark.parametrize(("phase", "kept"), [("before", []), ("after", [b"a"])])
def test_a_crash_at_the_commit_keeps_all_or_nothing(stage: TopicStage, phase: str, kept: list[bytes]) -> None:
    def crash(step: Step) -> None:
        if (step.call, step.phase) == ("commit_transaction", phase):
            stage.broker.kill("p")
            raise Crash

    producer = stage.producer(hook=crash)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    with pytest.raises(Crash):
        producer.commit_transaction(-1)
    assert stage.values(committed=False) == [b"a"]
    stage.producer(process="next")
    assert stage.values() == kept


def test_nothing_of_a_killed_process_reaches_the_cluster(stage: TopicStage) -> None:
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    stage.broker.kill("p")
    with pytest.raises(ProcessKilled):
        producer.commit_transaction(-1)
    assert producer.close()
    assert stage.values(committed=False) == []


def test_a_crash_between_two_partitions_leaves_a_part_of_the_records(stage: TopicStage) -> None:
    seen = 0

    def crash(step: Step) -> None:
        nonlocal seen
        seen += (step.call, step.phase) == ("produce", "after")
        if seen == 1:
            stage.broker.kill("p")
            raise Crash

    producer = stage.producer(hook=crash)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce("t", b"a", partition=partition)
    with pytest.raises(Crash):
        producer.commit_transaction(-1)
    assert (stage.values(0, committed=False), stage.values(1, committed=False)) == ([b"a"], [])


@pytest.mark.parametrize("call", ["produce", "send_offsets", "commit_transaction"])
def test_a_lost_answer_inside_a_transaction_is_not_noticed(stage: TopicStage, call: str) -> None:
    lost: list[Step] = []

    def lose(step: Step) -> Fate | None:
        if step.call == call and step.phase == "after" and not lost:
            lost.append(step)
            return Fate.LOSE_ANSWER
        return None

    producer = stage.producer(hook=lose)
    metadata = stage.broker.clients("p", lose).consumer({"group.id": GROUP}).consumer_group_metadata()
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata)
    producer.commit_transaction(-1)
    assert lost
    assert stage.values() == [b"a"]
    assert stage.committed() == {0: (7, "")}


@pytest.mark.parametrize("call", ["send_offsets", "commit_transaction"])
def test_a_transaction_that_the_cluster_wants_aborted_can_be_aborted_and_made_again(
    stage: TopicStage, call: str
) -> None:
    refused: list[Step] = []

    def refuse(step: Step) -> Fate | None:
        if step.call == call and step.phase == "before" and not refused:
            refused.append(step)
            return Fate.WANT_ABORT
        return None

    producer = stage.producer(hook=refuse)
    metadata = stage.broker.clients("p", refuse).consumer({"group.id": GROUP}).consumer_group_metadata()

    def transact() -> None:
        producer.begin_transaction()
        producer.produce("t", b"a", partition=0)
        producer.flush(1)  # the cluster has heard of the transaction: else there would be none to abort
        producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata)
        producer.commit_transaction(-1)

    error = error_in(transact)
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.TRANSACTION_ABORTABLE, True)
    producer.abort_transaction(-1)
    assert (stage.values(), stage.committed()) == ([], {})
    transact()
    assert (stage.values(), stage.committed()) == ([b"a"], {0: (7, "")})


def test_a_producer_that_is_fenced_while_its_commit_is_lost_never_learns_that_it_went_through(
    stage: TopicStage,
) -> None:
    others: list[Producer] = []

    def fence(step: Step) -> Fate | None:
        if (step.call, step.phase) == ("commit_transaction", "after") and step.process == "p" and not others:
            others.append(stage.producer(process="other"))
            return Fate.LOSE_ANSWER
        return None

    producer = stage.producer(hook=fence)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    error = error_in(producer.commit_transaction, -1)
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert stage.values() == [b"a"]


def test_markers_come_late_and_the_next_transaction_waits_for_them(clock: ManualClock) -> None:
    stage = TopicStage(clock, FakeBroker(clock, marker_lag_ms=(40, 40)))
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.commit_transaction(-1)
    committed_ms = clock.monotonic_ms()
    assert stage.values() == []
    producer.begin_transaction()
    producer.produce("t", b"b", partition=0)
    producer.flush(5)
    assert clock.monotonic_ms() - committed_ms >= 40
    assert stage.values() == [b"a"]


def test_offsets_are_unstable_until_their_marker_is_there(clock: ManualClock) -> None:
    stage = TopicStage(clock, FakeBroker(clock, marker_lag_ms=(40, 40)))
    producer = stage.producer()
    metadata = stage.broker.clients("p").consumer({"group.id": GROUP}).consumer_group_metadata()
    for offset in (1, 2):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition("t", 0, offset)], metadata)
        producer.commit_transaction(-1)
    assert stage.committed() == {0: (1, "")}
    before_ms = clock.monotonic_ms()
    assert stage.committed("read_committed") == {0: (2, "")}
    assert clock.monotonic_ms() - before_ms <= 40


def test_a_transaction_that_outlives_its_timeout_is_aborted_and_its_producer_fenced(stage: TopicStage) -> None:
    producer = stage.producer(transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.flush(1)
    stage.clock.advance(1_000)
    assert stage.broker.end("t") == 2
    assert error_in(producer.commit_transaction, -1).code() == KafkaError._FENCED


# -- away --------------------------------------------------------------------------------------------------------------


def test_records_to_a_topic_that_is_away_time_out_and_others_arrive(stage: TopicStage) -> None:
    stage.broker.make_topic("away")
    producer = stage.producer()
    failed: list[tuple[bytes | None, int]] = []
    stage.broker.take_away("away")
    producer.begin_transaction()
    for topic in ("away", "t"):
        producer.produce(
            topic,
            topic.encode(),
            partition=0,
            on_delivery=lambda error, record: failed.append((record.value(), error.code() if error else 0)),
        )
    before_ms = stage.clock.monotonic_ms()
    error = error_in(producer.commit_transaction, -1)
    assert 5_000 <= stage.clock.monotonic_ms() - before_ms <= 5_020
    assert (error.code(), error.txn_requires_abort()) == (KafkaError._INCONSISTENT, True)
    assert failed == [(b"away", KafkaError._MSG_TIMED_OUT)]
    assert stage.values(committed=False) == [b"t"]
    producer.abort_transaction(-1)
    stage.broker.bring_back("away")
    producer.begin_transaction()
    producer.produce("away", b"back", partition=0)
    producer.commit_transaction(-1)
    assert [record.value for record in stage.broker.records("away")] == [b"back"]


def test_metadata_of_a_topic_that_is_away_names_no_leader(stage: TopicStage) -> None:
    stage.broker.take_away("t")
    found = stage.producer().list_topics("t", 5).topics["t"]
    assert [(one.leader, one.error.code()) for one in found.partitions.values()] == [
        (-1, KafkaError.LEADER_NOT_AVAILABLE)
    ] * 2


def test_where_markers_wait_for_the_leaders_the_producer_does_too(stage: TopicStage) -> None:
    stage.broker.make_topic("away")
    producer = stage.producer()
    producer.list_topics("away", 5)
    stage.broker.take_away("away", markers_wait=True)
    producer.begin_transaction()
    producer.produce("away", b"a", partition=0)
    assert error_in(producer.commit_transaction, -1).txn_requires_abort()
    producer.abort_transaction(-1)
    stage.clock.call_at(stage.clock.monotonic_ms() + 20_000, lambda: stage.broker.bring_back("away"))
    before_ms = stage.clock.monotonic_ms()
    stage.producer(process="next")
    assert 20_000 <= stage.clock.monotonic_ms() - before_ms < 20_200


def test_a_stopped_cluster_answers_no_request_and_forgets_nothing(stage: TopicStage) -> None:
    producer = stage.producer()
    producer.begin_transaction()
    producer.produce("t", b"a", partition=0)
    producer.commit_transaction(-1)
    stage.broker.stop()
    before_ms = stage.clock.monotonic_ms()
    assert error_in(producer.list_topics, "t", 2).code() == KafkaError._TRANSPORT
    other = stage.cluster("q").clients.producer({"transactional.id": "other"})
    error = error_in(other.init_transactions, 3)
    assert (error.code(), error.retriable()) == (KafkaError._TIMED_OUT, True)
    assert stage.clock.monotonic_ms() - before_ms == 5_000
    stage.clock.call_at(stage.clock.monotonic_ms() + 1_000, stage.broker.start)
    producer.begin_transaction()
    producer.produce("t", b"b", partition=0)
    producer.commit_transaction(-1)
    assert stage.values() == [b"a", b"b"]


def test_offsets_wait_for_a_coordinator_that_is_away(stage: TopicStage) -> None:
    producer = stage.producer()
    metadata = stage.broker.clients("p").consumer({"group.id": GROUP}).consumer_group_metadata()
    producer.begin_transaction()
    stage.broker.coordinator_away(GROUP, 3_000)
    before_ms = stage.clock.monotonic_ms()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], metadata, 1)
    assert stage.clock.monotonic_ms() - before_ms >= 3_000
    producer.commit_transaction(-1)
    assert stage.committed() == {0: (7, "")}


def test_an_admin_request_whose_answer_is_lost_times_out(stage: TopicStage) -> None:
    clients = stage.broker.clients(
        "admin", lambda step: Fate.LOSE_ANSWER if (step.call, step.phase) == ("delete_records", "after") else None
    )
    stage.broker.append("t", None, b"a", None)
    admin = clients.admin({})
    [future] = admin.delete_records([TopicPartition("t", 0, 1)], request_timeout=10).values()
    assert not future.done()
    before_ms = stage.clock.monotonic_ms()
    assert error_in(future.result).code() == KafkaError._TIMED_OUT
    assert stage.clock.monotonic_ms() - before_ms == 10_000
    assert stage.values() == []


def test_a_call_in_the_background_waits_while_its_process_goes_on(stage: TopicStage) -> None:
    stage.broker.stop()
    clients = stage.broker.clients("p")
    producer = clients.producer({"transactional.id": "id"})
    registered = clients.in_background(lambda: producer.init_transactions(30))
    before_ms = stage.clock.monotonic_ms()
    assert not registered.done()
    assert stage.clock.monotonic_ms() == before_ms
    stage.broker.start()
    stage.clock.advance(50)
    assert registered.done()
    registered.result()
    producer.begin_transaction()


def test_a_call_in_the_background_gives_up_after_its_own_time_out(stage: TopicStage) -> None:
    stage.broker.stop()
    clients = stage.broker.clients("p")
    producer = clients.producer({"transactional.id": "id"})
    registered = clients.in_background(lambda: producer.init_transactions(1))
    stage.clock.advance(999)
    assert not registered.done()
    stage.clock.advance(50)
    assert registered.done()
    assert error_in(registered.result).code() == KafkaError._TIMED_OUT
