"""Static members: one instance, one member; it keeps its partitions while it is away for a moment."""

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tarry.errors import AbortableError, FatalError
from tarry.kafka.errors import translate, translate_group
from tarry.kafka.group import GroupAdmin
from tests.contracts.members import Group, Member
from tests.contracts.steps import CALL_S, refused
from tests.support.contract import Kafka

FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
IN_USE = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()


@pytest.fixture(params=["classic", "consumer"])
def group(kafka: Kafka, request: pytest.FixtureRequest) -> Group:
    return Group(kafka, request.param)


@pytest.fixture
def classic(kafka: Kafka) -> Group:
    return Group(kafka, "classic")


@pytest.fixture
def modern(kafka: Kafka) -> Group:
    return Group(kafka, "consumer")


def _until_error(kafka: Kafka, member: Member, *others: Member) -> KafkaError:
    def there() -> bool:
        for one in (member, *others):
            one.poll()
        return bool(member.errors)

    kafka.until(there, "an error")
    return member.errors[0]


def test_a_second_member_of_the_same_instance_takes_over_at_once_from_a_classic_one(
    kafka: Kafka, classic: Group
) -> None:
    first = classic.joined("one")
    second = classic.joined("one")
    error = _until_error(kafka, first)
    assert error.code() == KafkaError._FATAL
    assert FENCED in error.str()
    assert second.told == [("assigned", [0, 1])]
    second.commit(7)


def test_a_classic_member_whose_instance_was_taken_over_is_not_called_back_about_its_partitions(
    kafka: Kafka, classic: Group
) -> None:
    first = classic.joined("one")
    classic.joined("one")
    _until_error(kafka, first)
    first.leave()
    assert first.calls == [("assigned", [0, 1])]


def test_the_others_do_not_notice_that_a_classic_instance_was_taken_over(kafka: Kafka, classic: Group) -> None:
    first, other = classic.join("one"), classic.join("two")
    classic.until_owned({first: 1, other: 1})
    owned, told = first.owned, list(other.calls)
    second = classic.join("one")
    classic.until_owned({second: 1, other: 1})
    classic.poll(second, other, for_s=1.0)
    assert second.owned == owned
    assert other.calls == told


def test_a_classic_member_whose_instance_was_taken_over_commits_nothing(kafka: Kafka, classic: Group) -> None:
    first = classic.joined("one")
    metadata = first.consumer.consumer_group_metadata()
    classic.joined("one")
    producer = kafka.producer()
    producer.begin_transaction()
    offsets = [TopicPartition(classic.topic, 0, 7)]
    error = refused(producer.send_offsets_to_transaction, offsets, metadata, CALL_S)
    assert error.code() == KafkaError.FENCED_INSTANCE_ID
    assert isinstance(translate(error, "send offsets"), AbortableError)
    _until_error(kafka, first)
    error = refused(first.commit, 7)
    assert error.code() == KafkaError._FATAL
    assert isinstance(translate_group(error, "commit"), FatalError)
    assert classic.asked()[0] < 0


def test_a_second_member_of_the_same_instance_is_refused_by_the_consumer_protocol(kafka: Kafka, modern: Group) -> None:
    first = modern.joined("one")
    second = modern.join("one")
    error = _until_error(kafka, second, first)
    assert error.code() == KafkaError._FATAL
    assert IN_USE in error.str()
    assert second.calls == []
    assert first.errors == []
    first.commit(7)


def test_an_instance_that_was_refused_can_join_when_the_other_has_left(kafka: Kafka, modern: Group) -> None:
    first = modern.joined("one")
    refused_one = modern.join("one")
    _until_error(kafka, refused_one, first)
    refused_one.leave()
    first.leave()
    second = modern.joined("one")
    assert second.told == [("assigned", [0, 1])]


def test_an_instance_that_leaves_keeps_its_partitions_and_gets_them_back(group: Group) -> None:
    first, other = group.join("one"), group.join("two")
    group.until_owned({first: 1, other: 1})
    owned, told = first.owned, list(other.calls)
    first.leave()
    assert first.told[-1] == ("revoked", sorted(owned))
    group.poll(other, for_s=1.0)
    assert other.calls == told
    second = group.join("one")
    group.until_owned({second: 1, other: 1})
    assert second.owned == owned
    assert other.calls == told


def test_an_instance_is_a_member_until_its_session_ends_even_if_its_process_has_died(
    kafka: Kafka, classic: Group
) -> None:
    asker = GroupAdmin(kafka.cluster, classic.name)
    first = classic.joined("one")
    assert asker.member_of("one") == first.consumer.memberid()
    assert asker.member_of("two") is None
    second = classic.joined("one")
    assert FENCED in _until_error(kafka, first, second).str()
    member_id = second.consumer.memberid()
    second.leave()
    assert asker.member_of("one") == member_id
    kafka.until(lambda: asker.member_of("one") is None, "its session ends")
