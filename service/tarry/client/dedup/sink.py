"""A sink that writes the messages of topics to PostgreSQL, each exactly once.

One SQL transaction holds the rows, the ids that were seen and the offsets. The consumer group only assigns the
partitions; the offset to continue from is stored in the database.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Literal

from tarry.client.dedup.loop import Loop
from tarry.client.dedup.store import Store, Write
from tarry.client.dedup.tables import Tables
from tarry.client.events import logging_to
from tarry.client.group_consumer import PATIENCE_S, Begin, GroupClients
from tarry.clock import Clock, SystemClock
from tarry.errors import ConfigError, UsageError
from tarry.kafka.patience import patiently
from tarry.kafka.settings import NO_OPTIONS, Cluster, Options

_log = logging_to("tarry.sink", {"taken_over"})


class PostgresSink:
    """Reads topics as a member of a consumer group, and writes each message to PostgreSQL exactly once.

    `run` calls `write` with a cursor and a batch of messages, those of a partition in their order. `write` writes any
    rows through that cursor. It must not commit. What it changes in other systems may happen twice. The sink leaves out
    messages whose `tarry-id` was seen in their topic before. If `write` raises, nothing of the batch is written and
    `run` ends with that exception. After an error of the database connection `run` continues, and reads the batch
    again.

    Example:
        def write(cursor, messages):
            cursor.executemany("INSERT INTO orders (id, body) VALUES (%s, %s)", [(m.id, m.value) for m in messages])

        PostgresSink("localhost:9092", ["orders"], "billing", "postgresql://localhost/shop", write).run()

    Args:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        topics: the topics to read; they must exist.
        group: the consumer group.
        conninfo: psycopg's connection string: a URL or `name=value` pairs.
        write: the application's function of a `psycopg.Cursor` and a list of `DeliveredMessage`.
        name: identifies the sink's rows in both tables; None: the group. Two different sinks must not share a name in
            one database.
        begin: where to begin in a partition without a stored offset, `"earliest"` or `"latest"`.
        batch: the most messages of one transaction.
        keep_ids: the shortest time for which ids are kept.
        offsets_table: `NAME` or `SCHEMA.NAME`; created if it is missing.
        ids_table: `NAME` or `SCHEMA.NAME`; created if it is missing.
        idle_limit_s: how long `write` may leave the transaction idle before the server ends it, in seconds. A process
            that hangs in mid-transaction can delay a take-over by this time.
        group_protocol: `"classic"`, or `"consumer"` (KIP-848).
        options: librdkafka properties, for example for security.
        on_event: called with the name of an event and its fields; None: log to the logger `tarry.sink`.
        clock: monotonic time.

    Raises:
        ConfigError: psycopg is not installed, or an argument has an invalid value.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Sequence[str],
        group: str,
        conninfo: str,
        write: Write,
        *,
        name: str | None = None,
        begin: Literal["earliest", "latest"] = "earliest",
        batch: int = 500,
        keep_ids: timedelta = timedelta(days=7),
        offsets_table: str = "tarry_sink_offsets",
        ids_table: str = "tarry_sink_ids",
        idle_limit_s: float = 20.0,
        group_protocol: Literal["classic", "consumer"] = "classic",
        options: Options = NO_OPTIONS,
        on_event: Callable[..., None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if find_spec("psycopg") is None:
            raise ConfigError("PostgresSink needs psycopg: pip install 'tarry[postgres]'")
        for what, given, is_good, must in (
            ("topics", topics, not isinstance(topics, str) and len(topics) > 0, "a list of at least one topic"),
            ("begin", begin, begin in set(Begin), " or ".join(repr(str(one)) for one in Begin)),
            ("batch", batch, batch >= 1, "at least 1"),
            ("keep_ids", keep_ids, keep_ids > timedelta(0), "greater than zero"),
            ("idle_limit_s", idle_limit_s, idle_limit_s >= 1, "at least 1"),
            ("group_protocol", group_protocol, group_protocol in {"classic", "consumer"}, "'classic' or 'consumer'"),
        ):
            if not is_good:
                raise ConfigError(f"{what}: must be {must}: {given if what == 'keep_ids' else repr(given)}")
        self._topics = list(topics)
        self._group = group
        self._cluster = Cluster(bootstrap_servers, options)
        tables = Tables(name or group, offsets_table, ids_table)
        self._store = Store(conninfo, tables, write, keep_ids // timedelta(milliseconds=1), idle_limit_s)
        self._begin = Begin(begin)
        self._batch = batch
        self._protocol: Literal["classic", "consumer"] = group_protocol
        self._on_event = on_event or _log
        self._clock = clock or SystemClock()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Make `run` return after the current batch. Callable from any thread and from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Read and write until `stop`. While the database refuses connections, report events and try again.

        Raises:
            UsageError: a topic does not exist, or records that were not read yet are deleted.
            MembershipLostError: this member has lost its place in the group permanently.
            RetriableError: the brokers do not answer at the start.
            Exception: the exception of `write`.
        """
        properties = self._cluster.member(self._group, self._protocol, None)
        clients = GroupClients(self._cluster, properties, self._topics, self._clock, self._on_event)
        try:
            wanted = [(topic, 0) for topic in self._topics]
            existing = patiently(lambda: clients.offsets.existing(wanted), self._clock, PATIENCE_S)
            if missing := set(wanted).difference(existing):
                raise UsageError(f"no such topic: {', '.join(sorted(topic for topic, _ in missing))}")
            loop = Loop(clients, self._store, self._begin, self._batch, self._clock, self._on_event)
            clients.membership.join(loop)
            try:
                while not self._stop.is_set():
                    loop.turn()
            except BaseException:
                loop.abandon()
                raise
        finally:
            clients.close()
            self._store.close()
