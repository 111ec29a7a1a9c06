"""The parts that the consumers of a group share: the Kafka clients of one member, and its loop.

A rebalance callback only notes which partitions are assigned, because a take-over may wait for brokers. The next turn
of the loop takes them over. After a failure the loop drops all state in memory, and takes all its partitions over again
from their committed state.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from enum import StrEnum

from tarry.client.events import OnEvent
from tarry.clock import Clock
from tarry.errors import BrokerError, MembershipLostError, RejoinError
from tarry.kafka.clients import Properties
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.stall import StallWatch
from tarry.kafka.trim_tolerant_reader import forgiving
from tarry.kafka.types import Place

PATIENCE_S = 30.0
"""How long to retry the topic check at the start while the brokers give retriable errors, in seconds."""

RETRY_MS = 100
"""How long to wait before the next take-over after the first failure, and before a rejoin."""


class Begin(StrEnum):
    """Where a group without committed offsets begins to read."""

    EARLIEST = "earliest"
    LATEST = "latest"


class GroupClients:
    """The Kafka clients of one member of a group.

    Args:
        cluster: the Kafka cluster.
        properties: of the member, from `Cluster.member`.
        topics: the topics that the member subscribes to.
        clock: monotonic time.
        on_event: called with the name of an event and its fields.
    """

    def __init__(
        self, cluster: Cluster, properties: Properties, topics: Sequence[str], clock: Clock, on_event: OnEvent
    ) -> None:
        self._on_event = on_event
        self.cluster = cluster
        self.admin = cluster.clients.admin(cluster.admin())
        self.offsets = Offsets(self.admin, properties["group.id"], cluster)
        self.membership = Membership(cluster.clients, properties, topics, self.warn)
        self._clock = clock
        self.reader = self.new_reader()

    def new_reader(self, *, skips_deleted: bool = False) -> Reader:
        """Return a further reader; it replaces a client that has stopped fetching. Close it.

        Args:
            skips_deleted: whether it goes on at the beginning of a log when its next records are deleted; otherwise
                that is an error.
        """
        cluster = forgiving(self.cluster) if skips_deleted else self.cluster
        return Reader(cluster, self.warn, watch=StallWatch(self.offsets, self._clock))

    def warn(self, text: str) -> None:
        """Report an error from which a client recovers by itself."""
        self._on_event("kafka_warning", reason=text)

    def close(self) -> None:
        """Leave the group, and close the clients."""
        try:
            self.membership.close()
        except BrokerError as error:
            self._on_event("not_left", reason=str(error))
        self.reader.close()
        self.offsets.close()


class GroupLoop(ABC):
    """The loop of one member; implements the callbacks of a rebalance (`Rebalances`). Not thread-safe.

    Args:
        clients: the member's clients.
        clock: monotonic time.
        on_event: called with the name of an event and its fields.
        retry_most_ms: the longest wait before the next take-over; the wait doubles with each failure in a row.
    """

    def __init__(
        self, clients: GroupClients, clock: Clock, on_event: OnEvent, *, retry_most_ms: int = RETRY_MS
    ) -> None:
        self._membership = clients.membership
        self._reader = clients.reader
        self._clock = clock
        self._on_event = on_event
        self._assigned: set[Place] = set()
        """The partitions that the group has assigned to this member; some may not be taken over yet."""
        self._retry_most_ms = retry_most_ms
        self._retry_ms = RETRY_MS
        self._retry_at_ms = 0

    def turn(self) -> None:
        """Run one turn: poll the group, take over the assigned partitions, and read.

        Raises:
            UsageError: a partition is in a state that no consumer can continue from.
            MembershipLostError: this member has lost its place in the group permanently.
        """
        try:
            self._membership.poll()
            if self._clock.monotonic_ms() >= self._retry_at_ms:
                self._take_over_assigned()
            self._consume()
        except RejoinError as error:
            self._on_event("rejoining", reason=str(error))
            self.lost(list(self._assigned))
            self._clock.sleep(RETRY_MS / 1_000)
            self._membership.rejoin()
        except MembershipLostError:
            raise
        except BrokerError as error:
            self._begin_anew("begin_anew", error)

    def abandon(self) -> None:
        """Drop all partitions without a commit: the next owners read again what is not committed."""
        self._drop_all()
        self._assigned.clear()

    # -- the group's callbacks ----------------------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> None:
        """Note an assignment; the next turn takes these partitions over."""
        self._assigned.update(places)

    @abstractmethod
    def revoked(self, places: Sequence[Place]) -> None:
        """Commit what is settled in these partitions, and drop them."""

    def lost(self, places: Sequence[Place]) -> None:
        """Drop partitions without a commit: another member may own them already."""
        self._assigned.difference_update(places)
        self._drop(places)

    # -- the consumer's part ------------------------------------------------------------------------------------------

    @abstractmethod
    def _take_over_assigned(self) -> None:
        """Take over the partitions that are assigned but not owned yet."""

    @abstractmethod
    def _consume(self) -> None:
        """Read, and handle the records."""

    @abstractmethod
    def _drop(self, places: Collection[Place]) -> None:
        """Stop reading those of the partitions that were taken over, and forget their state."""

    @abstractmethod
    def _drop_all(self) -> None:
        """Drop all uncommitted state, also of partitions that are no longer assigned because `_drop` has failed."""

    # -- after a failure ----------------------------------------------------------------------------------------------

    def _begin_anew(self, event: str, error: Exception) -> None:
        """Report an event, drop all uncommitted state, and take all partitions over again after a wait."""
        self._on_event(event, reason=str(error))
        self._drop_all()
        self._back_off()

    def _back_off(self) -> None:
        """Wait before the next take-over."""
        self._retry_at_ms = self._clock.monotonic_ms() + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, self._retry_most_ms)
