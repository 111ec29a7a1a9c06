"""A consumer that retries failed messages later, and keeps the order of each key.

It talks to the service through topics only. When the handler fails at a message, the consumer sends the message to an
intake, and the service delivers it to the retry topic, which the consumer reads too.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Literal, TypeVar

from tarry.client.events import logging_to
from tarry.client.group_consumer import Begin
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.client.retry.handling import Handler, Handling
from tarry.client.retry.session import Session
from tarry.client.retry.terms import REAL_TIME, Pace, Runtime, Terms
from tarry.clock import Clock, SystemClock
from tarry.errors import ConfigError
from tarry.kafka.clients import LIBRARY, Clients
from tarry.kafka.settings import NO_OPTIONS, Cluster, Options

_log = logging_to("tarry.retry", {"taken_over", "partition_waits", "intake_not_known"})
Choice = TypeVar("Choice", bound=StrEnum)


class Order(StrEnum):
    """Which messages wait for a failed message."""

    KEY = "key"
    """The later messages of its key, and no others."""
    NONE = "none"
    """No messages."""


class RetryingConsumer:
    """Consumes a topic as a member of a consumer group; `run` joins, consumes and leaves.

    A message is done when the handler returns. If the handler raises, the message comes back as the policy says. With
    `order="key"` the handler gets no later message of the same key until the failed message is done or given up. The
    consumer writes a message that it gives up to `<topic>.<group>.dead`, with the number of attempts, the first and the
    last error.

    Records that the handler sends through its `HandlerTransaction` are written exactly once, for read_committed
    readers. Other effects of the handler happen at least once: if the transaction of a message is lost, the handler is
    called again for the message.

    Example:
        def handle(message, transaction):
            transaction.produce("invoices", make_invoice(message.value), message.key)

        RetryingConsumer("localhost:9092", "orders", "billing", handle).run()

    Args:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        topic: the topic to consume.
        group: the consumer group. The retry, state and dead-letter topics are named after topic and group.
        handler: a callable of a `RetryMessage` and a `HandlerTransaction`. It runs in one thread, for one message at a
            time, with no time limit. An awaitable or a `concurrent.futures.Future` that it returns is waited for; a
            generator counts as a failure, because its code has not run.
        policy: how often and how long to retry.
        intake: an intake of the service whose target list allows `<topic>.<group>.retry` and whose `max_delay` is at
            least the policy's `longest_ms`. `run` refuses an intake if the service says that it does not fit.
        order: `"key"` or `"none"`; see `Order`.
        begin: where a new group begins to read, `"earliest"` or `"latest"`.
        max_key_queue: how many messages of one key may wait after a failed one; if there are more, the consumer
            pauses their partition.
        missing_after: how late a message may come back before the consumer looks for it in the intake's results: the
            intake may have cancelled it.
        replication: the replication factor of the topics that the consumer creates.
        group_protocol: `"classic"`, or `"consumer"` (KIP-848).
        options: librdkafka properties, for example for security.
        on_event: called with the name of an event and its fields; None: log to the logger `tarry.retry`.
        clock: wall and monotonic time.

    Raises:
        ConfigError: an argument has an invalid value.
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
        options: Options = NO_OPTIONS,
        on_event: Callable[..., None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if max_key_queue < 1:
            raise ConfigError(f"max_key_queue: must be at least 1: {max_key_queue}")
        if not isinstance(missing_after, timedelta):
            raise ConfigError(f"missing_after: must be a timedelta: {missing_after!r}")
        if not isinstance(policy, RetryPolicy | None):
            raise ConfigError(f"policy: must be a RetryPolicy: {policy!r}")
        if not callable(handler):
            raise ConfigError(f"handler: must be a function of a message and a transaction: {handler!r}")
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
        """Make `run` return after the current message. Callable from any thread and from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Consume until `stop`, then commit, release the partitions and leave the group.

        Ctrl-C ends `run` at once: messages that are not committed yet are handled again. A handler can end `run` with
        SystemExit or KeyboardInterrupt: `run` then commits the messages before the current one, and the next owner of
        the partition handles the current one.

        Raises:
            SystemExit: a handler raised it.
            UsageError: a topic is missing or has a wrong configuration; failed messages would not come back from the
                intake; or a partition is in a state that no consumer can continue from.
            MembershipLostError: this member has lost its place in the group permanently.
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
        """Join the group, and return the session that `run` would drive; for tests with other clients or clocks.

        Args:
            clients: creates the Kafka clients.
            clock: wall and monotonic time; None: the consumer's own.
            handling: runs the handler; None: in a thread.
            choose: the random source of the jitter; None: a new one.
            pace: the limits of its waits.

        Raises:
            UsageError: as `run`.
            RetriableError: as `run`.
        """
        runtime = Runtime(
            handling or Handling(self.handler),
            clock or self._clock,
            choose or random.Random(),
            self._stop.is_set,
            self._on_event,
            pace,
        )
        return Session(replace(self._cluster, clients=clients), self._terms, runtime)


def _chosen(choices: type[Choice], name: str, value: str) -> Choice:
    try:
        return choices(value)
    except ValueError as error:
        raise ConfigError(f"{name}: must be {' or '.join(choices)}: {value!r}") from error
