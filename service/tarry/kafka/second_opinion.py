"""Asking other brokers about topics that one broker does not know.

A broker that is cut off from its controllers answers from old metadata for as long as it runs. So a topic counts as
missing only if two brokers say so, each asked by a client that knows no other broker.
"""

from collections.abc import Collection
from dataclasses import replace

from confluent_kafka.admin import AdminClient

from tarry.errors import RetriableError
from tarry.kafka.errors import group_errors
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import Target, TopicAdmin

ENOUGH = 2
"""How many answers are enough: of two, at least one is not from the broker that answered first, whichever that was."""

MOST_SILENT = 2
"""After how many brokers that do not answer to give up, because the caller waits meanwhile."""


class SecondOpinion:
    """Asks brokers one by one.

    Args:
        cluster: the Kafka cluster.
        admin: an admin client, which lists the brokers.
        timeout_s: how long to wait for each.
    """

    def __init__(self, cluster: Cluster, admin: AdminClient, timeout_s: float) -> None:
        self._cluster = cluster
        self._admin = admin
        self._timeout_s = timeout_s
        self._silent: set[str] = set()
        """The brokers that did not answer at their last request."""

    def __call__(self, topics: Collection[str]) -> dict[str, Target]:
        """Ask about topics; a topic exists if any of the brokers knows it.

        If a topic is not found and a broker does not answer, the topic may exist, but cannot be written to.

        Raises:
            RetriableError: no broker answers.
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
        # The only broker that answered may be the one that did not know the topic before.
        return {name: one if one.partitions else Target(1, str(silence)) for name, one in found.items()}

    def _addresses(self) -> list[str]:
        """Return the addresses in the order to ask: the broker that listed them comes last, before only silent ones."""
        with group_errors("ask for the cluster's brokers"):
            told = self._admin.list_topics(timeout=self._timeout_s)
        brokers = sorted(told.brokers.items(), key=lambda one: (one[0] == told.orig_broker_id, one[0]))
        addresses = [f"{one.host}:{one.port}" for _, one in brokers]
        return sorted(addresses, key=self._silent.__contains__)

    def _ask(self, address: str, topics: Collection[str]) -> dict[str, Target]:
        there = replace(self._cluster, bootstrap_servers=address)
        return TopicAdmin(there.clients.admin(there.admin())).targets(topics, self._timeout_s)
