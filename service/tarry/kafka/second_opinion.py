"""What other brokers than the one that was asked say of topics.

A broker that is cut off from its controllers answers from what it knew before, for as long as it runs. So before a
topic is taken for one that does not exist, two brokers must say so, each to a client that knows of no other.
"""

from collections.abc import Collection
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from tarry.errors import RetriableError
from tarry.kafka.errors import group_errors
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import Target, TopicAdmin

ENOUGH = 2
"""Answers: of two at least one is not of the broker that gave the first answer, whichever that was."""

MOST_SILENT = 2
"""Brokers that are waited for in vain: who asks waits meanwhile."""


class SecondOpinion:
    """Asks brokers one by one.

    Args:
        cluster: where.
        admin: an admin client, which says which brokers there are.
        timeout_s: how long each is waited for.
    """

    def __init__(self, cluster: Cluster, admin: AdminClient, timeout_s: float) -> None:
        self._cluster = cluster
        self._admin = admin
        self._timeout_s = timeout_s
        self._silent: set[str] = set()
        """Those that did not answer when they were asked last."""

    def __call__(self, topics: Collection[str]) -> dict[str, Target]:
        """Look at topics: one that any of the brokers knows is there.

        One that is not found while a broker does not answer is there, perhaps, and can't be written to.

        Raises:
            RetriableError: none of them answers.
        """
        found: dict[str, Target] = {}
        silence: RetriableError | None = None
        answered = silent = 0
        for address in self._addresses():
            try:
                answers = self._ask(address, topics)
            except RetriableError as error:
                silence = error
                self._silent.add(address)
                if (silent := silent + 1) == MOST_SILENT:
                    break
                continue
            self._silent.discard(address)
            found.update({name: one for name, one in answers.items() if one.partitions or name not in found})
            if (answered := answered + 1) == ENOUGH:
                return found
        if silence is None:
            return found
        if not found:
            raise silence
        # The one that answers may be the one that did not know it before.
        return {name: one if one.partitions else Target(1, str(silence)) for name, one in found.items()}

    def _addresses(self) -> list[str]:
        """In which order they are asked: the broker that tells of all comes last, but for those that were silent."""
        with group_errors("ask for the cluster's brokers"):
            told = self._admin.list_topics(timeout=self._timeout_s)
        brokers = sorted(told.brokers.items(), key=lambda one: (one[0] == told.orig_broker_id, one[0]))
        addresses = [f"{one.host}:{one.port}" for _, one in brokers]
        return sorted(addresses, key=self._silent.__contains__)

    def _ask(self, address: str, topics: Collection[str]) -> dict[str, Target]:
        there = replace(self._cluster, bootstrap_servers=address)
        return TopicAdmin(there.clients.admin(there.admin())).targets(topics, self._timeout_s)
