"""Used by all examples: command-line options, creation of topics, and a reader."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterator


def options(description: str | None) -> ArgumentParser:
    """A parser with the options that all examples have."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT", help="a Kafka broker")
    parser.add_argument("--intake", default="tarry.delayed", metavar="TOPIC", help="an intake that the service serves")
    parser.add_argument("--prefix", default="example", metavar="P", help="prefix of the topics that it creates")
    return parser


def check_served(servers: str, intake: str) -> None:
    """Make sure that a service has created the intake: a broker may create a missing topic, with other settings.

    Raises:
        SystemExit: it does not exist, or no broker answers.
    """
    try:
        topics = AdminClient({"bootstrap.servers": servers, "log_level": 2}).list_topics(timeout=10).topics
    except KafkaException as exception:
        raise SystemExit(f"no broker answers at {servers}: start one, or set --bootstrap-servers") from exception
    if intake not in topics:
        raise SystemExit(f"the intake {intake} does not exist: start the service with the file in examples/README.md")


def make_topics(servers: str, *topics: str) -> None:
    """Create topics with one partition each.

    Raises:
        SystemExit: one of them exists already.
        KafkaException: the broker does not answer.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    for topic, made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).items():
        try:
            made.result(30)
        except KafkaException as exception:
            if exception.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            raise SystemExit(f"the topic {topic} exists already: choose another --prefix") from None


def records(
    servers: str, topic: str, group: str, on_ready: Callable[[], None] = lambda: None
) -> "Iterator[Message[Any, Any]]":
    """Yield the records of a topic from its beginning, without end. Reads read_committed, as exactly-once requires.

    Args:
        servers: Kafka's bootstrap servers.
        topic: the topic to read.
        group: the consumer group. Its first rebalance takes seconds.
        on_ready: called when the partitions are assigned.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic], on_assign=lambda *_: on_ready())
    try:
        while True:
            record = consumer.poll(1.0)
            if record is None:
                continue
            if (error := record.error()) is not None:
                raise KafkaException(error)
            yield record
    finally:
        consumer.close()
