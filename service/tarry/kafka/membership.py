"""Membership in the group: which partitions of the intakes are assigned to this process.

The group consumer is a member and reads nothing. It accepts its assignment, so that both versions of the group protocol
work as usual, but pauses its partitions at their ends. A consumer without a group reads them: it can start and stop at
any offset, whatever the group does (ADR 2). A successful commit by the member proves that it still is a member.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from tarry.errors import AbortableError, BrokerError, InstanceInUseError, MembershipLostError, RejoinError
from tarry.kafka.clients import Clients, Properties
from tarry.kafka.errors import group_errors, translate_group
from tarry.kafka.offsets import ask_committed
from tarry.kafka.types import OffsetMetadata, Place

_IN_USE = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
_FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
# A broker had lost a KIP-848 group after kill -9. The error is fatal to the client; the next client creates the group
# again.
_GONE = KafkaError(KafkaError.GROUP_ID_NOT_FOUND).str()
_NO_MEMBER = KafkaError(KafkaError.UNKNOWN_MEMBER_ID).name()


class Rebalances(Protocol):
    """The callbacks of a rebalance; called from within `Membership.poll`."""

    def assigned(self, places: Sequence[Place]) -> None:
        """Take note that these partitions are ours now."""
        ...

    def revoked(self, places: Sequence[Place]) -> None:
        """Give these partitions up; they are ours until this returns."""
        ...

    def lost(self, places: Sequence[Place]) -> None:
        """Drop these partitions: they belong to another member already."""
        ...


class Membership:
    """The group consumer.

    Args:
        clients: makes the consumer.
        properties: librdkafka properties, from `Cluster.member`.
        topics: the intakes.
        on_warning: takes the text of an error from which the client recovers by itself.
    """

    def __init__(
        self,
        clients: Clients,
        properties: Properties,
        topics: Sequence[str],
        on_warning: Callable[[str], None],
    ) -> None:
        self._clients = clients
        self._properties = properties
        self._topics = list(topics)
        self._on_warning = on_warning
        self._incremental = properties["group.protocol"] == "consumer"
        self._rebalances: Rebalances | None = None
        self._member: Consumer | None = None
        self._metadata_outside: Any = None
        self.member_id = ""
        """The last member id that the group gave us; it stays after we are out of the group."""

    def join(self, rebalances: Rebalances) -> None:
        """Ask to join the group.

        Args:
            rebalances: its callbacks are called when partitions are assigned, revoked or lost.
        """
        self._rebalances = rebalances
        self._member = consumer = self._clients.consumer(self._properties)
        self._metadata_outside = consumer.consumer_group_metadata()
        consumer.subscribe(self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    @property
    def joined(self) -> bool:
        """Whether a KIP-848 group has accepted us; always false with the classic protocol.

        Under KIP-848 no callback reports an empty assignment, but the member's epoch changes. The classic protocol
        calls `assigned` in any case. Its metadata would change too early, because the member id comes before the
        generation.
        """
        return self._incremental and bool(self._consumer.consumer_group_metadata() != self._metadata_outside)

    @property
    def is_incremental(self) -> bool:
        """Whether the group uses KIP-848, in which partitions are assigned and revoked one by one."""
        return bool(self._incremental)

    @property
    def static_instance(self) -> str | None:
        """`service.instance` in the classic protocol, where a new member with it fences the former one; else None."""
        return None if self._incremental else self._properties.get("group.instance.id")

    def rejoin(self) -> None:
        """Join as a new member: after `RejoinError`, or when no other member has our `service.instance`."""
        try:
            self.close()
        except BrokerError as error:
            self._on_warning(str(error))
        self.join(self._callbacks)

    def poll(self) -> None:
        """Serve the group's callbacks and errors, without waiting.

        Raises:
            RejoinError: the group does not know us any more; call `rejoin`.
            InstanceInUseError: a process with the same `service.instance` has not left, and its session has not ended;
                call `rejoin`.
            MembershipLostError: this member is out permanently, for example because a second process has joined with
                the same `service.instance`.
        """
        with group_errors("serve the group"):
            message = self._consumer.poll(0)
        if message is not None and (error := message.error()) is not None:
            self._raise_or_warn(error)

    def commit(self, offsets: dict[Place, OffsetMetadata]) -> None:
        """Commit offsets outside a transaction; succeeds only for a member of the current generation.

        Raises:
            RetriableError: refused during a rebalance.
            FatalError: refused permanently.
        """
        wanted = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]
        with group_errors("commit"):
            committed = self._consumer.commit(offsets=wanted, asynchronous=False)
        for one in committed or []:
            if one.error is not None:
                raise translate_group(one.error, f"commit {one.topic}/{one.partition}")

    def committed(self, places: Sequence[Place]) -> dict[Place, OffsetMetadata]:
        """Return the group's committed offsets, once no open transaction holds an offset of these partitions.

        Raises:
            RetriableError: a transaction stays open, or there is no answer.
        """
        return ask_committed(self._consumer, places)

    def metadata(self) -> Any:
        """Return the group metadata that a transaction needs to prove membership; take it right before sending offsets.

        Raises:
            AbortableError: the client has lost its membership, and has not reported it yet. Its metadata then has no
                generation and no member id. A classic group accepts offsets with such metadata from any client, for the
                sake of old clients.
        """
        metadata = self._consumer.consumer_group_metadata()
        if metadata == self._metadata_outside:
            group = self._properties["group.id"]
            raise AbortableError(f"could not send offsets: this process is no member of group {group}", _NO_MEMBER)
        return metadata

    def close(self) -> None:
        """Leave the group; `revoked` is called for the partitions that are still ours."""
        if self._member is None:
            return
        try:
            with group_errors("leave the group"):
                self._member.close()
        finally:
            self._member = None

    @property
    def _consumer(self) -> Consumer:
        assert self._member is not None, "join comes first"  # noqa: S101
        return self._member

    @property
    def _callbacks(self) -> Rebalances:
        assert self._rebalances is not None, "join comes first"  # noqa: S101
        return self._rebalances

    def _raise_or_warn(self, error: KafkaError) -> None:
        # A fatal error comes wrapped: only its text has the reason.
        if _IN_USE in error.str():
            raise InstanceInUseError(
                "a member with this service.instance is still in the group: this process joins when that member has "
                "left or its session has expired",
                error.name(),
            )
        if _GONE in error.str():
            raise RejoinError(
                f"group {self._properties['group.id']} no longer has this process as a member", error.name()
            )
        if _FENCED in error.str():
            raise MembershipLostError(
                f"another process has joined group {self._properties['group.id']} as "
                f"{self._properties['group.instance.id']}: each service that runs needs its own service.instance",
                error.name(),
            )
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise MembershipLostError(f"this process's membership has ended: {error.str()}", error.name())
        self._on_warning(error.str())

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        at_end = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in partitions]
        if self._incremental:
            consumer.incremental_assign(at_end)
        else:
            consumer.assign(at_end)
        consumer.pause(at_end)
        self.member_id = consumer.memberid() or ""
        self._callbacks.assigned(_places(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._callbacks.revoked(_places(partitions))
        self._unassign(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._callbacks.lost(_places(partitions))
        self._unassign(consumer, partitions)

    def _unassign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()


def _places(partitions: Sequence[TopicPartition]) -> list[Place]:
    return sorted((p.topic, p.partition) for p in partitions)
