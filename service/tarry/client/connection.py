"""The client's own producers, with the settings that its guarantees depend on.

They are idempotent, wait for all in-sync replicas (`acks=all`), and have one request in flight so that a retry never
overtakes. They use the Java clients' partitioner, so that a key has the same partition whichever client sends it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.client.forking import CreatingProcess, keep_in_children
from tarry.client.pending import IntakeTopic, Pending, refusal
from tarry.client.rescheduling import Rescheduler
from tarry.client.sending import Sender
from tarry.clock import Clock, SystemClock
from tarry.errors import BrokerError, ConfigError, RetriableError
from tarry.kafka.contact import WITHIN_S, Contact
from tarry.kafka.errors import error_of, producer_errors
from tarry.kafka.settings import Cluster, Options
from tarry.kafka.topics import no_intake

_LONGEST_S = 2_000_000.0
"""The upper bound of `timeout_s`: librdkafka's time-outs are 32-bit numbers of milliseconds."""

WINDOW = 10_000
"""The most messages that `send_many` sends ahead of the receipts; the producer's queue has room for twice as many."""

REPORTS_WITHIN_S = 3.0
"""How long to wait for a delivery report after the message's time-out: librdkafka reports it up to 2 s late."""

_PROMISED = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
    "partitioner": "murmur2_random",
    # A misspelt intake must not become a topic.
    "allow.auto.create.topics": False,
    # Receipts need the delivery reports of successes.
    "delivery.report.only.error": False,
}
_OTHER_NAMES = (
    "bootstrap.servers",
    "delivery.timeout.ms",
    "max.in.flight",
    "request.required.acks",
    "transactional.id",
)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The arguments of a delayed producer.

    Attributes:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        intake: where messages go.
        options: librdkafka properties, for example for security.
        timeout_s: how long to wait for an acknowledgement, in seconds.
        transactional_id: for the rescheduling transactions; None: a random one.
        clock: gives the timestamps of the records; None: the machine's.

    Raises:
        ConfigError: `timeout_s` or `transactional_id` is invalid.
    """

    bootstrap_servers: str
    intake: IntakeTopic
    options: Options | None = field(repr=False)
    timeout_s: float
    transactional_id: str | None
    clock: Clock | None

    def __post_init__(self) -> None:
        limit_s, id_ = self.timeout_s, self.transactional_id
        if isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or not 0 < limit_s < _LONGEST_S:
            raise ConfigError(f"timeout_s: must be a number of seconds greater than 0: {limit_s!r}")
        if id_ is not None and (not isinstance(id_, str) or not id_):
            raise ConfigError(f"transactional_id: must be non-empty text or None: {id_!r}")


class Connection:
    """A Kafka producer, with the sender and the rescheduler that use the same settings.

    Args:
        settings: the arguments of the delayed producer.
        on_report: called with each record that has its delivery report, in the thread that polls. None: no call, and
            the sender checks by itself that the cluster answers, before the first record.

    Raises:
        ConfigError: an option would break a guarantee, or librdkafka does not know it.
    """

    def __init__(self, settings: ProducerSettings, on_report: Callable[[Pending[Any]], None] | None = None) -> None:
        intake, timeout_s, clock = settings.intake, settings.timeout_s, settings.clock or SystemClock()
        cluster = Cluster(settings.bootstrap_servers, _checked(settings.options))
        self._intake = intake.topic
        self._contact = Contact(cluster.bootstrap_servers, SystemClock())
        self.producer = _producer(cluster, timeout_s, self._contact)
        # With `on_report` (asyncio) a call must not block: the reports thread calls `reach` instead.
        reach = self.reach if on_report is None else lambda: None
        self.sender = Sender(self.producer, intake, clock, on_report=on_report, reach=reach)
        self.rescheduler = Rescheduler(cluster, intake, settings.transactional_id, timeout_s, clock, self.reach)
        self.origin = CreatingProcess()
        self.timeout_s = timeout_s
        keep_in_children(self)

    def clients(self) -> list[object]:
        """Return the librdkafka clients, which a forked process inherits."""
        return [self.producer, *self.rescheduler.clients()]

    @property
    def is_reached(self) -> bool:
        """Whether the cluster has answered; then `reach` does nothing."""
        return self._contact.is_made

    @property
    def is_unused(self) -> bool:
        """Whether nothing has been sent yet."""
        return not self._contact.is_made and not len(self.producer) and not self.rescheduler.clients()

    def reach(self) -> None:
        """Check, before the first record, that a cluster answers and has the intake.

        Raises:
            RetriableError: no broker answers at the address.
            BrokerError: the intake does not exist, or the client may not describe it.
        """
        within_s = min(WITHIN_S, self.timeout_s)
        refused = self._contact.make(self.producer.list_topics, self.producer.poll, self._intake, within_s)
        if refused is not None:
            if refused.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise refusal(refused, self._intake)
            raise BrokerError(no_intake(self._intake), refused.name())

    def close(self) -> None:
        """Wait until all sent messages are acknowledged, then close.

        Raises:
            RetriableError: some messages were not acknowledged in time.
        """
        self.rescheduler.close()
        # The message time-out ends every wait; librdkafka checks for timed-out messages once a second.
        with producer_errors(f"send to {self._intake}"):
            unacknowledged = self.producer.flush(self.timeout_s + REPORTS_WITHIN_S)
        if unacknowledged:
            raise RetriableError(
                f"{unacknowledged} messages to {self._intake} were not acknowledged in time, and may or may not be "
                "written"
            )


def _checked(options: Options | None) -> Options:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"options: not a mapping of librdkafka properties: {type(options).__name__}")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise ConfigError(f"options: {name!s} is neither text nor a number nor a boolean: {type(value).__name__}")
    return options


def _producer(cluster: Cluster, timeout_s: float, contact: Contact) -> Producer:
    for name in cluster.options:
        if name in _PROMISED or name in _OTHER_NAMES:
            raise ConfigError(f"options: {name} may not be set: the client's guarantees depend on its value")
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
