"""Processes that end without a word, or stand still for a while: what becomes of what they own and have open."""

from functools import partial

import pytest
from confluent_kafka import KafkaError

from tarry.kafka.settings import SESSION_TIMEOUT_MS
from tests.contracts.lives import own
from tests.contracts.members import CONSUMER_SINCE, PROTOCOLS, Group
from tests.contracts.steps import commit, refused
from tests.support.contract import Kafka, Process

IN_USE = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()


@pytest.fixture
def groups(kafka: Kafka) -> list[Group]:
    """One of each protocol: sessions of both can end in the same time."""
    return [Group(kafka, protocol) for protocol in PROTOCOLS if protocol == "classic" or kafka.has(CONSUMER_SINCE)]


def _owner(kafka: Kafka, group: Group, instance: str | None = None) -> Process:
    """Another process that owns both partitions, with a record and an offset of partition 0 in an open transaction.

    Its transactional id is the group's name.
    """
    return kafka.start(
        partial(
            own,
            topic=group.topic,
            group=group.name,
            protocol=group.protocol,
            instance=instance,
            transactional_id=group.name,
        )
    )


def _both_stand(group: Group) -> bool:
    return group.asked() == group.asked(1) == (1, "")


def test_an_owner_that_lives_commits_plainly_and_in_its_transaction(kafka: Kafka, groups: list[Group]) -> None:
    for group in groups:
        assert _owner(kafka, group).ask() == "committed committed"
        kafka.until(partial(_both_stand, group), "both offsets are there")


def test_the_partitions_of_a_dead_member_are_free_when_its_session_ends(kafka: Kafka, groups: list[Group]) -> None:
    owners = [_owner(kafka, group) for group in groups]
    for owner in owners:
        owner.kill()
    dead_since_ms = kafka.clock.monotonic_ms()
    for group in groups:
        member = group.joined()
        assert kafka.clock.monotonic_ms() - dead_since_ms > SESSION_TIMEOUT_MS / 2
        # What it had open is open still, and bars the way until somebody fences it.
        assert kafka.ends(group.topic) == (0, 1)
        assert refused(member.committed, 0, 0.5).code() == KafkaError._TIMED_OUT
        kafka.producer(group.name)
        assert kafka.ends(group.topic) == (2, 2)
        assert member.committed()[0] < 0


def test_a_classic_instance_takes_its_dead_predecessor_s_place_at_once(kafka: Kafka) -> None:
    group = Group(kafka, "classic")
    _owner(kafka, group, "one").kill()
    dead_since_ms = kafka.clock.monotonic_ms()
    group.joined("one")
    assert kafka.clock.monotonic_ms() - dead_since_ms < SESSION_TIMEOUT_MS / 2


def test_the_consumer_protocol_keeps_a_dead_instance_until_its_session_ends(kafka: Kafka) -> None:
    group = Group(kafka, "consumer")
    _owner(kafka, group, "one").kill()
    member = group.join("one")
    refusals = 0

    def joined() -> bool:
        nonlocal member, refusals
        member.poll()
        if member.errors:
            assert IN_USE in member.errors[0].str()
            refusals += 1
            member.leave()
            member = group.join("one")
        return len(member.owned) == 2

    kafka.until(joined, "the instance is free")
    assert refusals > 0


def test_a_process_that_was_frozen_too_long_is_fenced(kafka: Kafka, groups: list[Group]) -> None:
    zombies = [_owner(kafka, group) for group in groups]
    for zombie in zombies:
        zombie.freeze()
    for group, zombie in zip(groups, zombies, strict=True):
        member = group.joined()
        producer = kafka.producer(group.name)
        member.commit(7)
        zombie.thaw()
        assert zombie.ask() == "RetriableError FatalError"
        assert member.committed()[0] == group.asked()[0] == 7
        assert group.asked(1)[0] < 0
        commit(producer, group.topic, b"a")
        assert kafka.settled_end(group.topic) == 4
