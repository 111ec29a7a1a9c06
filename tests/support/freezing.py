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
from tests.support.processes import Serve


@contextmanager
def frozen(serve: Serve, bootstrap: str, intake: str) -> Iterator[None]:
    """Stop all processes of a service of one intake for the time of the block."""
    pids = [serve.pid, *serve.workers.values()]
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
