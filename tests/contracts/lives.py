"""The code of other processes in the contract tests: it joins a group as the only member, and opens a transaction.

A life takes names, and no objects of a test: for a real broker it is sent to a process of the machine's.
"""

from confluent_kafka import TopicPartition

from tarry.clock import Clock
from tarry.errors import BrokerError
from tarry.kafka.errors import group_errors, producer_errors
from tarry.kafka.settings import Cluster
from tests.contracts.members import Member, Protocol
from tests.contracts.steps import CALL_S, leave_open
from tests.support.contract import Act

PATIENCE_MS = 20_000


def own(
    cluster: Cluster,
    clock: Clock,
    topic: str,
    group: str,
    protocol: Protocol,
    instance: str | None,
    transactional_id: str,
) -> Act:
    """Own both partitions, and have a record and an offset in an open transaction.

    Returns:
        Commits an offset plainly, then the transaction, and says how both ended.
    """
    member = Member(cluster, topic, group, protocol, instance)
    give_up_ms = clock.monotonic_ms() + PATIENCE_MS
    while len(member.owned) < 2:
        member.poll()
        if clock.monotonic_ms() > give_up_ms:
            raise TimeoutError("the group assigns nothing")
    producer = cluster.clients.producer(cluster.transactor(transactional_id))
    producer.init_transactions(CALL_S)
    leave_open(producer, topic, b"zombie")
    offsets = [TopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(offsets, member.consumer.consumer_group_metadata(), CALL_S)

    def act() -> str:
        outcomes = []
        try:
            with group_errors("commit"):
                member.commit(1, partition=1)
            outcomes.append("committed")
        except BrokerError as error:
            outcomes.append(type(error).__name__)
        try:
            with producer_errors("commit"):
                producer.commit_transaction(CALL_S)
            outcomes.append("committed")
        except BrokerError as error:
            outcomes.append(type(error).__name__)
        return " ".join(outcomes)

    return act
