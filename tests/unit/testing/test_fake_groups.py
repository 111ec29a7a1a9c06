"""Faults of group members: their processes die, freeze and continue, or do not poll."""

from typing import Literal

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from tarry.testing import FakeBroker, Fate, ManualClock, Step
from tests.unit.testing.stage import GROUP, TopicStage, error_in

Protocol = Literal["classic", "consumer"]
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])

SESSION_MS = 6_000


@both_protocols
def test_a_second_member_takes_its_share(stage: TopicStage, protocol: Protocol) -> None:
    first = stage.member("a", protocol)
    stage.settle(first)
    assert first.partitions == [0, 1]
    second = stage.member("b", protocol)
    stage.settle(first, second)
    assert sorted([first.partitions, second.partitions]) == [[0], [1]]


@both_protocols
def test_a_dead_members_partitions_come_with_the_end_of_its_session(stage: TopicStage, protocol: Protocol) -> None:
    first, second = stage.member("a", protocol), stage.member("b", protocol)
    stage.settle(first, second)
    stage.broker.kill("a")
    stage.clock.advance(SESSION_MS - SESSION_MS // 3 - 1)
    stage.settle(second)
    assert len(second.partitions) == 1
    stage.clock.advance(SESSION_MS // 3 + 1)
    stage.settle(second)
    assert second.partitions == [0, 1]


@both_protocols
def test_a_frozen_member_that_goes_on_in_time_is_not_missed(stage: TopicStage, protocol: Protocol) -> None:
    first, second = stage.member("a", protocol), stage.member("b", protocol)
    stage.settle(first, second)
    told = len(second.told)
    stage.broker.freeze("a")
    stage.clock.advance(3_000)
    stage.broker.thaw("a")
    stage.clock.advance(20_000)
    stage.settle(first, second)
    assert len(second.told) == told
    first.commit(7)


@both_protocols
def test_a_frozen_member_that_goes_on_too_late_has_lost_its_partitions(stage: TopicStage, protocol: Protocol) -> None:
    first, second = stage.member("a", protocol), stage.member("b", protocol)
    stage.settle(first, second)
    mine = first.partitions
    stage.broker.freeze("a")
    stage.clock.advance(SESSION_MS)
    stage.settle(second)
    assert second.partitions == [0, 1]
    stage.broker.thaw("a")
    assert error_in(first.commit, 7).code() == KafkaError.UNKNOWN_MEMBER_ID
    stage.settle(first, second)
    assert ("lost", mine) in first.told
    assert len(first.partitions) == len(second.partitions) == 1


@both_protocols
def test_a_member_that_does_not_poll_for_too_long_is_out(stage: TopicStage, protocol: Protocol) -> None:
    first, second = stage.member("a", protocol), stage.member("b", protocol)
    stage.settle(first, second)
    for _ in range(130):
        stage.clock.advance(1_000)
        stage.settle(second, rounds=1)
    stage.settle(second)
    assert second.partitions == [0, 1]
    first.poll()
    assert [error.code() for error in first.errors] == [KafkaError._MAX_POLL_EXCEEDED]
    stage.settle(first, second)
    assert "lost" in [what for what, _ in first.told]
    assert len(first.partitions) == 1


@both_protocols
def test_partitions_added_to_a_topic_are_assigned(stage: TopicStage, protocol: Protocol) -> None:
    first = stage.member("a", protocol)
    stage.settle(first)
    stage.broker.clients("admin").admin({}).create_partitions([NewPartitions("t", 3)])["t"].result()
    stage.settle(first)
    assert first.partitions == [0, 1, 2]


def test_a_generation_that_moves_between_metadata_and_offsets_refuses_them(stage: TopicStage) -> None:
    first = stage.member("a", "classic")
    stage.settle(first)
    second = stage.member("b", "classic")

    def rebalance(step: Step) -> None:
        if (step.call, step.phase) == ("send_offsets", "before"):
            stage.settle(first, second)

    producer = stage.producer(process="a", hook=rebalance)
    producer.begin_transaction()
    metadata = first.consumer.consumer_group_metadata()
    error = error_in(producer.send_offsets_to_transaction, [TopicPartition("t", 0, 7)], metadata)
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.ILLEGAL_GENERATION, True)
    producer.abort_transaction(-1)
    assert stage.committed() == {}


def test_an_epoch_that_moves_between_metadata_and_offsets_refuses_them(stage: TopicStage) -> None:
    first = stage.member("a", "consumer")
    stage.settle(first)

    def rebalance(step: Step) -> None:
        if (step.call, step.phase) == ("send_offsets", "before"):
            stage.settle(first, stage.member("b", "consumer"))

    producer = stage.producer(process="a", hook=rebalance)
    producer.begin_transaction()
    metadata = first.consumer.consumer_group_metadata()
    error = error_in(producer.send_offsets_to_transaction, [TopicPartition("t", 0, 7)], metadata)
    assert (error.code(), error.txn_requires_abort()) == (KafkaError.ILLEGAL_GENERATION, True)


@both_protocols
def test_a_commit_whose_answer_is_lost_fails_and_is_done(stage: TopicStage, protocol: Protocol) -> None:
    first = stage.member("a", protocol)
    stage.settle(first)
    stage.broker.clients("a", lambda step: Fate.LOSE_ANSWER if (step.call, step.phase) == ("commit", "after") else None)
    assert error_in(first.commit, 7).code() == KafkaError._TRANSPORT
    assert stage.committed() == {0: (7, "")}


def test_a_commit_waits_for_a_coordinator_that_is_away_for_a_session_and_no_longer(stage: TopicStage) -> None:
    first = stage.member("a", "classic")
    stage.settle(first)
    stage.broker.coordinator_away(GROUP, 4_000)
    first.commit(7)
    stage.broker.coordinator_away(GROUP, 60_000)
    before_ms = stage.clock.monotonic_ms()
    assert error_in(first.commit, 8).code() == KafkaError._WAIT_COORD
    assert stage.clock.monotonic_ms() - before_ms == SESSION_MS


def test_a_classic_member_of_a_cluster_that_is_away_for_a_session_has_lost_its_partitions(stage: TopicStage) -> None:
    first = stage.member("a", "classic")
    stage.settle(first)
    stage.broker.stop()
    stage.clock.advance(SESSION_MS - 1)
    stage.settle(first)
    assert first.partitions == [0, 1]
    stage.clock.advance(1)
    stage.settle(first)
    assert first.told[-1] == ("lost", [0, 1])
    stage.broker.start()
    stage.settle(first)
    assert first.partitions == []
    stage.clock.advance(2 * SESSION_MS)  # the session of who it was before begins anew with the cluster
    stage.settle(first)
    assert first.partitions == [0, 1]


@both_protocols
def test_offsets_that_expired_are_gone(stage: TopicStage, protocol: Protocol) -> None:
    first = stage.member("a", protocol)
    stage.settle(first)
    first.commit(7, "metadata")
    assert stage.committed() == {0: (7, "metadata")}
    stage.broker.expire_offsets(GROUP)
    assert stage.committed() == {}


def test_a_later_commit_outside_is_not_undone_by_an_older_transaction(stage: TopicStage) -> None:
    first = stage.member("a", "classic")
    stage.settle(first)
    producer = stage.producer()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], first.consumer.consumer_group_metadata())
    first.commit(8)
    producer.commit_transaction(-1)
    assert stage.committed() == {0: (8, "")}


def test_a_dead_owners_open_transaction_keeps_committed_offsets_unstable(clock: ManualClock) -> None:
    stage = TopicStage(clock, FakeBroker(clock, marker_lag_ms=(0, 20)))
    first = stage.member("a", "classic")
    stage.settle(first)
    producer = stage.producer(process="a")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 7)], first.consumer.consumer_group_metadata())
    stage.broker.kill("a")
    assert error_in(stage.committed, "read_committed").code() == KafkaError._TIMED_OUT
    stage.producer(process="b")
    assert stage.committed("read_committed") == {}
