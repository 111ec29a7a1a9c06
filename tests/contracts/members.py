"""A member of a group as ours is: it owns partitions, reads none of them, and is told what comes and goes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tests.support.contract import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable

Protocol = Literal["classic", "consumer"]
PROTOCOLS: tuple[Protocol, ...] = ("classic", "consumer")
CONSUMER_SINCE = "4.0"
"""The first Kafka with a protocol `consumer` that the client library speaks."""

both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)

HEARTBEAT_MS = 200
"""A classic member hears of a rebalance by its heartbeat: ours waits ten times as long, and rules must not."""

Call = tuple[str, list[int]]
"""A callback's name, and the partitions that it is about."""


class Member:
    """A member of a group.

    Args:
        cluster: where.
        topic: what it subscribes to.
        group: its group.
        protocol: of the group.
        instance: of a static member.
        others: further topics, whose partitions are divided together with those of the first one.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        group: str,
        protocol: Protocol,
        instance: str | None = None,
        *,
        others: Sequence[str] = (),
    ) -> None:
        properties = cluster.member(group, protocol, instance, together=bool(others))
        if protocol == "classic":
            properties["heartbeat.interval.ms"] = HEARTBEAT_MS
        self.consumer = cluster.clients.consumer(properties)
        self.calls: list[Call] = []
        self.errors: list[KafkaError] = []
        self.before_giving_up: list[Callable[[], None]] = []
        """Called once, within the callback that takes partitions away."""
        self.topic = topic
        self._incremental = protocol == "consumer"
        self.stranger = self.consumer.consumer_group_metadata()
        """Metadata from before it joined."""
        self.consumer.subscribe(
            [topic, *others], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self) -> None:
        """Serve what the group has to say."""
        try:
            message = self.consumer.poll(0.02)
        except KafkaException as exception:
            self.errors.append(error_of(exception))
        else:
            if message is not None and (error := message.error()) is not None:
                self.errors.append(error)

    @property
    def owned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    @property
    def places(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    @property
    def told(self) -> list[Call]:
        """The callbacks that were about any partition."""
        return [call for call in self.calls if call[1]]

    def commit(self, offset: int, partition: int = 0, topic: str = "", metadata: str = "") -> None:
        """A plain commit."""
        wanted = TopicPartition(topic or self.topic, partition, offset, metadata)
        done = self.consumer.commit(offsets=[wanted], asynchronous=False)
        assert [one.error for one in done or ()] == [None]

    def committed(self, partition: int = 0, timeout_s: float = 10.0) -> tuple[int, str]:
        """Return the group's committed offsets, once no open transaction holds one of them."""
        [found] = self.consumer.committed([TopicPartition(self.topic, partition)], timeout_s)
        assert found.error is None
        return found.offset, found.metadata or ""

    def leave(self) -> None:
        self.consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        at_end = [TopicPartition(one.topic, one.partition, OFFSET_END) for one in partitions]
        if self._incremental:
            consumer.incremental_assign(at_end)
        else:
            consumer.assign(at_end)
        consumer.pause(at_end)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        while self.before_giving_up:
            self.before_giving_up.pop()()
        self._give_up(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)
        self._give_up(consumer, partitions)

    def _note(self, name: str, partitions: list[TopicPartition]) -> None:
        self.calls.append((name, sorted(one.partition for one in partitions)))

    def _give_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


class Group:
    """A group on a topic with two partitions.

    Args:
        kafka: where.
        protocol: of the group.
    """

    def __init__(self, kafka: Kafka, protocol: Protocol) -> None:
        if protocol == "consumer":
            kafka.needs(CONSUMER_SINCE, "the group protocol `consumer`")
        self._kafka = kafka
        self.protocol: Protocol = protocol
        self.name = kafka.name("group")
        self.topic = kafka.make_topic(2)
        self.asker = kafka.consumer(kafka.cluster.asker(self.name))
        """Asks for committed offsets whether a transaction is open or not."""

    def join(self, instance: str | None = None, *, others: Sequence[str] = ()) -> Member:
        """One more member; it leaves after the test."""
        member = Member(self._kafka.cluster, self.topic, self.name, self.protocol, instance, others=others)
        self._kafka.at_the_end(member.leave)
        return member

    def joined(self, instance: str | None = None) -> Member:
        """The one member, with both partitions."""
        member = self.join(instance)
        self.until_owned({member: 2})
        return member

    def until_owned(self, counts: dict[Member, int]) -> None:
        """Poll members until each owns so many partitions, and no two own the same."""

        def settled() -> bool:
            for member in counts:
                member.poll()
            owned = [partition for member in counts for partition in member.owned]
            return len(owned) == len(set(owned)) and all(len(one.owned) == number for one, number in counts.items())

        self._kafka.until(settled, f"members own {list(counts.values())} partitions")

    def poll(self, *members: Member, for_s: float) -> None:
        """Poll members for so long, to see that nothing happens."""
        ends_ms = self._kafka.clock.monotonic_ms() + int(for_s * 1000)
        while self._kafka.clock.monotonic_ms() < ends_ms:
            for member in members:
                member.poll()

    def asked(self, partition: int = 0, topic: str | None = None) -> tuple[int, str]:
        """Return the group's last committed offset and metadata, for its own topic or another one."""
        [found] = self.asker.committed([TopicPartition(topic or self.topic, partition)], 10.0)
        assert found.error is None
        return found.offset, found.metadata or ""
