"""A consumer that tries again later what its handler could not do, and keeps the order of each key.

Nothing but topics lies between it and the service: a message whose handler failed is sent to an intake, to come back to
a topic that this consumer reads as well.
"""

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, TypeVar

from tarry.client.events import logging_to
from tarry.client.retry.handling import Handler, Handling
from tarry.client.retry.loop import Loop
from tarry.client.retry.missing import Missing
from tarry.client.retry.takeover import Begin, TakeOver
from tarry.client.retry.topics import make_or_check
from tarry.client.retry.trimming import Trimming
from tarry.clock import Clock, SystemClock
from tarry.core.retry.names import Names
from tarry.core.retry.policy import RetryPolicy
from tarry.errors import BrokerError, ConfigError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor

PATIENCE_S = 30.0

_NO_OPTIONS: Mapping[str, str | int | float | bool] = MappingProxyType({})
_log = logging_to("tarry.retry", {"taken_over", "partition_waits"})
Choice = TypeVar("Choice", bound=StrEnum)


class Order(StrEnum):
    """What waits for a message that failed."""

    KEY = "key"
    """All that follows of its key, and nothing else."""
    NONE = "none"
    """Nothing."""


class RetryingConsumer:
    """Consumes a topic as a member of a group; `run` does it all.

    A message whose handler returns is done. One whose handler raises comes back as the policy says, and with
    `order="key"` no later message of its key is handled before it is done, or given up. What is given up is in
    `<topic>.<group>.dead`, with its attempts, its first and its last error.

    A handler that sends what it makes through the transaction it is handed works exactly once, for read_committed
    readers. Whatever else it does, it does at least once: it is called again for a message whose transaction was lost.

    Example:
        def handle(message, transaction):
            transaction.produce("invoices", make_invoice(message.value), message.key)

        RetryingConsumer("localhost:9092", "orders", "billing", handle).run()

    Args:
        bootstrap_servers: Kafka's, `HOST:PORT`, several with commas.
        topic: whose messages are handled.
        group: the consumer group; the topics beside are named after both.
        handler: a function or a coroutine function of a `RetryMessage` and a `HandlerTransaction`. It runs in one
            thread, one message at a time, and may take as long as it likes.
        policy: how often and how long it is tried again.
        intake: of the service, with a target list that allows `<topic>.<group>.retry`.
        order: `"key"` or `"none"`.
        begin: where a new group begins, `"earliest"` or `"latest"`.
        max_convoy: messages of one key that wait for one that failed; a partition with more of them waits as a whole.
        missing_after: a message that is to come back and is so late is looked for: the intake may have cancelled it.
        replication: copies of the topics that are made.
        group_protocol: `"classic"`, or `"consumer"` (KIP-848).
        options: librdkafka's properties, for security and the like.
        on_event: takes an event's name and fields; None: the logger `tarry.retry`.
        clock: wall and monotonic time.

    Raises:
        ConfigError: a value makes no sense.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        group: str,
        handler: Handler,
        policy: RetryPolicy | None = None,
        *,
        intake: str = "tarry.delayed",
        order: Literal["key", "none"] = "key",
        begin: Literal["earliest", "latest"] = "earliest",
        max_convoy: int = 10_000,
        missing_after: timedelta = timedelta(minutes=1),
        replication: int = 1,
        group_protocol: Literal["classic", "consumer"] = "classic",
        options: Mapping[str, str | int | float | bool] = _NO_OPTIONS,
        on_event: Callable[..., None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_convoy < 1:
            raise ConfigError(f"max_convoy: at least 1: {max_convoy}")
        self.names = Names(topic, group, intake)
        self._cluster = Cluster(bootstrap_servers, options, reads_as=group)
        self._handler = handler
        self._policy = policy or RetryPolicy()
        self._order = _chosen(Order, "order", order)
        self._begin = _chosen(Begin, "begin", begin)
        self._max_convoy = max_convoy
        self._missing_ms = missing_after // timedelta(milliseconds=1)
        self._replication = replication
        self._protocol: Literal["classic", "consumer"] = group_protocol
        self._on_event = on_event or _log
        self._clock = clock or SystemClock()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Have `run` return after the message that is being handled; from any thread, or a signal's handler."""
        self._stop.set()

    def run(self) -> None:
        """Consume until `stop`, and give all up in order. Ctrl-C ends it too: what is not written then is done again.

        Raises:
            UsageError: a topic is missing or is not as it must be; or a partition can be served by nobody.
            MembershipLostError: this member is out of its group for good.
            RetriableError: the brokers do not answer at the start.
        """
        names, cluster = self.names, self._cluster
        admin = cluster.clients.admin(cluster.admin())
        patiently(lambda: make_or_check(admin, names, self._replication), self._clock, PATIENCE_S)
        properties = cluster.member(names.group, self._protocol, None)
        membership = Membership(cluster.clients, properties, [names.topic, names.retry], self._warn)
        offsets = Offsets(admin, names.group, cluster)
        reader = Reader(cluster, self._warn)
        transactor = Transactor(cluster, f"{names.group}.{uuid.uuid4().hex[:12]}-retry")
        handling = Handling(self._handler)
        take_over = TakeOver(
            cluster,
            names,
            membership,
            offsets,
            transactor.transactional_id,
            self._policy,
            self._begin,
            self._warn,
            keeps_order=self._order is Order.KEY,
        )
        loop = Loop(
            names,
            membership,
            reader,
            transactor,
            take_over,
            handling,
            Missing(
                cluster,
                names,
                TopicAdmin(admin),
                offsets,
                self._clock,
                after_ms=self._missing_ms,
                longest_ms=self._policy.longest_ms,
                on_event=self._on_event,
            ),
            Trimming(offsets, names.retry, self._clock, self._on_event),
            self._max_convoy,
            self._clock,
            random.Random(),
            self._stop.is_set,
            self._on_event,
        )
        membership.join(loop)
        try:
            while not self._stop.is_set():
                loop.turn()
            loop.hand_over()
        except BaseException:
            loop.abandon()
            raise
        finally:
            try:
                membership.close()
            except BrokerError as error:
                self._on_event("not_left", reason=str(error))
            reader.close()
            transactor.close()
            offsets.close()
            handling.close()

    def _warn(self, text: str) -> None:
        self._on_event("kafka_warning", reason=text)


def _chosen(choices: type[Choice], name: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {' or '.join(choices)}: {value!r}") from error
