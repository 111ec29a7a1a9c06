"""librdkafka's properties for each client of the service, and why.

The user's `kafka.options` come first (security, addresses, buffers); what the promises rest on comes last and wins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tarry.errors import ConfigError
from tarry.kafka.clients import LIBRARY, Clients, Properties
from tarry.library_log import library_log

SESSION_TIMEOUT_MS = 6_000
"""How long a dead member is waited for: Kafka's own least (`group.min.session.timeout.ms`)."""

HEARTBEAT_MS = 500
"""How long a member of a classic group may go on without hearing that another has left, whose partitions wait for it.

The usual third of the session would be most of the pause of a rolling update.
"""

TRANSACTION_TIMEOUT_MS = 30_000
"""How long the broker keeps the open transaction of a process that nobody fences."""

MAX_POLL_INTERVAL_MS = 45_000
"""How long the loop may not look at the group, and a classic group waits for who does not join again.

A request to join is waited for as long: on a connection that swallows what it is given, nobody serves until then. The
supervisor ends a loop that stands still much sooner.
"""

MESSAGE_TIMEOUT_MS = 5_000
"""How long a target without a leader may hold a firing transaction."""

BATCH_BYTES = 262_144
"""The largest batch of several records: any topic of an intake takes it, and most targets.

Where more than one batch waits for a partition, the client library spins until the first is acknowledged (librdkafka
2.16, `rd_kafka_toppar_producer_serve`): it counts messages in flight, asks to be woken at once, and may send none. So
what a transaction writes to a partition should be one batch.
"""

LINGER_MS = 20
"""How long a record waits for others of its batch while a transaction is written; for the same reason not shorter.

Whatever waits for deliveries flushes, which ends the wait.
"""


QUEUE_KBYTES = 65_536
"""What a reader fetches ahead."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the cluster is, and how to speak to it.

    Attributes:
        bootstrap_servers: HOST:PORT, several separated by commas.
        options: librdkafka's properties, from the user; never shown, because there may be secrets among them.
        clients: who makes the clients.
        reads_as: the group that readers name. They never join, and commit nothing, but librdkafka looks for the
            group's coordinator, which takes a right where there are ACLs.
    """

    bootstrap_servers: str
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    clients: Clients = LIBRARY
    reads_as: str = "tarry-reader"

    def __post_init__(self) -> None:
        given: object = self.bootstrap_servers
        if not isinstance(given, str) or not given.strip():
            raise ConfigError(f"bootstrap_servers: HOST:PORT as text, several with commas: {given!r}")

    def client(self, **properties: Any) -> Properties:
        """The properties of any client: those given here, with `_` for dots, win over the user's options."""
        ours = {name.replace("_", "."): value for name, value in properties.items()}
        return {
            # What librdkafka has to say goes through logging, which the service turns into its own lines.
            "logger": library_log(),
            **self.options,
            "bootstrap.servers": self.bootstrap_servers,
            **ours,
        }

    def member(self, group: str, protocol: Literal["classic", "consumer"], instance: str | None) -> Properties:
        """The group consumer: it owns partitions, reads none, and commits only what it is told."""
        properties = self.client(
            group_id=group,
            group_protocol=protocol,
            isolation_level="read_committed",
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            enable_partition_eof=False,
        )
        if protocol == "classic":
            properties["partition.assignment.strategy"] = "range"
            properties["session.timeout.ms"] = SESSION_TIMEOUT_MS
            properties["heartbeat.interval.ms"] = HEARTBEAT_MS
        else:
            properties["group.remote.assignor"] = "range"
        if instance:
            properties["group.instance.id"] = instance
        return properties

    def reader(self, queue_kbytes: int = QUEUE_KBYTES) -> Properties:
        """A consumer without a group, which reads what it is assigned; falling off the log is an error, no skip.

        Args:
            queue_kbytes: how much it fetches ahead.
        """
        return self.client(
            group_id=self.reads_as,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            isolation_level="read_committed",
            queued_min_messages=5_000,  # of each partition; every record takes half a kilobyte beside its bytes
            queued_max_messages_kbytes=queue_kbytes,
            fetch_queue_backoff_ms=5,
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=50,
            enable_partition_eof=True,
        )

    def admin(self) -> Properties:
        """An admin client, which asks for leaders anew every other second.

        It keeps what it knows of them for 15 minutes otherwise, and is refused with that after each move of a leader:
        FENCED_LEADER_EPOCH, at which it does not ask anew (seen with librdkafka 2.16).
        """
        return self.client(metadata_max_age_ms=2_000)

    def asker(self, group: str) -> Properties:
        """A consumer that asks for the group's committed offsets, under open transactions too; it never joins."""
        return self.client(group_id=group, enable_auto_commit=False, isolation_level="read_uncommitted")

    def publisher(self) -> Properties:
        """A producer of what nobody waits for: it gives up soon, and says so."""
        return self.client(
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            enable_idempotence=True,
            acks="all",
            allow_auto_create_topics=False,
            topic_metadata_propagation_max_ms=2_000,
            delivery_report_only_error=False,
            linger_ms=0,
        )

    @property
    def compresses(self) -> bool:
        """Whether the user's options compress records."""
        codecs = (self.options.get(name, "none") for name in ("compression.type", "compression.codec"))
        return any(codec != "none" for codec in codecs)

    def transactor(
        self, transactional_id: str, batch_bytes: int = BATCH_BYTES, *, compressed: bool = False
    ) -> Properties:
        """A transactional producer: order by key as Java's clients have it, errors reported alone.

        Args:
            transactional_id: the name under which Kafka knows it.
            batch_bytes: the largest batch of several records; one that is larger by itself goes alone.
            compressed: whether what it writes is compressed, where the user's options say nothing.
        """
        compression = {"compression_type": "zstd"} if compressed and not self.compresses else {}
        return self.client(
            **compression,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            message_timeout_ms=MESSAGE_TIMEOUT_MS,
            enable_idempotence=True,
            acks="all",
            max_in_flight_requests_per_connection=5,
            partitioner="murmur2_random",
            # A typing error in a target must not make a topic.
            allow_auto_create_topics=False,
            topic_metadata_propagation_max_ms=2_000,
            delivery_report_only_error=True,
            linger_ms=LINGER_MS,
            batch_num_messages=10_000,
            batch_size=batch_bytes,
            # The brokers and the topics set the limits; a client's own would keep dead letters out of their topic.
            message_max_bytes=200_000_000,
            queue_buffering_max_messages=200_000,
            # Back-to-back transactions meet CONCURRENT_TRANSACTIONS and wait this long: 100 ms by default.
            retry_backoff_ms=1,
            retry_backoff_max_ms=10,
        )
