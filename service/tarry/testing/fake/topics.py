"""Topics: their partitions, their configuration, and the records that they refuse."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, Uuid
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata

from tarry.kafka.types import Place
from tarry.testing.fake.log import Changes, Draft, PartitionLog, batch_bytes
from tarry.testing.fake.refusals import RefusedRequest

DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_BROKER = 1
_NAMESPACE = 0x7A11
CLUSTER_ID = "simulated-cluster-id-1"

BROKERS = {_BROKER: "fake", 2: "fake-2"}
"""The second broker appears in metadata when the first one has forgotten topics."""

PORT = 9092


class FakeTopic:
    """One topic.

    Args:
        name: the topic's name.
        partitions: the number of partitions.
        config: topic properties; the others have Kafka's defaults.
        changes: the counter of changes to logs.
        number: the number in its topic id; a new topic with the same name has another one.
    """

    def __init__(self, name: str, partitions: int, config: Mapping[str, str], changes: Changes, number: int) -> None:
        self.name = name
        self.id = Uuid(_NAMESPACE, number)
        self.config = {**DEFAULTS, **config}
        self.logs = [PartitionLog(changes) for _ in range(partitions)]
        self.away: set[int] = set()
        """Its partitions without a leader."""
        self.markers_wait = False
        """Whether transaction markers wait for the leaders."""
        self.fetch_ms = 0
        """How long a fetch that returns records takes."""
        self.too_low: dict[int, tuple[int, list[int]]] = {}
        """By partition an end that is too low, which is named once, and the list that then gets the true end."""

    def append(
        self, partition: int, drafts: list[Draft], producer: int | None, now_ms: int, *, compressed: bool = False
    ) -> int:
        """Write a batch.

        Returns:
            The offset of its first record.

        Raises:
            Refused: the topic refuses the whole batch.
        """
        self._check(drafts, now_ms, compressed=compressed)
        stamp_ms = now_ms if self.stamps else None
        return self.logs[partition].append(drafts, producer, stamp_ms)

    def named_end(self, partition: int, end: int) -> int:
        """Return what the leader of a partition names as an end of it."""
        too_low, named = self.too_low.pop(partition, (end, []))
        named.append(end)
        return max(self.logs[partition].start, min(too_low, end))

    @property
    def stamps(self) -> bool:
        """Whether it uses log-append time."""
        return self.config["message.timestamp.type"] == "LogAppendTime"

    def _check(self, drafts: list[Draft], now_ms: int, *, compressed: bool) -> None:
        most = int(self.config["max.message.bytes"])
        # To compress takes long; what fits without it fits.
        if batch_bytes(drafts, compressed=False) > most and batch_bytes(drafts, compressed=compressed) > most:
            raise RefusedRequest(KafkaError.MSG_SIZE_TOO_LARGE)
        if "compact" in self.config["cleanup.policy"]:
            keyless = [at for at, draft in enumerate(drafts) if draft.key is None]
            if keyless:
                raise RefusedRequest(KafkaError.INVALID_RECORD, keyless)
        if not self.stamps:
            latest_ms = now_ms + int(self.config["message.timestamp.after.max.ms"])
            ahead = [at for at, draft in enumerate(drafts) if draft.timestamp_ms > latest_ms]
            if ahead:
                raise RefusedRequest(KafkaError.INVALID_TIMESTAMP, ahead)


class Topics:
    """All topics of the cluster.

    Args:
        on_change: called with the name of a topic that was created or deleted, or that has more partitions.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._topics: dict[str, FakeTopic] = {}
        self._made = 0
        self._on_change = on_change
        self.hidden: set[str] = set()
        """Topics that the broker to which clients connect first does not know; the other broker does."""
        self.denied: set[str] = set()
        """Topics that admin clients have no right to describe."""
        self.unreadable: set[str] = set()
        """Topics for which no client may commit an offset."""
        self.changes = Changes()
        """Counts all changes that a reader may notice."""

    def make(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic.

        Raises:
            Refused: the topic exists, or its name or its number of partitions is not valid.
        """
        if not _is_name(name):
            raise RefusedRequest(KafkaError.TOPIC_EXCEPTION)
        if name in self._topics:
            raise RefusedRequest(KafkaError.TOPIC_ALREADY_EXISTS)
        if partitions < 1:
            raise RefusedRequest(KafkaError.INVALID_PARTITIONS)
        self._made += 1
        self._topics[name] = FakeTopic(name, partitions, config, self.changes, self._made)
        self._changed(name)

    def delete(self, name: str) -> None:
        """Delete a topic with all of its records."""
        self.of(name)
        del self._topics[name]
        self._changed(name)

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic until it has `partitions` of them."""
        topic = self.of(name)
        if partitions <= len(topic.logs):
            raise RefusedRequest(KafkaError.INVALID_PARTITIONS)
        topic.logs += [PartitionLog(self.changes) for _ in range(partitions - len(topic.logs))]
        self._changed(name)

    def take_away(self, name: str, partition: int | None, *, markers_wait: bool) -> None:
        """Take one partition of a topic offline, or all of them."""
        topic = self.of(name)
        topic.away.update(range(len(topic.logs)) if partition is None else [partition])
        topic.markers_wait = markers_wait
        self.changes.count += 1

    def bring_back(self, name: str, partition: int | None) -> None:
        """Bring one partition of a topic online again, or all of them."""
        topic = self.of(name)
        topic.away.difference_update(range(len(topic.logs)) if partition is None else [partition])
        self.changes.count += 1

    def is_away(self, place: Place) -> bool:
        """Return whether the topic exists and this partition has no leader."""
        topic = self._topics.get(place[0])
        return topic is not None and place[1] in topic.away

    def keeps_markers_waiting(self, place: Place) -> bool:
        """Return whether transaction markers cannot be written to a partition now."""
        return self.is_away(place) and self.of(place[0]).markers_wait

    def of(self, name: str) -> FakeTopic:
        """Return a topic.

        Raises:
            Refused: the topic does not exist.
        """
        if name not in self._topics:
            raise RefusedRequest(KafkaError.UNKNOWN_TOPIC_OR_PART if _is_name(name) else KafkaError.TOPIC_EXCEPTION)
        return self._topics[name]

    def logs(self) -> Iterator[PartitionLog]:
        """Return the logs of all partitions."""
        for topic in self._topics.values():
            yield from topic.logs

    def log(self, place: Place) -> PartitionLog:
        """Return a partition's log.

        Raises:
            Refused: the partition does not exist.
        """
        logs = self.of(place[0]).logs
        if not 0 <= place[1] < len(logs):
            raise RefusedRequest(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return logs[place[1]]

    def led_log(self, place: Place) -> PartitionLog:
        """Return the log of a partition that has a leader.

        Raises:
            Refused: the partition has no leader or does not exist.
        """
        self.of(place[0])
        if self.is_away(place):
            raise RefusedRequest(KafkaError.LEADER_NOT_AVAILABLE)
        return self.log(place)

    def find(self, place: Place) -> PartitionLog | None:
        """Return a partition's log; None if the partition does not exist."""
        topic = self._topics.get(place[0])
        return topic.logs[place[1]] if topic is not None and 0 <= place[1] < len(topic.logs) else None

    def count(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if the topic does not exist."""
        topic = self._topics.get(name)
        return len(topic.logs) if topic is not None else 0

    def metadata(self, name: str | None) -> ClusterMetadata:
        """Return the metadata of one topic, or of all topics."""
        found = ClusterMetadata()
        found.cluster_id = CLUSTER_ID  # type: ignore[assignment]  # the stub has its first value's type
        for number, host in BROKERS.items() if self.hidden else [(_BROKER, BROKERS[_BROKER])]:
            broker: Any = BrokerMetadata()
            broker.id, broker.host, broker.port = number, host, PORT
            found.brokers[number] = broker
        found.controller_id = found.orig_broker_id = _BROKER
        for one in [name] if name is not None else list(self._topics):
            found.topics[one] = self._metadata_of(one)
        return found

    def _changed(self, name: str) -> None:
        self.changes.count += 1
        self._on_change(name)

    def _metadata_of(self, name: str) -> TopicMetadata:
        found = TopicMetadata()
        found.topic = name
        try:
            topic = self.of(name)
        except RefusedRequest as refusal:
            found.error = KafkaError(refusal.code)
            return found
        for number in range(len(topic.logs)):
            partition = PartitionMetadata()
            partition.id = number
            is_away = number in topic.away
            partition.leader = -1 if is_away else _BROKER
            partition.replicas = [_BROKER]
            partition.isrs = [] if is_away else [_BROKER]
            if is_away:
                partition.error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
            found.partitions[number] = partition
        return found


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}
