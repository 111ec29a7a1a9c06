"""A consumer from when it joins its group until it has left it: its clients are made here, and closed here."""

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

LOOK_FOR_TOPICS_MS: Final = 5_000
"""How often the member looks whether its topics are there: in five minutes the client library would look again.

A broker may be asked for a topic that was just made and not know it yet. The classic group then gives nobody its
partitions, and the consumer would stand still for so long (seen where two began at one time).
"""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a consumer was told.

    Attributes:
        names: of its topics.
        policy: how often and how long it is tried again.
        keeps_order: whether a key's messages wait for one that failed.
        begin: where a new group begins.
        max_key_queue: messages of one key that wait for one that failed.
        missing_ms: so late a message is looked for.
        replication: copies of the topics that are made.
        protocol: of the group.
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
    """How long a consumer may wait, and be waited for.

    Attributes:
        read_wait_s: for messages, in a turn.
        poll_interval_ms: how long it may not look at its group.
    """

    read_wait_s: float = READ_WAIT_S
    poll_interval_ms: int = MAX_POLL_INTERVAL_MS


REAL_TIME: Final = Pace()


class Session:
    """A member of the group; one thread.

    Args:
        cluster: where.
        terms: what the consumer was told.
        handling: runs the handler.
        clock: wall and monotonic time.
        choose: for the jitter.
        stopping: whether to look at no more messages.
        on_event: takes an event's name and fields, for the log.
        pace: how long it may wait.

    Raises:
        UsageError: a topic is missing or is not as it must be, or the intake is known to be unfit.
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
        """Refuse an intake from which messages would not come back, where that is known."""
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
        """Whether it is to end: it was told to, or a handler ends the program."""
        return self._stopping() or self.loop.exit is not None

    def turn(self) -> None:
        """Go once around the loop.

        Raises:
            UsageError: a partition can be served by nobody.
            MembershipLostError: this member is out for good.
        """
        self.loop.turn()

    def leave(self) -> None:
        """Give all up in order, and close; what a handler raised to end the program is raised behind that."""
        try:
            self.loop.hand_over()
        except BaseException:
            self.abandon()
            raise
        self._close()
        if self.loop.exit is not None:
            raise self.loop.exit

    def abandon(self) -> None:
        """Give all up as it is, and close: what is not written is done again."""
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
