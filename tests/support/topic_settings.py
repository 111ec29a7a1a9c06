"""Changes settings of topics, and waits until the broker obeys them."""

from collections.abc import Mapping
from itertools import count

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.support.brokers import wait_until

_MARK = "file.delete.delay.ms"
"""A setting that no test depends on."""
_marks = count(60_001)


def change_settings(admin: AdminClient, topic: str, **settings: str) -> None:
    """Change settings of a topic (`max_message_bytes="3000000"`), and return when its leader obeys them.

    Kafka answers before the leader obeys, and describes a setting just before that. The leader applies one change after
    another: once it describes a second change, it obeys the first. Only for clusters of one broker.
    """
    _set(admin, topic, {name.replace("_", "."): value for name, value in settings.items()})
    _set(admin, topic, {_MARK: str(next(_marks))})


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)

    def is_described() -> bool:
        described = admin.describe_configs([resource])[resource].result(30)
        return all(described[name].value == value for name, value in settings.items())

    wait_until(is_described, f"{topic} has {dict(settings)}")
