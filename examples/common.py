"""What the examples share: options, topics, and a reader."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterator


def options(description: str | None) -> ArgumentParser:
    """The options of all examples."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092", metavar="HOST:PORT", help="Kafka")
    parser.add_argument("--intake", default="tarry.delayed", metavar="TOPIC", help="an intake that the service serves")
    parser.add_argument("--prefix", default="example", metavar="P", help="what the names of its topics begin with")
    return parser


def make_topics(servers: str, *topics: str) -> None:
    """Make topics of one partition.

    Raises:
        KafkaException: one of them is there already (use another --prefix), or the broker does not answer.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(30)


def records(
    servers: str, topic: str, group: str, on_ready: Callable[[], None] = lambda: None
) -> "Iterator[Message[Any, Any]]":
    """What arrives on a topic, from its beginning, without an end; read committed, as exactly once asks for.

    Args:
        servers: Kafka.
        topic: what to read.
        group: of consumers, which takes seconds to come together.
        on_ready: called when it has.
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
