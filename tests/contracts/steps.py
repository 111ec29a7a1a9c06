"""Steps that most contract tests share: write in transactions, read as the service does, examine an error."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tarry.kafka.errors import error_of
from tarry.kafka.types import Place
from tests.support.contract import Kafka

CALL_S = 20.0


def refused(call: Callable[..., object], *arguments: Any) -> KafkaError:
    """The error with which a call is refused; fails the test if it is not."""
    with pytest.raises(KafkaException) as refusal:
        call(*arguments)
    return error_of(refusal.value)


def commit(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write records in a transaction, and commit it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, b"key", partition)
    producer.commit_transaction(CALL_S)


def leave_open(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write records in a transaction, and leave it open when the brokers have them."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, b"key", partition)
    assert producer.flush(CALL_S) == 0


def abort(producer: Producer, topic: str, *values: bytes) -> None:
    """Write records in a transaction, and abort it when the brokers have them."""
    leave_open(producer, topic, *values)
    producer.abort_transaction(CALL_S)


class Reports(list[tuple[bytes | None, int]]):
    """Delivery reports: a record's value, and the code of its error (0 where there is none)."""

    def __call__(self, error: KafkaError | None, record: Any) -> None:
        self.append((record.value(), error.code() if error is not None else 0))


class Reading:
    """A reader of ours: read_committed, without a group, and falling off the log is an error.

    Args:
        kafka: where.
        starts: where it begins, by partition.
    """

    def __init__(self, kafka: Kafka, starts: Mapping[Place, int]) -> None:
        self._kafka = kafka
        self.consumer = kafka.consumer(kafka.cluster.reader())
        self.records: list[Message[Any, Any]] = []
        self.ends: dict[Place, int] = {}
        """The last end-of-partition event of each."""
        self.errors: list[KafkaError] = []
        self.open(starts)

    def open(self, starts: Mapping[Place, int]) -> None:
        self.consumer.incremental_assign([TopicPartition(*place, at) for place, at in starts.items()])

    def shut(self, *places: Place) -> None:
        self.consumer.incremental_unassign([TopicPartition(*place) for place in places])

    def look(self, most: int = 1_000) -> None:
        for record in self.consumer.consume(most, 0.05):
            error = record.error()
            if error is None:
                self.records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[record.topic() or "", record.partition() or 0] = record.offset() or 0
            else:
                self.errors.append(error)

    def until_end(self, topic: str, end: int, partition: int = 0) -> list[bytes | None]:
        """Read to an end of a partition, and return all values that have come."""

        def there() -> bool:
            self.look()
            return self.ends.get((topic, partition)) == end

        self._kafka.until(there, f"an end of {topic}/{partition} at {end}; read {self.values}, ends {self.ends}")
        return self.values

    def until_values(self, count: int) -> list[bytes | None]:
        """Read until so many records have come: where an aborted transaction may move the end, once more."""

        def there() -> bool:
            self.look()
            return len(self.records) >= count

        self._kafka.until(there, f"{count} records")
        return self.values

    def until_error(self) -> KafkaError:
        """Read until an error comes that is no end of a partition."""

        def there() -> bool:
            self.look()
            return bool(self.errors)

        self._kafka.until(there, f"an error; read {self.values}, ends {self.ends}")
        return self.errors[0]

    @property
    def values(self) -> list[bytes | None]:
        return [record.value() for record in self.records]

    @property
    def offsets(self) -> list[int | None]:
        return [record.offset() for record in self.records]
