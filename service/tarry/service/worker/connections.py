"""The Kafka clients of one process, made in one place."""

from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from tarry.errors import BrokerError
from tarry.kafka.control_log import AskedControlLog
from tarry.kafka.group import GroupAdmin
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.origins import Origins
from tarry.kafka.own_logs import OwnLogs
from tarry.kafka.reader import Reader
from tarry.kafka.second_opinion import SecondOpinion
from tarry.kafka.stall import StallWatch
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor
from tarry.service.worker.context import Context
from tarry.service.worker.plan import Plan, producers_of

OTHERS_TIMEOUT_S = 2.0
"""How long the loop waits for each further broker that it asks about a target."""


@dataclass(frozen=True, slots=True)
class GroupProducer:
    """A transactional producer of a member of the group.

    Attributes:
        transactor: the producer.
        membership: its metadata proves, in each transaction, that the partitions are still ours.
    """

    transactor: Transactor
    membership: Membership


@dataclass(frozen=True, slots=True)
class Connections:
    """The clients of one process.

    Attributes:
        admin: the admin client of those below.
        topics: asks about topics.
        others: asks other brokers about topics.
        own_logs: asks whether the logs of our partitions can be written to.
        group: asks about the group's members.
        offsets: asks for offsets.
        origins: asks for cluster and topic ids.
        reader: reads the intakes.
        membership: the group consumer.
        firing: the producer of firing transactions.
        filing: the producer of messages that go to buckets.
        parking: the producer of parked messages.
        letters: the producer of dead letters that go apart.
    """

    admin: AdminClient
    topics: TopicAdmin
    others: SecondOpinion
    own_logs: OwnLogs
    group: GroupAdmin
    offsets: Offsets
    origins: Origins
    reader: Reader
    membership: Membership
    firing: Transactor
    filing: Transactor
    parking: Transactor
    letters: Transactor

    @property
    def transactors(self) -> tuple[Transactor, ...]:
        """All producers."""
        return self.firing, self.filing, self.parking, self.letters

    @property
    def writer(self) -> tuple[str, ...]:
        """The name of this process in a checkpoint: the transactional ids of all its producers."""
        return tuple(transactor.transactional_id for transactor in self.transactors)

    @property
    def former(self) -> frozenset[str]:
        """The earlier transactional ids of this process."""
        return frozenset(one for transactor in self.transactors for one in transactor.former)

    def control_log(self, intake: str) -> AskedControlLog:
        """Ask for the log of an intake's pauses, without waiting."""
        return AskedControlLog(self.admin, self.offsets, intake)

    def close(self) -> None:
        """Leave the group, and close the other clients.

        Raises:
            BrokerError: leaving the group failed; the other clients are closed.
        """
        try:
            self.membership.close()
        except BrokerError:
            self._close_others()
            raise
        self._close_others()

    def _close_others(self) -> None:
        self.reader.close()
        for transactor in self.transactors:
            transactor.close()
        self.offsets.close()


def open_connections(plan: Plan, context: Context) -> Connections:
    """Make the clients of a process; none of them has joined, registered or read anything yet.

    Args:
        plan: the configuration of the process.
        context: monotonic time and the log.
    """
    cluster = plan.cluster
    admin = cluster.clients.admin(cluster.admin())
    offsets = Offsets(admin, plan.group, cluster)
    fire, file, park, dead = producers_of(plan.name)
    return Connections(
        admin,
        TopicAdmin(admin),
        SecondOpinion(cluster, admin, OTHERS_TIMEOUT_S),
        OwnLogs(admin, {topic: intake.geometry for topic, intake in plan.intakes.items()}, context.clock),
        GroupAdmin(cluster, plan.group),
        offsets,
        Origins(admin),
        Reader(cluster, context.warn, watch=StallWatch(offsets, context.clock)),
        Membership(cluster.clients, plan.member, list(plan.intakes), context.warn),
        Transactor(cluster, fire),
        # It must know the offsets that its records get.
        Transactor(cluster, file, compressed=True, properties={"delivery.report.only.error": False}),
        Transactor(cluster, park),
        Transactor(cluster, dead, compressed=True),
    )
