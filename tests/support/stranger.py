"""A consumer that is no process of tarry, and has joined the service's group by mistake."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka import Consumer

from tests.support.brokers import wait_until

CLIENT = "a-stranger"
"""Its client id. A member's id begins with it, and the group gives the first partition to the first member by id."""


@contextmanager
def stranger(bootstrap: str, group: str, intake: str) -> Iterator[Consumer]:
    """Let a consumer join the group of a service, and wait until it has the first partition.

    Args:
        bootstrap: the broker, HOST:PORT.
        group: the service's group, of the classic protocol.
        intake: the intake.
    """
    properties = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": CLIENT, "enable.auto.commit": False}
    with closing(Consumer(properties)) as consumer:
        consumer.subscribe([intake])

        def has_a_partition() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_until(has_a_partition, "the stranger has a partition", 60)
        consumer.pause(consumer.assignment())
        yield consumer
