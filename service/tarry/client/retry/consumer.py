"""A consumer that tries again later what its handler could not do, and keeps the order of each key.

Nothing but topics lies between it and the service: a message whose handler failed is sent to an intake, to come back to
a topic that this consumer reads as well.
"""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, TypeVar

from tarry.client.events import logging_to
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.client.retry.handling import Handler, Handling
from tarry.client.retry.session import REAL_TIME, Pace, Session, Terms
from tarry.client.retry.takeover import Begin
from tarry.clock import Clock, SystemClock
from tarry.errors import ConfigError
from tarry.kafka.clients import LIBRARY, Clients
from tarry.kafka.settings import Cluster

_NO_OPTIONS: Mapping[str, str | int | float | bool] = MappingProxyType({})
_log = logging_to("tarry.retry", {"taken_over", "partition_waits", "intake_not_known"})
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
        intake: of the service, with a target list that allows `<topic>.<group>.retry` and a `max_delay` that is not
            shorter than the policy's `longest_ms`; `run` refuses one that the service says is another.
        order: `"key"` or `"none"`.
        begin: where a new group begins, `"earliest"` or `"latest"`.
        max_key_queue: messages of one key that may wait behind one that failed; with more, their partition waits.
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
        max_key_queue: int = 10_000,
        missing_after: timedelta = timedelta(minutes=1),
        replication: int = 1,
        group_protocol: Literal["classic", "consumer"] = "classic",
        options: Mapping[str, str | int | float | bool] = _NO_OPTIONS,
        on_event: Callable[..., None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_key_queue < 1:
            raise ConfigError(f"max_key_queue: at least 1: {max_key_queue}")
        if not isinstance(missing_after, timedelta):
            raise ConfigError(f"missing_after: a timedelta: {missing_after!r}")
        if not isinstance(policy, RetryPolicy | None):
            raise ConfigError(f"policy: a RetryPolicy: {policy!r}")
        if not callable(handler):
            raise ConfigError(f"handler: a function of a message and a transaction: {handler!r}")
        self.names = Names(topic, group, intake)
        self._cluster = Cluster(bootstrap_servers, options, reads_as=group)
        self.handler = handler
        self._terms = Terms(
            self.names,
            policy or RetryPolicy(),
            _chosen(Order, "order", order) is Order.KEY,
            _chosen(Begin, "begin", begin),
            max_key_queue,
            missing_after // timedelta(milliseconds=1),
            replication,
            group_protocol,
        )
        self._on_event = on_event or _log
        self._clock = clock or SystemClock()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Have `run` return after the message that is being handled; from any thread, or a signal's handler."""
        self._stop.set()

    def run(self) -> None:
        """Consume until `stop`, and give all up in order. Ctrl-C ends it too: what is not written then is done again.

        A handler ends it with SystemExit or KeyboardInterrupt: what was handled before is written, and the handler's
        message is the next owner's.

        Raises:
            SystemExit: a handler has raised it.
            UsageError: a topic is missing or is not as it must be; what fails would not come back from the intake; or
                a partition can be served by nobody.
            MembershipLostError: this member is out of its group for good.
            RetriableError: the brokers do not answer at the start.
        """
        session = self.join()
        try:
            while not session.is_over:
                session.turn()
        except BaseException:
            session.abandon()
            raise
        session.leave()

    def join(
        self,
        clients: Clients = LIBRARY,
        clock: Clock | None = None,
        handling: Handling | None = None,
        choose: random.Random | None = None,
        pace: Pace = REAL_TIME,
    ) -> Session:
        """Join the group; `run` is this, and turns until it is over. For who has other clients, and another clock.

        Args:
            clients: who makes them.
            clock: wall and monotonic time; None: the consumer's own.
            handling: runs the handler; None: in a thread.
            choose: for the jitter; None: by chance.
            pace: how long it may wait.

        Raises:
            UsageError: as `run`.
            RetriableError: as `run`.
        """
        return Session(
            replace(self._cluster, clients=clients),
            self._terms,
            handling or Handling(self.handler),
            clock or self._clock,
            choose or random.Random(),
            self._stop.is_set,
            self._on_event,
            pace,
        )


def _chosen(choices: type[Choice], name: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {' or '.join(choices)}: {value!r}") from error
