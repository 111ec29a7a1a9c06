"""Questions about the group's members, from outside of it."""

from typing import TYPE_CHECKING

from tarry.errors import BrokerError
from tarry.kafka.errors import group_errors
from tarry.kafka.settings import Cluster

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

REQUEST_TIMEOUT_S = 3.0


class GroupAdmin:
    """Asks about one group.

    Args:
        cluster: where.
        group: the consumer group.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._admin: AdminClient | None = None

    def member_of(self, instance: str) -> str | None:
        """The member id under which a static instance is a member; None where it is not.

        More cannot be told: the group keeps the client id and host of the first that ever had the instance.

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
            # Once a broker was away, the same client was seen to get no answer any more (librdkafka 2.16).
            self._admin = None
            raise
        return next((member.member_id for member in members if member.group_instance_id == instance), None)
