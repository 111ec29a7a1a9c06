"""Settings of small overflow wheels, and the number of records in their buckets."""

from typing import Any, Final

from confluent_kafka.admin import AdminClient

from tarry.kafka.settings import Cluster
from tests.support.brokers import wait_until
from tests.support.reader import Reader
from tests.support.stage import inbox
from tests.support.workload import Workload

SMALL_WHEEL: Final[dict[str, Any]] = {
    "intake_settings": {"max_delay": "40s"},
    "overflow": {"from": "2s", "width": "1s", "size": 3},
}
"""Settings of a service: buckets of 1, 3 and 9 s, so that all three levels turn within a minute."""

QUICK_WHEEL: Final[dict[str, Any]] = {
    "intake_settings": {"max_delay": "16s"},
    "overflow": {"from": "2s", "width": "1s", "size": 2},
}
"""Settings of a service: buckets of 1, 2 and 4 s; a delay of 13 s goes through three levels."""

STRAGGLING_WHEEL: Final[dict[str, Any]] = {
    "intake_settings": {"max_delay": "10m"},
    "overflow": {"from": "2s", "width": "1s", "size": 2},
}
"""Settings of a service: buckets of 1, 2, 4 and 8 s. Level 4 holds what is due in a quarter of a minute or later."""

STRAGGLING_LEVEL: Final = 4
"""The highest level of that wheel."""


def waiting_in_buckets(bootstrap: str, intake: str) -> int:
    """Return how many records an intake's buckets hold."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    with inbox(
        Cluster(bootstrap), [name for name in topics if name.startswith(f"{intake}.wheel-")], trimmed=True
    ) as records:
        return len(records.read_to_the_end())


def wait_empty(bootstrap: str, intake: str, workload: Workload, reader: Reader, within_s: float = 90.0) -> None:
    """Wait until all messages have arrived and all buckets are empty."""
    reader.wait_for(len(workload.produced()), within_s)
    wait_until(lambda: not waiting_in_buckets(bootstrap, intake), "all buckets are empty", 30.0)
