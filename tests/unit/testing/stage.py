"""A fake cluster, processes on it, and what tests do with their clients."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tarry.testing import FakeBroker, ManualClock
from tarry.testing.fake import Hook

if TYPE_CHECKING:
    from tarry.kafka.types import Place

GROUP = "group"


def error_in(call: Callable[..., object], *arguments: Any) -> KafkaError:
    """The error that a call raises."""
    try:
        call(*arguments)
    except KafkaException as exception:
        return error_of(exception)
    raise AssertionError("it went through")


class TopicStage:
    """A cluster with the topic `t` of two partitions."""

    def __init__(self, clock: ManualClock, broker: FakeBroker) -> None:
        self.clock = clock
        self.broker = broker
        broker.make_topic("t", 2)

    def cluster(self, process: str, hook: Hook | None = None) -> Cluster:
        return Cluster("fake", {}, self.broker.clients(process, hook))

    def producer(self, name: str = "id", process: str = "p", hook: Hook | None = None, **more: object) -> Producer:
        """A registered producer; the hook begins to be told afterwards."""
        cluster = self.cluster(process)
        others = {key.replace("_", "."): value for key, value in more.items()}
        producer = cluster.clients.producer({**cluster.transactor(name), **others})
        producer.init_transactions(30)
        self.broker.clients(process, hook)
        return producer

    def values(self, partition: int = 0, *, committed: bool = True) -> list[bytes | None]:
        return [record.value for record in self.broker.records("t", partition, committed=committed)]

    def member(self, process: str, protocol: Literal["classic", "consumer"], instance: str | None = None) -> "Member":
        return Member(self, process, protocol, instance)

    def settle(self, *members: "Member", rounds: int = 12) -> None:
        """Let members poll by turns until the group has nothing more to say."""
        for _ in range(rounds):
            for member in members:
                member.poll()

    def committed(self, isolation: str = "read_uncommitted", process: str = "asker") -> dict[int, tuple[int, str]]:
        """The group's committed offsets, by partition."""
        clients = self.broker.clients(process)
        asker = clients.consumer({"group.id": GROUP, "isolation.level": isolation})
        found = asker.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=5)
        return {one.partition: (one.offset, one.metadata or "") for one in found if one.offset >= 0}


class Member:
    """A member of the group, and what it was told."""

    def __init__(
        self, stage: TopicStage, process: str, protocol: Literal["classic", "consumer"], instance: str | None
    ) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.errors: list[KafkaError] = []
        self.owned: set[Place] = set()
        self._incremental = protocol == "consumer"
        cluster = stage.cluster(process)
        self.consumer: Consumer = cluster.clients.consumer(cluster.member(GROUP, protocol, instance))
        self.consumer.subscribe(["t"], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def poll(self) -> None:
        message = self.consumer.poll(0)
        if message is not None and (error := message.error()) is not None:
            self.errors.append(error)

    def commit(self, offset: int, metadata: str = "") -> None:
        self.consumer.commit(offsets=[TopicPartition("t", 0, offset, metadata)], asynchronous=False)

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)
        self.owned.update((one.topic, one.partition) for one in partitions)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)
        self.owned.difference_update((one.topic, one.partition) for one in partitions)

    def _lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)
        self.owned.difference_update((one.topic, one.partition) for one in partitions)

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.told.append((what, sorted(one.partition for one in partitions)))
