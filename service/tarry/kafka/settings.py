"""librdkafka properties for each client of the service, and why.

The user's `kafka.options` come first (security, addresses, buffers). The properties on which our guarantees depend come
last and override them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tarry.errors import ConfigError
from tarry.kafka.clients import LIBRARY, Clients, Properties
from tarry.library_log import library_log

SESSION_TIMEOUT_MS = 6_000
"""How long the group waits for a dead member: the least that Kafka allows (`group.min.session.timeout.ms`)."""

HEARTBEAT_MS = 500
"""How often a member of a classic group sends a heartbeat, and so learns that another member has left.

Until it learns that, the partitions of the other member wait. The usual third of the session timeout would be most of
the pause of a rolling update.
"""

TRANSACTION_TIMEOUT_MS = 30_000
"""How long the broker keeps the open transaction of a process that no other process fences."""

MAX_POLL_INTERVAL_MS = 45_000
"""How long the loop may not poll the group, and how long a classic group waits for a member that does not rejoin.

The client also waits this long for the answer to a join request. If a connection loses the request, no member serves
during that time. If the loop hangs, the supervisor ends it much sooner.
"""

MESSAGE_TIMEOUT_MS = 5_000
"""How long a target without a leader may hold a firing transaction."""

BATCH_BYTES = 262_144
"""The largest batch of several records, in bytes: all topics of an intake accept it, and most targets.

While more than one batch waits for a partition, the client library spins until the first is acknowledged (librdkafka
2.16, `rd_kafka_toppar_producer_serve`): it counts messages in flight, asks to be woken at once, and may send none. So
the records of a transaction for one partition should be one batch.
"""

ALONE_BYTES = 1
"""A largest batch size into which no two records fit, so each record goes in a batch of its own."""

LINGER_MS = 20
"""How long a record waits for others of its batch while a transaction is written; not shorter, for the same reason.

A flush, which every wait for deliveries does, ends this wait.
"""


QUEUE_KBYTES = 65_536
"""How much a reader fetches ahead."""


Options = Mapping[str, str | int | float | bool]
"""librdkafka properties, by name."""

NO_OPTIONS: Options = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of a cluster, and the properties of its clients.

    Attributes:
        bootstrap_servers: HOST:PORT, several separated by commas.
        options: librdkafka properties from the user; never shown, because they may contain secrets.
        clients: makes the clients.
        reads_as: the group id of readers. They never join and commit nothing, but librdkafka looks for the group's
            coordinator, which needs a right if the cluster has ACLs.
    """

    bootstrap_servers: str
    options: Options = field(default_factory=dict, repr=False)
    clients: Clients = LIBRARY
    reads_as: str = "tarry-reader"

    def __post_init__(self) -> None:
        given: object = self.bootstrap_servers
        if not isinstance(given, str) or not given.strip():
            raise ConfigError(f"bootstrap_servers: must be text: HOST:PORT, several separated by commas: {given!r}")

    def client(self, **properties: Any) -> Properties:
        """Return the properties of a client; those given here, with `_` for dots, override the user's options."""
        ours = {name.replace("_", "."): value for name, value in properties.items()}
        return {
            # librdkafka's log goes through logging, which the service turns into its own log lines.
            "logger": library_log(),
            **self.options,
            "bootstrap.servers": self.bootstrap_servers,
            **ours,
        }

    def member(
        self, group: str, protocol: Literal["classic", "consumer"], instance: str | None, *, together: bool = False
    ) -> Properties:
        """Return the properties of the group consumer: it owns partitions, reads none, and commits only on request.

        Args:
            group: the group.
            protocol: of the group.
            instance: the name of a static member.
            together: whether the partitions of all topics are divided among the members together, so that each member
                has about as many. Otherwise a member gets the same partitions of each topic.
        """
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
            # All members of a group must have one in common, also while the number of intakes changes.
            properties["partition.assignment.strategy"] = "roundrobin,range" if together else "range,roundrobin"
            properties["session.timeout.ms"] = SESSION_TIMEOUT_MS
            properties["heartbeat.interval.ms"] = HEARTBEAT_MS
        else:
            properties["group.remote.assignor"] = "uniform" if together else "range"
        if instance:
            properties["group.instance.id"] = instance
        return properties

    def reader(self, queue_kbytes: int = QUEUE_KBYTES) -> Properties:
        """Return the properties of a consumer without a group, which reads the partitions that it is assigned.

        An offset out of range is an error; the consumer does not skip records.

        Args:
            queue_kbytes: how much it fetches ahead.
        """
        return self.client(
            group_id=self.reads_as,
            enable_auto_commit=False,
            enable_auto_offset_store=False,
            auto_offset_reset="error",
            isolation_level="read_committed",
            queued_min_messages=5_000,  # for each partition; every record costs half a kilobyte beside its bytes
            queued_max_messages_kbytes=queue_kbytes,
            fetch_queue_backoff_ms=5,
            fetch_wait_max_ms=100,
            fetch_error_backoff_ms=50,
            enable_partition_eof=True,
        )

    def admin(self) -> Properties:
        """Return the properties of an admin client, which asks for the leaders again every other second.

        By default it caches them for 15 minutes. After a leader has moved, brokers refuse its requests with
        FENCED_LEADER_EPOCH, and it does not refresh its cache at that error (seen with librdkafka 2.16).
        """
        return self.client(metadata_max_age_ms=2_000)

    def asker(self, group: str) -> Properties:
        """Return the properties of a consumer that asks for the group's committed offsets, and never joins.

        It does not wait for open transactions.
        """
        return self.client(group_id=group, enable_auto_commit=False, isolation_level="read_uncommitted")

    def publisher(self) -> Properties:
        """Return the properties of a producer of records that nothing waits for: it gives up soon and reports that."""
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
        """Return the properties of a transactional producer: Java's partitioner, delivery reports only for errors.

        Args:
            transactional_id: the name by which Kafka knows it.
            batch_bytes: the largest batch of several records; a record that is larger goes in a batch of its own.
            compressed: whether to compress, if the user's options do not.
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
            # A typing error in a target must not create a topic.
            allow_auto_create_topics=False,
            topic_metadata_propagation_max_ms=2_000,
            delivery_report_only_error=True,
            linger_ms=LINGER_MS,
            batch_num_messages=10_000,
            batch_size=batch_bytes,
            # The brokers and topics set the limits; the client's own limit would keep dead letters out of their topic.
            message_max_bytes=200_000_000,
            queue_buffering_max_messages=200_000,
            # Back-to-back transactions meet CONCURRENT_TRANSACTIONS and wait this long: 100 ms by default.
            retry_backoff_ms=1,
            retry_backoff_max_ms=10,
        )
