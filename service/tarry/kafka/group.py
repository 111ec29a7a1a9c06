"""Questions about the group's members, from outside of it."""

from confluent_kafka.admin import AdminClient

from tarry.kafka.errors import group_errors

REQUEST_TIMEOUT_S = 3.0


class GroupAdmin:
    """Asks about one group.

    Args:
        admin: the client.
        group: the consumer group.
    """

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group

    def has(self, instance: str) -> bool:
        """Whether a static instance is a member.

        Who that is cannot be told: the group keeps the client id and host of the first that ever had the instance.

        Raises:
            RetriableError: the coordinator does not answer.
        """
        with group_errors(f"ask who is {instance}"):
            [future] = self._admin.describe_consumer_groups([self._group], request_timeout=REQUEST_TIMEOUT_S).values()
            members = future.result().members
        return any(member.group_instance_id == instance for member in members)
