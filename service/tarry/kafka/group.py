"""Asking about the members of a group, from outside the group."""

from typing import TYPE_CHECKING, NamedTuple

from tarry.errors import BrokerError
from tarry.kafka.errors import group_errors
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 3.0
ANSWER_WITHIN_S = 10.0


class GroupAdmin:
    """Asks about one group.

    Args:
        cluster: the Kafka cluster.
        group: the consumer group.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._admin: AdminClient | None = None

    def member_of(self, instance: str) -> str | None:
        """Return the member id of a static instance; None if it is no member.

        The group tells no more about it: it keeps the client id and host of the first member that had the instance.

        Raises:
            RetriableError: the coordinator does not answer.
        """
        if self._admin is None:
            self._admin = self._cluster.clients.admin(self._cluster.admin())
        try:
            with group_errors(f"ask who is {instance}"):
                asked = self._admin.describe_consumer_groups([self._group], request_timeout=REQUEST_TIMEOUT_S)
                members = asked[self._group].result().members
        except BrokerError:
            # After a broker was away, we saw the same client get no answers any more (librdkafka 2.16).
            self._admin = None
            raise
        return next((member.member_id for member in members if member.group_instance_id == instance), None)


class Owner(NamedTuple):
    """A member of the group to which partitions are assigned.

    Attributes:
        client: its client id, and its host.
        places: the partitions.
    """

    client: str
    places: frozenset[Place]


def owners_of(admin: "AdminClient", group: str) -> tuple[str, list[Owner]]:
    """Return the state of a group as Kafka names it, such as `STABLE`, and its members with their partitions.

    Raises:
        BrokerError: no answer.
    """
    with group_errors(f"describe group {group}"):
        found = admin.describe_consumer_groups([group], request_timeout=ANSWER_WITHIN_S)[group].result()
    owners = [
        Owner(
            f"{member.client_id} at {member.host.removeprefix('/')}",
            frozenset((one.topic, one.partition) for one in member.assignment.topic_partitions),
        )
        for member in found.members
    ]
    return found.state.name, owners
