"""A consumer's time as a member of its group: a session creates the Kafka clients, and closes them."""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tarry.client.retry.core.fitness import objection
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.client.retry.handling import Handling
from tarry.client.retry.loop import READ_WAIT_S, Loop
from tarry.client.retry.missing import Missing
from tarry.client.retry.takeover import Begin, TakeOver
from tarry.client.retry.topics import make_or_check
from tarry.client.retry.trimming import Trimming
from tarry.clock import Clock
from tarry.errors import BrokerError, UsageError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.reader import Reader
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS, Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor

PATIENCE_S = 30.0
"""How long to retry the topic check at the start while the brokers give retriable errors, in seconds."""

LOOK_FOR_TOPICS_MS: Final = 5_000
"""How often the member refreshes the metadata of its topics; librdkafka's default is five minutes.

A broker may not know a topic yet that was just created. The classic group then assigns its partitions to no member, and
the consumer would not read until the next refresh (seen when two consumers started at the same time).
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """The validated arguments of a consumer.

    Attributes:
        names: the names of its topics.
        policy: how often and how long to retry.
        keeps_order: whether later messages of a key wait for a failed one.
        begin: where a new group begins to read.
        max_key_queue: how many messages of one key may wait for a failed one.
        missing_ms: how late a message may come back before the consumer looks for it.
        replication: the replication factor of the topics that the consumer creates.
        protocol: the group protocol.
    """

    names: Names
    policy: RetryPolicy
    keeps_order: bool
    begin: Begin
    max_key_queue: int
    missing_ms: int
    replication: int
    protocol: Literal["classic", "consumer"]


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of a consumer's waits.

    Attributes:
        read_wait_s: how long a turn waits for messages, in seconds.
        poll_interval_ms: librdkafka's `max.poll.interval.ms`.
    """

    read_wait_s: float = READ_WAIT_S
    poll_interval_ms: int = MAX_POLL_INTERVAL_MS


REAL_TIME: Final = Pace()


class Session:
    """A member of the consumer group; not thread-safe.

    Args:
        cluster: the Kafka cluster.
        terms: the consumer's arguments.
        handling: runs the handler.
        clock: wall and monotonic time.
        choose: the random source of the jitter.
        stopping: tells whether to handle no more messages.
        on_event: called with the name of an event and its fields.
        pace: the limits of its waits.

    Raises:
        UsageError: a topic is missing or has a wrong configuration, or the service says that the intake does not fit.
        RetriableError: the brokers do not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        terms: Terms,
        handling: Handling,
        clock: Clock,
        choose: random.Random,
        stopping: Callable[[], bool],
        on_event: Callable[..., None],
        pace: Pace = REAL_TIME,
    ) -> None:
        names = terms.names
        self._on_event = on_event
        self._stopping = stopping
        self._handling = handling
        admin = cluster.clients.admin(cluster.admin())
        patiently(lambda: make_or_check(admin, names, terms.replication), clock, PATIENCE_S)
        self._offsets = Offsets(admin, names.group, cluster)
        try:
            self._refuse_unfit(cluster, TopicAdmin(admin), terms, clock)
        except BaseException:
            self._offsets.close()
            raise
        properties = cluster.member(names.group, terms.protocol, None) | {
            "max.poll.interval.ms": pace.poll_interval_ms,
            "topic.metadata.refresh.interval.ms": LOOK_FOR_TOPICS_MS,
        }
        self._membership = Membership(cluster.clients, properties, [names.topic, names.retry], self._warn)
        self._reader = Reader(cluster, self._warn)
        self._transactor = Transactor(cluster, f"{names.group}.{uuid.uuid4().hex[:12]}-retry")
        take_over = TakeOver(
            cluster,
            names,
            self._membership,
            self._offsets,
            self._transactor.transactional_id,
            terms.policy,
            terms.begin,
            self._warn,
            keeps_order=terms.keeps_order,
        )
        missing = Missing(
            cluster,
            names,
            TopicAdmin(admin),
            self._offsets,
            clock,
            after_ms=terms.missing_ms,
            longest_ms=terms.policy.longest_ms,
            on_event=on_event,
        )
        self.loop = Loop(
            names,
            self._membership,
            self._reader,
            self._transactor,
            take_over,
            handling,
            missing,
            Trimming(self._offsets, names.retry, clock, on_event),
            terms.max_key_queue,
            clock,
            choose,
            stopping,
            on_event,
            pace.read_wait_s,
        )
        self._membership.join(self.loop)

    def _refuse_unfit(self, cluster: Cluster, topics: TopicAdmin, terms: Terms, clock: Clock) -> None:
        """Refuse an intake from which messages would not come back, as far as its published status tells."""
        try:
            statuses = statuses_of(terms.names.intake, cluster, topics, self._offsets, clock, self._warn)
        except BrokerError as error:
            self._on_event("intake_not_known", intake=terms.names.intake, reason=str(error))
            return
        if not statuses:
            self._on_event("intake_not_known", intake=terms.names.intake, reason="no service has said what it accepts")
        why = objection(statuses.values(), terms.names, terms.policy)
        if why is not None:
            raise UsageError(why)

    @property
    def is_over(self) -> bool:
        """Whether the session must end: `stop` was called, or a handler raised SystemExit or KeyboardInterrupt."""
        return self._stopping() or self.loop.exit is not None

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
        try:
            self._membership.close()
        except BrokerError as error:
            self._on_event("not_left", reason=str(error))
        self._reader.close()
        self._transactor.close()
        self._offsets.close()
        self._handling.close()

    def _warn(self, text: str) -> None:
        self._on_event("kafka_warning", reason=text)
