"""Stops processes of a service by SIGSTOP between their transactions.

One that stops in a transaction hides its records until the transaction times out, and whoever reads its journal waits.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from confluent_kafka.admin import AdminClient

from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tests.support.brokers import wait_until
from tests.support.chaos import is_stopped


@contextmanager
def frozen(pids: Sequence[int], bootstrap: str, intake: str) -> Iterator[None]:
    """Stop processes for the time of the block; the first one is the parent of the others."""
    cluster = Cluster(bootstrap)
    admin = AdminClient(cluster.client())
    try:
        with closing(Offsets(admin, "tests.freezing", cluster)) as offsets:
            topics = admin.list_topics(timeout=30).topics
            logs = [
                (name, number)
                for name, topic in topics.items()
                if name == intake or name.startswith(f"{intake}.")
                for number in topic.partitions
            ]

            def none_is_in_a_transaction() -> bool:
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                wait_until(lambda: all(map(is_stopped, pids)), "they are stopped")
                if offsets.ends(logs, committed=True) == offsets.ends(logs, committed=False):
                    return True
                _wake(pids)
                return False

            wait_until(none_is_in_a_transaction, "they stop between two transactions")
        yield
    finally:
        _wake(pids)


def _wake(pids: Sequence[int]) -> None:
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
