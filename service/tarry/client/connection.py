"""The producers of the client's own, and what its promises rest on.

Idempotent, acknowledged by all replicas, one request in flight so that a retry never overtakes, and Java's partitioner
so that a key has one partition whoever sends it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.client.forking import Origin, keep_in_children
from tarry.client.pending import Intake, Pending, refusal
from tarry.client.rescheduling import Rescheduler
from tarry.client.sending import Sender
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, ConfigError, RetriableError
from tarry.kafka.contact import WITHIN_S, Contact
from tarry.kafka.errors import error_of, producer_errors
from tarry.kafka.settings import Cluster

Options = Mapping[str, str | int | float | bool]

_LONGEST_S = 2_000_000.0
"""librdkafka's time-outs are 32-bit numbers of milliseconds."""

WINDOW = 10_000
"""Messages that are sent and not yet seen acknowledged, at most, where many are sent; the queue takes twice as many."""

REPORTS_WITHIN_S = 3.0
"""How long after a message's time-out its report is waited for."""

_PROMISED = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
    "partitioner": "murmur2_random",
    # A misspelt intake must not become a topic.
    "allow.auto.create.topics": False,
    # Receipts are made from reports of success.
    "delivery.report.only.error": False,
}
_OTHER_NAMES = (
    "bootstrap.servers",
    "delivery.timeout.ms",
    "max.in.flight",
    "request.required.acks",
    "transactional.id",
)


class Connection:
    """A producer, and what sends and re-schedules by it.

    Args:
        bootstrap_servers: Kafka's, `HOST:PORT`, several with commas.
        intake: the topic of an intake whose delay is given by headers.
        options: librdkafka's properties, for security and the like.
        tick_ms: the service's `wheel.tick_ms`.
        timeout_s: how long an acknowledgement is waited for.
        transactional_id: of the transactions that re-schedule; None: a random one.
        clock: for the records' timestamps.
        on_report: called by who polls when a record's report is there.

    Raises:
        HeaderError: the intake's name is no topic name.
        ConfigError: an option would break a promise, or librdkafka does not know it.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        intake: str,
        options: Options | None,
        *,
        tick_ms: int,
        timeout_s: float,
        transactional_id: str | None,
        clock: Clock | None,
        on_report: Callable[[Pending[Any]], None] | None = None,
    ) -> None:
        checked = Intake(intake, tick_ms)
        self._intake = intake
        clock = clock or SystemClock()
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < _LONGEST_S:
            raise ConfigError(f"timeout_s: a number of seconds, more than 0: {timeout_s!r}")
        if transactional_id is not None and (not isinstance(transactional_id, str) or not transactional_id):
            raise ConfigError(f"transactional_id: text that is not empty, or None: {transactional_id!r}")
        cluster = Cluster(bootstrap_servers, _checked(options))
        self._contact = Contact(bootstrap_servers, SystemClock())
        self.producer = _producer(cluster, timeout_s, self._contact)
        # Whoever is told of reports may not wait for an answer: it looks after that by itself.
        reach = self.reach if on_report is None else lambda: None
        self.sender = Sender(self.producer, checked, clock, on_report=on_report, reach=reach)
        self.rescheduler = Rescheduler(cluster, checked, transactional_id, timeout_s, clock, self.reach)
        self.origin = Origin()
        self.timeout_s = timeout_s
        keep_in_children(self)

    def clients(self) -> list[object]:
        """Those that a forked process inherits."""
        return [self.producer, *self.rescheduler.clients()]

    @property
    def is_reached(self) -> bool:
        """Whether `reach` has nothing to do."""
        return self._contact.is_made

    @property
    def is_unused(self) -> bool:
        """Whether nothing was sent by it so far."""
        return not self._contact.is_made and not len(self.producer) and not self.rescheduler.clients()

    def reach(self) -> None:
        """Before the first record: see that there is a cluster at the address, and the intake in it.

        Raises:
            RetriableError: nobody answers at the address.
            BrokerError: there is no such intake, or it may not be asked about.
        """
        within_s = min(WITHIN_S, self.timeout_s)
        refused = self._contact.make(self.producer.list_topics, self.producer.poll, self._intake, within_s)
        if refused is not None:
            if refused.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise refusal(refused, self._intake)
            raise BrokerError(f"there is no topic {self._intake}: has `tarry serve` made it?", refused.name())

    def close(self) -> None:
        """Wait for what is still on its way, and end.

        Raises:
            RetriableError: some of it was not acknowledged in time.
        """
        self.rescheduler.close()
        # The message time-out ends every wait; the library looks for what is over once a second.
        with producer_errors(f"send to {self._intake}"):
            unacknowledged = self.producer.flush(self.timeout_s + REPORTS_WITHIN_S)
        if unacknowledged:
            raise RetriableError(f"{unacknowledged} messages to {self._intake} were not acknowledged")


def _checked(options: Options | None) -> Options:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: not a mapping of librdkafka's properties: {type(options).__name__}")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise ConfigError(
                f"options: {name!s} is neither text nor a number nor a truth value: {type(value).__name__}"
            )
    return options


def _producer(cluster: Cluster, timeout_s: float, contact: Contact) -> Producer:
    for name in cluster.options:
        if name in _PROMISED or name in _OTHER_NAMES:
            raise ConfigError(f"options: {name} may not be set: its value is part of what is promised")
    properties = {
        "linger.ms": 1,
        "topic.metadata.propagation.max.ms": 5_000,
        "queue.buffering.max.messages": 2 * WINDOW,
        **cluster.client(),
        **_PROMISED,
        "error_cb": contact.note,
        "message.timeout.ms": max(1, int(timeout_s * 1_000)),
    }
    try:
        return Producer(properties)
    except KafkaException as exception:
        raise ConfigError(f"options: {error_of(exception).str()}") from exception
