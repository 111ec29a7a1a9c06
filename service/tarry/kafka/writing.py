"""Writing one record and waiting until all replicas have it: for decisions of people, which are rare."""

from confluent_kafka import KafkaError, KafkaException, Message

from tarry.errors import RetriableError, UsageError
from tarry.kafka.errors import error_of, translate_group
from tarry.kafka.rights import DENIED
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place

ANSWER_WITHIN_S = 10.0


def write_record(cluster: Cluster, log: Place, key: bytes, value: bytes, lost: str) -> int:
    """Write a record; return its offset. All replicas have it when this returns.

    Args:
        cluster: the Kafka cluster.
        log: topic and partition.
        key: of the record.
        value: of the record.
        lost: what a user who may not write there cannot do, for the error.

    Raises:
        UsageError: this user must not write to the topic.
        RetriableError: no acknowledgement. The record may have been written.
        FatalError: Kafka refused it.
    """
    topic, partition = log
    answers: list[tuple[KafkaError | None, Message]] = []
    producer = cluster.clients.producer(cluster.publisher())
    try:
        producer.produce(topic, value, key, partition, on_delivery=lambda *answer: answers.append(answer))
        producer.flush(ANSWER_WITHIN_S)
    except KafkaException as exception:
        raise translate_group(error_of(exception), f"write to {topic}") from exception
    finally:
        producer.close()
    if not answers:
        raise RetriableError(f"could not write to {topic}: no acknowledgement within {ANSWER_WITHIN_S:g} s")
    error, record = answers[0]
    if error is None:
        return record.offset() or 0
    if error.code() in DENIED:
        raise UsageError(f"this user may not write to {topic} (WRITE), and so {lost}")
    if error.code() == KafkaError._MSG_TIMED_OUT:
        raise RetriableError(f"could not write to {topic}: {error.str()}", error.name())
    raise translate_group(error, f"write to {topic}")
