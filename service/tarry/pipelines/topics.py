"""Topics as tables: read committed, from offset to offset; and written as the producer library writes.

A table of records has the columns `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, and `headers`, an array
of `key` and `value`, null where there are none.
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
from tarry.kafka.topics import Target, TopicAdmin
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
# Java's own limit of 1 MiB knows nothing of topics that take more; beyond its buffer it can't send anything.
_LARGEST = {_MAX_REQUEST_SIZE: str(32 * 1024 * 1024)}
_LOOK_EVERY_S = 0.05
SETTLED_WITHIN_S = 60.0
"""A transaction of the service that nobody fences ends after half of that."""


def refuse_missing(cluster: Cluster, names: Iterable[str]) -> None:
    """Refuse topics that there are not.

    Raises:
        UsageError: one is not there, or may not be read.
        BrokerError: no answer.
    """
    if wanted := list(names):
        _places(cluster.clients.admin(cluster.admin()), wanted)


def _places(admin: "AdminClient", topics: Iterable[str]) -> list[Place]:
    # All are asked for: a question about one by name may make it.
    with group_errors("ask for topics"):
        known = admin.list_topics(timeout=_ANSWER_WITHIN_S).topics
    found = []
    for topic in topics:
        if topic not in known:
            raise UsageError(f"there is no topic {topic}, or it may not be read")
        found += [(topic, partition) for partition in sorted(known[topic].partitions)]
    return found


class Topics:
    """The topics of a cluster; a context manager.

    Args:
        spark: the session.
        cluster: where.
        options: more properties of Java's client.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, options: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self._spark = spark
        self._options = connector_options(cluster, options or {})
        self._admin: AdminClient = cluster.clients.admin(cluster.admin())
        # Only ends and starts of logs are asked for, which no group has a part in.
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
        """The largest record that `write` can send, whatever the topic takes."""
        return int((_LARGEST | self._options)[_MAX_REQUEST_SIZE])

    def look_at(self, topics: Iterable[str]) -> dict[str, Target]:
        """What the brokers know of topics that messages are for; without partitions where there is none."""
        return TopicAdmin(self._admin).targets(topics, _ANSWER_WITHIN_S)

    def starts(self, topics: Iterable[str]) -> dict[Place, int]:
        """The first offset that each partition of topics still holds."""
        return self._offsets.starts(self.places(topics))

    def ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """The last stable offset of each partition of topics: what is committed lies below."""
        return self._offsets.ends(self.places(topics), committed=True)

    def settled_ends(self, topics: Iterable[str]) -> dict[Place, int]:
        """Ends as `ends` has them, once what is written by now is committed or aborted.

        A transaction's markers reach the partitions one by one: one of them may tell of it before another does.

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
                raise RetriableError(f"{topic}/{partition}: a transaction is open there; try again when it has ended")
            clock.sleep(_LOOK_EVERY_S)

    def since(self, topics: Iterable[str], at_ms: int) -> dict[Place, int]:
        """The first offset of each partition whose record is of a time or later; -1 where there is none."""
        return self._offsets.since(dict.fromkeys(self.places(topics), at_ms))

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that are compacted: any record but the last of its key may be gone."""
        found = TopicAdmin(self._admin).targets(topics, _ANSWER_WITHIN_S)
        return {name for name, target in found.items() if target.compacted}

    def read(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], *, may_be_trimmed: bool = False
    ) -> DataFrame:
        """The records of a range, a table of records.

        It is read when it is used, and each time that it is used.

        Args:
            starts: the first offset of each partition.
            ends: the offset behind the last of each; a partition of which one is missing is not read.
            may_be_trimmed: whether records may be deleted before they are read: those are left out.

        A range that begins behind its end is empty.
        """
        ranges = {
            place: (start, ends[place]) for place, start in starts.items() if place in ends and start < ends[place]
        }
        if not ranges:
            # Not from a list, for which Spark would start Python workers.
            nothing = self._spark.range(0)
            fields = nothing.select(f.from_json(f.lit("{}"), RECORD).alias("record"))
            return fields.select("record.*")
        reader = (
            self._spark.read.format("kafka")
            .options(**self._options, **_reading(may_be_trimmed=may_be_trimmed))
            .option("assign", _grouped({place: place[1] for place in ranges}))
            .option("startingOffsets", _by_topic({place: start for place, (start, _) in ranges.items()}))
            .option("endingOffsets", _by_topic({place: end for place, (_, end) in ranges.items()}))
        )
        return reader.load().select(*_COLUMNS)

    def read_all(self, topics: Iterable[str], *, may_be_trimmed: bool = False) -> DataFrame:
        """All that topics hold now, a table of records; what is written and not yet settled is waited for.

        Raises:
            RetriableError: a transaction stays open.
        """
        names = list(topics)
        return self.read(self.starts(names), self.settled_ends(names), may_be_trimmed=may_be_trimmed)

    def stream(self, topics: Iterable[str], *, may_be_trimmed: bool = False) -> DataStreamReader:
        """What topics hold, and what comes: a stream of records, to be loaded."""
        return (
            self._spark.readStream.format("kafka")
            .options(**self._options, **_reading(may_be_trimmed=may_be_trimmed))
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
        )

    def write(self, records: DataFrame) -> None:
        """Write records, at least once each.

        Acknowledged by all replicas, idempotent, one request in flight, and by Java's partitioner: those of one task
        keep their order.

        Args:
            records: `topic`, `key`, `value`, `headers` and, where there is such a column, `partition`.
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
        # Java reads uncommitted by default.
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
