"""Groups: who owns which partitions, the order of the callbacks, and whose commits are accepted."""

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tarry.errors import AbortableError, RetriableError
from tarry.kafka.errors import translate, translate_group
from tarry.kafka.membership import Membership
from tarry.kafka.types import Place
from tests.contracts.members import Group, Member
from tests.contracts.steps import CALL_S, commit, refused
from tests.support.contract import Kafka


@pytest.fixture(params=["classic", "consumer"])
def group(kafka: Kafka, request: pytest.FixtureRequest) -> Group:
    return Group(kafka, request.param)


def _send(kafka: Kafka, offset: TopicPartition, metadata: object) -> None:
    """Send an offset in a transaction, and commit it."""
    producer = kafka.producer()
    producer.begin_transaction()
    producer.send_offsets_to_transaction([offset], metadata, CALL_S)
    producer.commit_transaction(CALL_S)


def _two(group: Group) -> tuple[Member, Member]:
    """A member that had all, and one that came later: each has one partition."""
    first = group.joined()
    second = group.join()
    group.until_owned({first: 1, second: 1})
    return first, second


# -- who owns what ---------------------------------------------------------------------------------------------------


def test_the_only_member_owns_all_partitions(group: Group) -> None:
    member = group.joined()
    assert member.told == [("assigned", [0, 1])]
    assert member.errors == []


def test_a_second_member_gets_its_share_after_the_first_has_given_it_up(group: Group) -> None:
    first, second = _two(group)
    given = sorted(second.owned)
    kept = sorted(first.owned)
    assert second.told == [("assigned", given)]
    if group.protocol == "classic":
        assert first.told == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", kept)]
    else:
        assert first.told == [("assigned", [0, 1]), ("revoked", given)]


def test_a_member_that_leaves_gives_up_its_partitions_and_the_others_get_them(group: Group) -> None:
    first, second = _two(group)
    given = sorted(second.owned)
    second.leave()
    assert second.told[-1] == ("revoked", given)
    group.until_owned({first: 2})
    assert not first.errors


def test_a_member_that_gets_nothing_is_told_so_by_the_classic_protocol_alone(group: Group, kafka: Kafka) -> None:
    first, second = _two(group)
    third = group.join()
    members = (first, second, third)
    kafka.until(lambda: _polled(*members).consumer.consumer_group_metadata() != third.stranger, "it joins")
    kafka.until(lambda: _polled(*members) and sorted(len(one.owned) for one in members) == [0, 1, 1], "one has none")
    group.poll(*members, for_s=1)
    if group.protocol == "classic":
        [idle] = [member for member in members if not member.owned]
        assert idle.calls[-1] == ("assigned", [])
    else:
        # Which of them is idle is up to their ids.
        assert third.calls[:1] in ([], [("assigned", sorted(third.owned))])
        assert third.calls != [("assigned", [])]


def _polled(*members: Member) -> Member:
    for member in members:
        member.poll()
    return members[-1]


def test_topics_are_shared_out_in_ranges(kafka: Kafka, group: Group) -> None:
    group.topic = kafka.make_topic(5)
    first = group.join()
    group.until_owned({first: 5})
    second = group.join()
    kafka.until(lambda: {len(_polled(first, second).owned), len(first.owned)} == {2, 3}, "each has its share")
    assert sorted((sorted(first.owned), sorted(second.owned))) == [[0, 1, 2], [3, 4]]


def test_the_partitions_of_several_topics_are_shared_out_together(kafka: Kafka, group: Group) -> None:
    group.topic, other = kafka.make_topic(3), kafka.make_topic(2)
    there = {*((group.topic, number) for number in range(3)), (other, 0), (other, 1)}
    members: list[Member] = []

    def settled() -> bool:
        _polled(*members)
        owned = [place for member in members for place in member.places]
        each = len(there) // len(members)
        return sorted(owned) == sorted(there) and all(0 <= len(one.places) - each <= 1 for one in members)

    for number in range(1, 6):
        members.append(group.join(others=[other]))
        kafka.until(settled, f"each of {number} members has its share")
    members.pop(1).leave()
    members.pop().leave()
    kafka.until(settled, "those that are left have all")


def test_members_that_prefer_different_assignors_belong_to_one_group(kafka: Kafka, group: Group) -> None:
    """For example while an intake is added: one service after another starts with the new configuration."""
    other = kafka.make_topic(2)
    first = group.joined()
    second = group.join(others=[other])

    def owned() -> list[tuple[str, int]]:
        _polled(first, second)
        return sorted([*first.places, *second.places])

    there = sorted((topic, number) for topic in (group.topic, other) for number in (0, 1))
    kafka.until(lambda: owned() == there and {one for one, _ in second.places} >= {other}, "both share all")
    first.leave()
    kafka.until(lambda: sorted(_polled(second).places) == there, "the second one has all")
    assert not second.errors


def test_a_member_reads_nothing_of_what_it_was_assigned_paused(group: Group, kafka: Kafka) -> None:
    member = group.joined()
    commit(kafka.producer(), group.topic, b"a")
    kafka.settled_end(group.topic)
    for _ in range(10):
        assert member.consumer.poll(0.05) is None


# -- metadata --------------------------------------------------------------------------------------------------------


def test_group_metadata_is_another_once_a_member_has_joined(group: Group) -> None:
    member = group.join()
    assert member.consumer.consumer_group_metadata() == member.stranger
    group.until_owned({member: 2})
    metadata = member.consumer.consumer_group_metadata()
    assert metadata != member.stranger
    assert metadata == member.consumer.consumer_group_metadata()


# -- plain commits ---------------------------------------------------------------------------------------------------


def test_a_member_commits_offsets_with_metadata(group: Group) -> None:
    member = group.joined()
    assert group.asked()[0] < 0
    member.commit(7, metadata="some")
    assert group.asked() == member.committed() == (7, "some")


def test_a_member_may_commit_offsets_of_topics_that_it_does_not_subscribe_to(group: Group, kafka: Kafka) -> None:
    another = kafka.make_topic()
    group.joined().commit(7, topic=another)
    assert group.asked(topic=another)[0] == 7


def test_a_member_may_commit_offsets_of_partitions_that_others_own(group: Group) -> None:
    first, second = _two(group)
    [partition] = second.owned
    first.commit(7, partition)
    assert group.asked(partition)[0] == 7


def test_a_plain_commit_by_a_stranger_to_a_group_with_members_is_refused(group: Group, kafka: Kafka) -> None:
    group.joined()
    stranger = kafka.consumer(kafka.cluster.member(group.name, group.protocol, None))
    error = refused(lambda: stranger.commit(offsets=[TopicPartition(group.topic, 0, 1)], asynchronous=False))
    assert error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert isinstance(translate_group(error, "commit"), RetriableError)


def test_a_member_may_still_commit_while_its_partitions_are_taken_from_it(group: Group, kafka: Kafka) -> None:
    first = group.joined()

    def release() -> None:
        first.commit(7)
        _send(kafka, TopicPartition(group.topic, 1, 8), first.consumer.consumer_group_metadata())

    first.before_giving_up.append(release)
    second = group.join()
    group.until_owned({first: 1, second: 1})
    assert first.before_giving_up == []
    assert (first.committed(0)[0], first.committed(1)[0]) == (7, 8)


def test_a_member_may_still_commit_while_it_leaves(group: Group, kafka: Kafka) -> None:
    member = group.joined()
    metadata = member.consumer.consumer_group_metadata
    member.before_giving_up.append(lambda: _send(kafka, TopicPartition(group.topic, 0, 8), metadata()))
    member.leave()
    assert member.before_giving_up == []
    kafka.until(lambda: group.asked()[0] == 8, "the offset is there")


# -- offsets in transactions -----------------------------------------------------------------------------------------


def test_offsets_in_a_transaction_need_the_metadata_of_now(group: Group, kafka: Kafka) -> None:
    first = group.joined()
    before = first.consumer.consumer_group_metadata()
    second = group.join()
    group.until_owned({first: 1, second: 1})
    producer, offsets = kafka.producer(), [TopicPartition(group.topic, 0, 7)]
    producer.begin_transaction()
    error = refused(producer.send_offsets_to_transaction, offsets, before, CALL_S)
    assert error.code() == KafkaError.ILLEGAL_GENERATION
    assert isinstance(translate(error, "send offsets"), AbortableError)
    producer.abort_transaction(CALL_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, first.consumer.consumer_group_metadata(), CALL_S)
    producer.commit_transaction(CALL_S)
    assert first.committed()[0] == 7


def test_offsets_in_a_transaction_are_refused_with_the_metadata_of_one_that_left(group: Group, kafka: Kafka) -> None:
    first, second = _two(group)
    gone = second.consumer.consumer_group_metadata()
    second.leave()
    group.until_owned({first: 2})
    error = refused(_send, kafka, TopicPartition(group.topic, 0, 7), gone)
    assert error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert isinstance(translate(error, "send offsets"), AbortableError)


def test_offsets_in_a_transaction_by_a_stranger_are_taken_by_classic_groups_alone(group: Group, kafka: Kafka) -> None:
    member = group.joined()
    stranger = kafka.consumer(kafka.cluster.member(group.name, group.protocol, None)).consumer_group_metadata()
    offset = TopicPartition(group.topic, 0, 7)
    if group.protocol == "classic":
        # Kafka keeps this door open for clients of before KIP-447: fencing must not rest on the group alone.
        _send(kafka, offset, stranger)
        assert member.committed()[0] == 7
    else:
        assert refused(_send, kafka, offset, stranger).code() == KafkaError.UNKNOWN_MEMBER_ID


class _Nobody:
    """Is told of partitions, and does nothing with them."""

    def __init__(self) -> None:
        self.owned: list[Place] = []

    def assigned(self, places: Sequence[Place]) -> None:
        self.owned += places

    def revoked(self, places: Sequence[Place]) -> None:
        self.owned = [place for place in self.owned if place not in places]

    lost = revoked


def test_our_own_member_shows_a_transaction_no_metadata_of_a_stranger(group: Group, kafka: Kafka) -> None:
    properties = kafka.cluster.member(group.name, group.protocol, None)
    membership = Membership(kafka.cluster.clients, properties, [group.topic], lambda _text: None)
    told = _Nobody()
    membership.join(told)
    kafka.at_the_end(membership.close)
    with pytest.raises(AbortableError, match="no member of group"):
        membership.metadata()

    def has_all() -> bool:
        membership.poll()
        return len(told.owned) == 2

    kafka.until(has_all, "it has all partitions")
    _send(kafka, TopicPartition(group.topic, 0, 7), membership.metadata())
    kafka.until(lambda: group.asked()[0] == 7, "the offset is there")
