"""The answers to an admin client about topics, logs and their ends."""

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tarry.kafka.errors import error_of
from tarry.kafka.offsets import PendingAnswers
from tarry.kafka.topics import count_partitions
from tests.contracts.steps import CALL_S, commit, leave_open
from tests.support.contract import Kafka

if TYPE_CHECKING:
    from concurrent.futures import Future


def _done(kafka: Kafka, pending: PendingAnswers) -> PendingAnswers:
    kafka.until(lambda: pending.done, "the brokers answer")
    return pending


def _answer(kafka: Kafka, pending: PendingAnswers) -> list[int]:
    assert _done(kafka, pending).failures() == []
    return list(pending.answers().values())


def _trim(kafka: Kafka, topic: str, below: int) -> list[str]:
    """Delete records; return the failures."""
    return _done(kafka, kafka.offsets.trim({(topic, 0): below})).failures()


def _outcome(future: "Future[Any]") -> int | None:
    """The code of a future's error, None where it has none."""
    try:
        future.result(CALL_S)
    except KafkaException as exception:
        return error_of(exception).code()
    return None


def _described(kafka: Kafka, topic: str) -> "Future[Any]":
    wanted = TopicCollection([topic])
    return kafka.admin.describe_topics(wanted, include_authorized_operations=True, request_timeout=CALL_S)[topic]


def test_records_of_a_compacted_topic_cannot_be_deleted_before_its_policy_is_another(kafka: Kafka) -> None:
    for policy, code in (("compact", KafkaError.POLICY_VIOLATION), ("compact,delete", None)):
        topic = kafka.make_topic(cleanup_policy=policy)
        kafka.put_raw(topic, [], b"k", b"v")
        [future] = kafka.admin.delete_records([TopicPartition(topic, 0, 1)], request_timeout=CALL_S).values()
        assert _outcome(future) == code


def test_an_empty_log_begins_and_ends_at_zero(kafka: Kafka, topic: str) -> None:
    assert kafka.offsets.starts([(topic, 0)]) == {(topic, 0): 0}
    assert kafka.ends(topic) == (0, 0)


def test_deleting_records_moves_the_start_of_a_log(kafka: Kafka, topic: str) -> None:
    commit(kafka.producer(), topic, b"a", b"b", b"c")
    kafka.settled_end(topic)
    assert _trim(kafka, topic, 2) == []
    assert kafka.offsets.starts([(topic, 0)]) == {(topic, 0): 2}
    assert kafka.ends(topic) == (4, 4)


def test_the_start_of_a_log_never_goes_back(kafka: Kafka, topic: str) -> None:
    commit(kafka.producer(), topic, b"a", b"b", b"c")
    kafka.settled_end(topic)
    assert _trim(kafka, topic, 2) == []
    assert _trim(kafka, topic, 1) == []
    assert kafka.offsets.starts([(topic, 0)]) == {(topic, 0): 2}


def test_records_behind_the_end_cannot_be_deleted(kafka: Kafka, topic: str) -> None:
    assert len(_trim(kafka, topic, 1)) == 1
    assert kafka.offsets.starts([(topic, 0)]) == {(topic, 0): 0}


def test_the_first_offset_since_a_time_is_that_of_the_first_record_as_young(kafka: Kafka, topic: str) -> None:
    now_ms = kafka.clock.now_ms()
    producer = kafka.producer()
    producer.begin_transaction()
    for age_ms in (5_000, 3_000):
        producer.produce(topic, b"a", partition=0, timestamp=now_ms - age_ms)
    producer.commit_transaction(CALL_S)
    kafka.settled_end(topic)

    def since(at_ms: int) -> list[int]:
        return _answer(kafka, kafka.offsets.ask_since({(topic, 0): at_ms}))

    assert since(0) == since(now_ms - 5_000) == [0]
    assert since(now_ms - 4_000) == since(now_ms - 3_000) == [1]
    assert since(now_ms - 2_000) == [2]  # the marker, which is as young as the commit


def test_there_is_no_offset_since_a_time_after_all_records(kafka: Kafka, topic: str) -> None:
    assert _answer(kafka, kafka.offsets.ask_since({(topic, 0): 0})) == [-1]
    commit(kafka.producer(), topic, b"a")
    assert _answer(kafka, kafka.offsets.ask_since({(topic, 0): kafka.clock.now_ms() + 60_000})) == [-1]


def test_ends_are_asked_for_without_waiting_and_include_what_is_open(kafka: Kafka, topic: str) -> None:
    leave_open(kafka.producer(), topic, b"a", b"b")
    assert _answer(kafka, kafka.offsets.ask_ends([(topic, 0)])) == [2]


def test_a_topic_tells_its_settings(kafka: Kafka) -> None:
    wanted = {
        kafka.make_topic(max_message_bytes=777_777, cleanup_policy="compact", retention_ms=-1): (
            "777777",
            "compact",
            "-1",
        ),
        kafka.make_topic(message_timestamp_type="LogAppendTime"): ("1048588", "delete", "604800000"),
    }
    found = kafka.admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in wanted])
    for resource, future in found.items():
        values = {entry.name: entry.value for entry in future.result().values()}
        told = tuple(values[name] for name in ("max.message.bytes", "cleanup.policy", "retention.ms"))
        assert told == wanted[resource.name]
        assert values["retention.bytes"] == "-1"
        assert values["message.timestamp.type"] in ("CreateTime", "LogAppendTime")


def test_a_topic_that_does_not_exist_is_not_listed(kafka: Kafka, topic: str) -> None:
    known = kafka.admin.list_topics(timeout=CALL_S).topics
    assert topic in known
    assert "no-such-topic" not in known


def test_a_described_topic_tells_its_partitions_and_what_we_may_do(kafka: Kafka) -> None:
    topic = kafka.make_topic(3)
    found = _described(kafka, topic).result(CALL_S)
    assert len(found.partitions) == 3
    assert all(partition.leader for partition in found.partitions)
    assert found.authorized_operations is None or AclOperation.WRITE in found.authorized_operations


def test_a_topic_that_does_not_exist_or_never_can_is_not_described(kafka: Kafka) -> None:
    missing = kafka.name("missing")
    for _ in range(2):  # nor made by being asked for
        assert _outcome(_described(kafka, missing)) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert _outcome(_described(kafka, "a b")) == KafkaError.TOPIC_EXCEPTION


def test_a_producer_is_told_how_many_partitions_a_topic_has(kafka: Kafka) -> None:
    topic = kafka.make_topic(3)
    found = kafka.producer().list_topics(topic, CALL_S).topics[topic]
    assert found.error is None
    assert sorted(found.partitions) == [0, 1, 2]


def test_a_producer_that_asks_for_no_such_topic_is_told_so_and_makes_none(kafka: Kafka) -> None:
    producer, missing = kafka.producer(), kafka.name("missing")
    for _ in range(2):
        error = producer.list_topics(missing, CALL_S).topics[missing].error
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_producer_that_asks_for_an_impossible_name_is_told_so(kafka: Kafka) -> None:
    error = kafka.producer().list_topics("a b", CALL_S).topics["a b"].error
    assert error is not None
    assert error.code() == KafkaError.TOPIC_EXCEPTION


def test_a_topic_is_made_once(kafka: Kafka) -> None:
    name = kafka.name("topic")
    outcomes = [_outcome(kafka.admin.create_topics([NewTopic(name, 1, 1)])[name]) for _ in range(2)]
    assert outcomes == [None, KafkaError.TOPIC_ALREADY_EXISTS]


def test_no_topic_is_made_by_a_name_that_is_not_allowed(kafka: Kafka) -> None:
    assert _outcome(kafka.admin.create_topics([NewTopic("a b", 1, 1)])["a b"]) == KafkaError.TOPIC_EXCEPTION


def test_the_ends_of_a_topic_that_does_not_exist_are_refused(kafka: Kafka) -> None:
    assert len(_done(kafka, kafka.offsets.ask_ends([(kafka.name("missing"), 0)])).failures()) == 1


def test_records_of_a_topic_that_does_not_exist_cannot_be_deleted(kafka: Kafka) -> None:
    request = TopicPartition(kafka.name("missing"), 0, 1)
    [future] = kafka.admin.delete_records([request], request_timeout=CALL_S).values()
    assert _outcome(future) is not None


def test_counting_partitions_tells_what_is_there_and_makes_no_topic(kafka: Kafka) -> None:
    topic = kafka.make_topic(partitions=3)
    missing = f"{topic}.missing"
    assert count_partitions(kafka.admin, [topic, missing, "not/legal", ""], CALL_S) == {topic: 3}
    assert missing not in kafka.admin.list_topics(timeout=CALL_S).topics
