"""Makes and deletes topics, and reads one from beginning to end: few records, with all their headers."""

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from tarry.kafka.errors import PASSING, error_of
from tests.support.brokers import wait_until

_QUIET_S: Final = 30.0
_NOT_YET: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)


def make_topics(admin: AdminClient, names: Iterable[str], partitions: int = 1, **config: str) -> None:
    """Create topics, and wait until their leaders answer; names of settings have `_` for dots."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    futures = admin.create_topics([NewTopic(name, partitions, 1, config=settings) for name in names])
    for future in futures.values():
        future.result(30)
    wait_until(lambda: all(count_led(admin, name) == partitions for name in futures), f"{[*futures]} are known")
    wait_until(lambda: all(is_answered(admin, name, partitions) for name in futures), f"the leaders of {[*futures]}")


def is_answered(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Return whether the leaders of a new topic know that they are: the metadata may say so a moment before."""
    latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    try:
        asked = admin.list_offsets({TopicPartition(topic, partition): latest for partition in range(partitions)})
        for future in asked.values():
            future.result(30)
    except KafkaException as exception:
        if error_of(exception).name() in PASSING:
            return False
        raise
    return True


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: count_led(admin, topic) == 0, f"{topic} is gone")


def read_topic(bootstrap: str, topic: str, *, decided: bool = False) -> "list[Message[Any, Any]]":
    """Return all records that a read_committed reader gets up to the last stable offset, partition by partition.

    Args:
        bootstrap: the broker.
        topic: the topic.
        decided: read up to the high watermark instead, because a commit may be answered before its markers are written.
            Not while a transaction is open.

    Raises:
        AssertionError: no record came for half a minute, and the end is not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests.topics",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        written = ends_of(bootstrap, topic, committed=False) if decided else {}
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        records = []
        at_end: set[int | None] = set()
        while len(at_end) < len(partitions):
            message = consumer.poll(_QUIET_S)
            if message is None:
                raise AssertionError(f"{topic} has no end within {_QUIET_S:g} s")
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= written.get(message.partition() or 0, 0):
                    at_end.add(message.partition())
            else:
                raise AssertionError(f"{topic}: {error}")
        return sorted(records, key=lambda record: (record.partition() or 0, record.offset() or 0))
    finally:
        consumer.close()


def count_led(admin: AdminClient, topic: str) -> int:
    """Return how many partitions of a topic have a leader; 0 if there is no such topic.

    This asks about one topic: the broker that tests share has thousands of partitions, and tests ask often.
    """
    [future] = admin.describe_topics(TopicCollection([topic]), request_timeout=5).values()
    try:
        partitions = future.result().partitions
    except KafkaException as exception:
        if exception.args[0].code() in _NOT_YET:
            return 0
        raise
    return len([one for one in partitions if one.leader is not None and one.leader.id >= 0])


def ends_of(bootstrap: str, topic: str, *, committed: bool) -> dict[int, int]:
    """Return the ends of a topic's partitions.

    Args:
        bootstrap: the broker.
        topic: the topic.
        committed: whether to return the last stable offsets instead of the high watermarks.
    """
    isolation = "read_committed" if committed else "read_uncommitted"
    return {partition: end for partition, (_, end) in _watermarks(bootstrap, topic, isolation).items()}


def starts_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the offsets below which a topic's partitions are trimmed."""
    return {partition: start for partition, (start, _) in _watermarks(bootstrap, topic, "read_uncommitted").items()}


def _watermarks(bootstrap: str, topic: str, isolation: str) -> dict[int, tuple[int, int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests.topics", "isolation.level": isolation})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        return {each: consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30) for each in partitions}
    finally:
        consumer.close()
