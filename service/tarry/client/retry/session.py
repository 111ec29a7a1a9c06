"""A consumer's time as a member of its group: a session creates the Kafka clients, and closes them."""

import uuid
from typing import Final

from tarry.client.group_consumer import PATIENCE_S, GroupClients
from tarry.client.retry.core.fitness import objection
from tarry.client.retry.loop import Loop
from tarry.client.retry.missing import Missing
from tarry.client.retry.takeover import TakeOver
from tarry.client.retry.terms import Runtime, Terms
from tarry.client.retry.topics import make_or_check
from tarry.client.retry.trimming import Trimming
from tarry.errors import BrokerError, UsageError
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor

LOOK_FOR_TOPICS_MS: Final = 5_000
"""How often the member refreshes the metadata of its topics; librdkafka's default is five minutes.

A broker may not know a topic yet that was just created. The classic group then assigns its partitions to no member, and
the consumer would not read until the next refresh (seen when two consumers started at the same time). If only the
coordinator did not know it, no refresh helps, and the member rejoins: `halves`.
"""


class Session:
    """A member of the consumer group; not thread-safe.

    Args:
        cluster: the Kafka cluster.
        terms: the consumer's arguments.
        runtime: what the process gives it.

    Raises:
        UsageError: a topic is missing or has a wrong configuration, or the service says that the intake does not fit.
        RetriableError: the brokers do not answer.
    """

    def __init__(self, cluster: Cluster, terms: Terms, runtime: Runtime) -> None:
        names, clock, on_event = terms.names, runtime.clock, runtime.on_event
        self._terms = terms
        self._runtime = runtime
        properties = cluster.member(names.group, terms.protocol, None) | {
            "max.poll.interval.ms": runtime.pace.poll_interval_ms,
            "topic.metadata.refresh.interval.ms": LOOK_FOR_TOPICS_MS,
        }
        self._clients = clients = GroupClients(cluster, properties, [names.topic, names.retry], clock, on_event)
        try:
            patiently(lambda: make_or_check(clients.admin, names, terms.replication), clock, PATIENCE_S)
            self._refuse_unfit()
        except BaseException:
            clients.close()
            raise
        self._transactor = Transactor(cluster, f"{names.group}.{uuid.uuid4().hex[:12]}-retry")
        self.loop = Loop(
            terms,
            runtime,
            clients,
            self._transactor,
            TakeOver(clients, terms, self._transactor.transactional_id),
            Missing(
                clients, names, clock, after_ms=terms.missing_ms, longest_ms=terms.policy.longest_ms, on_event=on_event
            ),
            Trimming(clients.offsets, names.retry, clock, on_event),
        )
        clients.membership.join(self.loop)

    def _refuse_unfit(self) -> None:
        """Refuse an intake from which messages would not come back, as far as its published status tells."""
        clients, names = self._clients, self._terms.names
        topics, clock = TopicAdmin(clients.admin), self._runtime.clock
        try:
            statuses = statuses_of(names.intake, clients.cluster, topics, clients.offsets, clock, clients.warn)
        except BrokerError as error:
            self._runtime.on_event("intake_not_known", intake=names.intake, reason=str(error))
            return
        if not statuses:
            reason = "no service has said what it accepts"
            self._runtime.on_event("intake_not_known", intake=names.intake, reason=reason)
        why = objection(statuses.values(), names, self._terms.policy)
        if why is not None:
            raise UsageError(why)

    @property
    def is_over(self) -> bool:
        """Whether the session must end: `stop` was called, or a handler raised SystemExit or KeyboardInterrupt."""
        return self._runtime.stopping() or self.loop.exit is not None

    def turn(self) -> None:
        """Run one turn of the loop.

        Raises:
            UsageError: a partition is in a state that no consumer can continue from.
            MembershipLostError: this member has lost its place in the group permanently.
        """
        self.loop.turn()

    def leave(self) -> None:
        """Commit, release the partitions and close; then raise the handler's SystemExit or KeyboardInterrupt."""
        try:
            self.loop.hand_over()
        except BaseException:
            self.abandon()
            raise
        self._close()
        if self.loop.exit is not None:
            raise self.loop.exit

    def abandon(self) -> None:
        """Drop all partitions without a commit, and close: uncommitted messages are handled again."""
        try:
            self.loop.abandon()
        finally:
            self._close()

    def _close(self) -> None:
        self._clients.close()
        self._transactor.close()
        self._runtime.handling.close()
