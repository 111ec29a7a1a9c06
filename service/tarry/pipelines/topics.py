"""Read topics as tables (read committed, by ranges of offsets), and write tables to topics.

A table of records has the columns `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, and `headers`, an array
of `key` and `value`, which is null if there are no headers.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamReader

from tarry.clock import SystemClock
from tarry.errors import RetriableError, UsageError
from tarry.kafka.errors import group_errors
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import Target, TopicAdmin, count_partitions
from tarry.kafka.types import Place
from tarry.pipelines.java_client import connector_options

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

RECORD = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""The schema of a table of records."""

_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ANSWER_WITHIN_S = 15.0
_MAX_REQUEST_SIZE = "kafka.max.request.size"
# Java's default limit of 1 MiB ignores topics that accept larger records. Its buffer limits the size in any case.
_LARGEST = {_MAX_REQUEST_SIZE: str(32 * 1024 * 1024)}
_LOOK_EVERY_S = 0.05
SETTLED_WITHIN_S = 60.0
"""How long to wait for open transactions: twice the time after which an abandoned one of the service is aborted."""


def refuse_missing(cluster: Cluster, names: Iterable[str]) -> None:
    """Refuse missing topics.

    Raises:
        UsageError: a topic does not exist, or may not be read.
        BrokerError: the brokers do not answer.
    """
    if wanted := list(names):
        _places(cluster.clients.admin(cluster.admin()), wanted)


def _places(admin: "AdminClient", topics: Iterable[str]) -> list[Place]:
    wanted, found = list(topics), list[Place]()
    with group_errors("ask for topics"):
        known = count_partitions(admin, wanted, _ANSWER_WITHIN_S)
    for topic in wanted:
        if topic not in known:
            raise UsageError(f"there is no topic {topic}, or it may not be read")
        found += [(topic, partition) for partition in range(known[topic])]
    return found


class TopicTables:
    """The topics of a cluster; a context manager.

    Args:
        spark: the session.
        cluster: the Kafka cluster.
        options: more properties of the Java client.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, options: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.spark = spark
        """The session."""
        self._options = connector_options(cluster, options or {})
        self._admin: AdminClient = cluster.clients.admin(cluster.admin())
        # It only asks for the starts and ends of logs. These requests do not use the group.
        self._offsets = Offsets(self._admin, "tarry-spark", cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._offsets.close()

    def places(self, topics: Iterable[str]) -> list[Place]:
        """The partitions of topics.

        Raises:
            UsageError: a topic does not exist.
        """
        return _places(self._admin, topics)

    def names(self) -> set[str]:
        """The names of all topics."""
        with group_errors("ask for topics"):
            return set(self._admin.list_topics(timeout=_ANSWER_WITHIN_S).topics)

    @property
    def max_request_bytes(self) -> int:
        """The largest record that `write` can send, even if the topic accepts larger ones."""
        return int((_LARGEST | self._options)[_MAX_REQUEST_SIZE])

    def look_at(self, topics: Iterable[str]) -> dict[str, Target]:
        """Partitions and settings of target topics, from the brokers; a missing topic has no partitions."""
        return TopicAdmin(self._admin).targets(topics, _ANSWER_WITHIN_S)

    def starts(self, topics: Iterable[str]) -> dict[Place, int]:
        """The first offset that each partition of topics still holds."""
        return self._offsets.starts(self.places(topics))

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """The last stable offset of each partition of topics; all records below it are committed or aborted."""
        return self._offsets.ends(self.places(topics), committed=True)

    def settled_ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """The last stable offsets after all records that are written by now have been committed or aborted.

        A transaction's markers reach its partitions one by one, so a committed transaction may be visible in one
        partition earlier than in another.

        Raises:
            RetriableError: a transaction stays open.
        """
        places = self.places(topics)
        if not places:
            return {}
        written = self._offsets.ends(places, committed=False)
        clock = SystemClock()
        until_ms = clock.monotonic_ms() + int(SETTLED_WITHIN_S * 1_000)
        while True:
            ends = self._offsets.ends(places, committed=True)
            behind = [place for place in places if ends[place] < written[place]]
            if not behind:
                return ends
            if clock.monotonic_ms() > until_ms:
                topic, partition = behind[0]
                raise RetriableError(f"{topic}/{partition}: a transaction is open; try again when it has ended")
            clock.sleep(_LOOK_EVERY_S)

    def since(self, topics: Iterable[str], at_ms: int) -> dict[Place, int]:
        """The first offset of each partition with a timestamp at or after a time; -1 if there is none."""
        return self._offsets.since(dict.fromkeys(self.places(topics), at_ms))

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """The compacted topics among these: they may have lost any record except the last of each key."""
        found = TopicAdmin(self._admin).targets(topics, _ANSWER_WITHIN_S)
        return {name for name, target in found.items() if target.compacted}

    def read(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], *, may_be_trimmed: bool = False
    ) -> DataFrame:
        """A table of the records in ranges of offsets.

        Spark reads the records each time the table is used. A range whose start is not below its end is empty.

        Args:
            starts: the first offset of each partition.
            ends: the end offset of each partition, exclusive. A partition that is missing in `starts` or `ends` is not
                read.
            may_be_trimmed: whether retention may delete records before they are read; such records are left out.
        """
        ranges = {
            place: (start, ends[place]) for place, start in starts.items() if place in ends and start < ends[place]
        }
        if not ranges:
            # Not from a Python list: Spark would start Python workers for it.
            nothing = self.spark.range(0)
            fields = nothing.select(f.from_json(f.lit("{}"), RECORD).alias("record"))
            return fields.select("record.*")
        reader = (
            self.spark.read.format("kafka")
            .options(**self._options, **_reading(may_be_trimmed=may_be_trimmed))
            .option("assign", _grouped({place: place[1] for place in ranges}))
            .option("startingOffsets", _by_topic({place: start for place, (start, _) in ranges.items()}))
            .option("endingOffsets", _by_topic({place: end for place, (_, end) in ranges.items()}))
        )
        return reader.load().select(*_COLUMNS)

    def read_all(self, topics: Iterable[str], *, may_be_trimmed: bool = False) -> DataFrame:
        """A table of all committed records that topics hold now. Waits until open transactions have ended.

        Raises:
            RetriableError: a transaction stays open.
        """
        names = list(topics)
        return self.read(self.starts(names), self.settled_ends(names), may_be_trimmed=may_be_trimmed)

    def stream(self, topics: Iterable[str], *, may_be_trimmed: bool = False) -> DataStreamReader:
        """A stream of the records that topics hold and receive; call `load()` on it."""
        return (
            self.spark.readStream.format("kafka")
            .options(**self._options, **_reading(may_be_trimmed=may_be_trimmed))
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
        )

    def write(self, records: DataFrame) -> None:
        """Write records, each at least once.

        The producers use `acks=all`, idempotence, one request in flight and Java's partitioner, so the records of one
        task keep their order.

        Args:
            records: `topic`, `key`, `value`, `headers` and, optionally, `partition`.
        """
        (
            records.write.format("kafka")
            .options(
                **_LARGEST
                | self._options
                | {
                    "kafka.acks": "all",
                    "kafka.enable.idempotence": "true",
                    "kafka.max.in.flight.requests.per.connection": "1",
                    "kafka.compression.type": "lz4",
                    "includeHeaders": "true",
                },
            )
            .save()
        )


def _reading(*, may_be_trimmed: bool) -> dict[str, str]:
    return {
        # Java's default is read_uncommitted.
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "failOnDataLoss": str(not may_be_trimmed).lower(),
    }


def _by_topic(offsets: Mapping[Place, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(topics)


def _grouped(places: Mapping[Place, int]) -> str:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return json.dumps(topics)
