"""The producers of the client's own, and what its promises rest on.

Idempotent, acknowledged by all replicas, one request in flight so that a retry never overtakes, and Java's partitioner
so that a key has one partition whoever sends it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from tarry.client.pending import Intake, Pending
from tarry.client.rescheduling import Rescheduler
from tarry.client.sending import Sender
from tarry.clock import Clock, SystemClock
from tarry.errors import ConfigError, RetriableError
from tarry.kafka.errors import error_of, producer_errors
from tarry.kafka.settings import Cluster

Options = Mapping[str, str | int | float | bool]

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
        self._timeout_s = timeout_s
        clock = clock or SystemClock()
        cluster = Cluster(bootstrap_servers, options or {})
        self.producer = _producer(cluster, timeout_s)
        self.sender = Sender(self.producer, checked, clock, on_report=on_report)
        self.rescheduler = Rescheduler(cluster, checked, transactional_id, timeout_s, clock)

    def close(self) -> None:
        """Wait for what is still on its way, and end.

        Raises:
            RetriableError: some of it was not acknowledged in time.
        """
        self.rescheduler.close()
        # The message time-out ends every wait; the library looks for what is over once a second.
        with producer_errors(f"send to {self._intake}"):
            unacknowledged = self.producer.flush(self._timeout_s + REPORTS_WITHIN_S)
        if unacknowledged:
            raise RetriableError(f"{unacknowledged} messages to {self._intake} were not acknowledged")


def _producer(cluster: Cluster, timeout_s: float) -> Producer:
    for name in cluster.options:
        if name in _PROMISED or name in _OTHER_NAMES:
            raise ConfigError(f"options: {name} may not be set: its value is part of what is promised")
    properties = {
        "linger.ms": 1,
        "topic.metadata.propagation.max.ms": 5_000,
        "queue.buffering.max.messages": 2 * WINDOW,
        **cluster.client(),
        **_PROMISED,
        "message.timeout.ms": max(1, int(timeout_s * 1_000)),
    }
    try:
        return Producer(properties)
    except KafkaException as exception:
        raise ConfigError(f"options: {error_of(exception).str()}") from exception
