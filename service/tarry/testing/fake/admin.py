"""The fake admin client, and the futures that it returns."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    Node,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._cluster import DescribeClusterResult
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._group import ConsumerGroupDescription, MemberAssignment, MemberDescription
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec, TimestampSpec
from confluent_kafka.admin._records import DeletedRecords
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription

from tarry.testing.fake.metadata import ask_metadata
from tarry.testing.fake.refusals import AnswerLost, RefusedRequest, Unanswered, failure
from tarry.testing.fake.topics import BROKERS, CLUSTER_ID, PORT
from tarry.testing.fake.wire import FOR_EVER_MS, Wire

REQUEST_TIMEOUT_S = 60.0
AGAIN_AFTER_MS = 100

_BROKER = Node(1, "fake", 9092)
_BROKER_CONFIG = {"authorizer.class.name": "", "offset.metadata.max.bytes": "4096"}

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class AdminAnswer(Future[Found]):
    """A future. Waiting for it advances the manual clock.

    Args:
        wire: the connection, which has the clock.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def result(self, timeout: float | None = None) -> Found:
        """Wait for the answer, and return it.

        Raises:
            KafkaException: no answer came in time, or the answer is an error.
        """
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the answer, and return its error, or None."""
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        wait_ms = FOR_EVER_MS if timeout is None else round(timeout * 1000)
        self._wire.clock.advance_until(self.done, self._wire.clock.monotonic_ms() + wait_ms)
        self._wire.process.must_live()


class FakeAdmin:
    """Has the methods of `confluent_kafka.admin.AdminClient`.

    Args:
        wire: the connection to the cluster.
        address: the address of the broker to which it connects first.
    """

    def __init__(self, wire: Wire, address: str = "fake") -> None:
        self._wire = wire
        self._topics = wire.server.topics
        self._knows_all = address == f"{BROKERS[2]}:{PORT}"

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002 - the client library's signature
        """Do nothing: this client has no callbacks to serve."""
        return 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of a topic, or of all topics."""
        return ask_metadata(self._wire, topic, timeout)

    def create_topics(self, new_topics: Sequence[Any], **options: Any) -> dict[str, Future[None]]:
        """Create topics."""

        def make(one: Any) -> None:
            self._topics.make(one.topic, one.num_partitions, dict(one.config or {}))

        asked = {one.topic: one for one in new_topics}
        return self._ask("create_topics", asked, make, options)

    def delete_topics(self, topics: Sequence[str], **options: Any) -> dict[str, Future[None]]:
        """Delete topics."""
        return self._ask("delete_topics", {name: name for name in topics}, self._topics.delete, options)

    def create_partitions(self, new_partitions: Sequence[Any], **options: Any) -> dict[str, Future[None]]:
        """Add partitions to topics."""

        def grow(one: Any) -> None:
            self._topics.grow(one.topic, one.new_total_count)

        return self._ask("create_partitions", {one.topic: one for one in new_partitions}, grow, options)

    def describe_configs(
        self, resources: Sequence[ConfigResource], **options: Any
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return the settings of topics and brokers."""

        def describe(one: ConfigResource) -> dict[str, ConfigEntry]:
            is_topic = one.restype is ResourceType.TOPIC
            config = self._topics.of(str(one.name)).config if is_topic else _BROKER_CONFIG
            return {name: ConfigEntry(name, value) for name, value in config.items()}

        return self._ask("describe_configs", {one: one for one in resources}, describe, options)

    def describe_cluster(self, **options: Any) -> Future[DescribeClusterResult]:
        """Return the cluster's id and its only broker."""

        def describe(_nothing: None) -> DescribeClusterResult:
            return DescribeClusterResult(_BROKER, [_BROKER], CLUSTER_ID)

        return self._ask("describe_cluster", {None: None}, describe, options)[None]

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[TopicDescription]]:
        """Return topics; the client has all rights on them."""
        may = [one for one in AclOperation if one not in {AclOperation.UNKNOWN, AclOperation.ANY}]
        given = may if options.get("include_authorized_operations") else None

        def describe(name: str) -> TopicDescription:
            if name in self._topics.denied:
                raise RefusedRequest(KafkaError.TOPIC_AUTHORIZATION_FAILED)
            if name in self._topics.hidden and not self._knows_all:
                raise RefusedRequest(KafkaError.UNKNOWN_TOPIC_OR_PART)
            found = self._topics.of(name)

            def partition(number: int) -> TopicPartitionInfo:
                leader: Any = None if number in found.away else _BROKER
                return TopicPartitionInfo(number, leader, [_BROKER], [_BROKER] if leader else [])

            partitions = [partition(number) for number in range(len(found.logs))]
            return TopicDescription(name, found.id, False, partitions, given)  # type: ignore[arg-type]  # a list's variance

        return self._ask("describe_topics", {name: name for name in topics.topic_names}, describe, options)

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Return groups and their members."""

        def describe(group: str) -> ConsumerGroupDescription:
            nothing = MemberAssignment([])
            members = [
                MemberDescription(seat.id, "rdkafka", "", nothing, seat.application.instance)
                for seat in self._wire.server.groups.of(group).membership.seats()
            ]
            return ConsumerGroupDescription(group, False, members, "range", None, _BROKER)

        return self._ask("describe_consumer_groups", {name: name for name in group_ids}, describe, options)

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **options: Any,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Return the first or the last offsets of logs, or their offsets by timestamp."""
        committed = isolation_level is IsolationLevel.READ_COMMITTED

        def find(pair: tuple[TopicPartition, OffsetSpec]) -> ListOffsetsResultInfo:
            place, spec = pair
            log = self._topics.led_log((place.topic, place.partition))
            end = log.stable_end if committed else log.end
            if isinstance(spec, TimestampSpec):
                offset, timestamp_ms = log.since(spec.timestamp)
                return ListOffsetsResultInfo(*((offset, timestamp_ms) if offset < end else (-1, -1)), -1)
            is_first = spec is OffsetSpec.earliest()  # type: ignore[no-untyped-call]
            if is_first:
                return ListOffsetsResultInfo(log.start, -1, -1)
            return ListOffsetsResultInfo(self._topics.of(place.topic).named_end(place.partition, end), -1, -1)

        asked = {place: (place, spec) for place, spec in topic_partition_offsets.items()}
        return self._ask("list_offsets", asked, find, options)

    def delete_records(
        self, topic_partition_offset_list: Sequence[TopicPartition], **options: Any
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records below the given offsets."""

        def delete(one: TopicPartition) -> DeletedRecords:
            log = self._topics.led_log((one.topic, one.partition))
            if "delete" not in self._topics.of(one.topic).config["cleanup.policy"]:
                raise RefusedRequest(KafkaError.POLICY_VIOLATION)
            below = log.end if one.offset < 0 else one.offset
            if below > log.end:
                raise RefusedRequest(KafkaError.OFFSET_OUT_OF_RANGE)
            log.trim(below)
            return DeletedRecords(log.start)

        return self._ask("delete_records", {one: one for one in topic_partition_offset_list}, delete, options)

    def delete_consumer_groups(self, group_ids: Sequence[str], **options: Any) -> dict[str, Future[None]]:
        """Delete groups that have no members, together with their offsets."""

        def delete(name: str) -> None:
            group = self._wire.server.groups.of(name)
            if not group.membership.is_empty:
                raise RefusedRequest(KafkaError.NON_EMPTY_GROUP)
            group.offsets.expire()

        return self._ask("delete_consumer_groups", {name: name for name in group_ids}, delete, options)

    def alter_consumer_group_offsets(
        self, requests: Sequence[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Commit offsets for groups that have no members."""

        def alter(request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            group = self._wire.server.groups.of(request.group_id)
            if not group.membership.is_empty:
                raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
            wanted = request.topic_partitions or []
            group.offsets.commit({(one.topic, one.partition): (one.offset, one.metadata or "") for one in wanted})
            return request

        return self._ask("alter_consumer_group_offsets", {one.group_id: one for one in requests}, alter, options)

    def _ask(
        self, call: str, asked: Mapping[Any, Asked], do: Callable[[Asked], Found], options: Mapping[str, Any]
    ) -> dict[Any, Future[Found]]:
        """Send the request at once, and return a future for each answer."""
        answers: dict[Any, AdminAnswer[Found]] = {key: AdminAnswer(self._wire) for key in asked}
        timeout_ms = round(float(options.get("request_timeout", REQUEST_TIMEOUT_S)) * 1000)
        ends_ms = self._wire.clock.monotonic_ms() + timeout_ms
        self._try(call, asked, do, answers, ends_ms)
        return dict(answers)

    def _try(
        self,
        call: str,
        asked: Mapping[Any, Asked],
        do: Callable[[Asked], Found],
        answers: Mapping[Any, AdminAnswer[Found]],
        ends_ms: int,
    ) -> None:
        """Send the request, and send it again every `AGAIN_AFTER_MS` while the cluster does not answer."""
        if not self._wire.process.alive:
            return
        if not self._wire.server.running and self._wire.clock.monotonic_ms() >= ends_ms:
            _fail(answers, KafkaError._TIMED_OUT)
            return

        def do_all() -> list[tuple[Any, Found | RefusedRequest]]:
            done: list[tuple[Any, Found | RefusedRequest]] = []
            for key, one in asked.items():
                try:
                    done.append((key, do(one)))
                except RefusedRequest as refusal:
                    done.append((key, refusal))
            return done

        try:
            done = self._wire.try_in_background(call, do_all)
        except Unanswered:
            again = partial(self._try, call, asked, do, answers, ends_ms)
            self._wire.clock.call_at(self._wire.clock.monotonic_ms() + AGAIN_AFTER_MS, again)
            return
        except AnswerLost:
            self._wire.clock.call_at(ends_ms, lambda: _fail(answers, KafkaError._TIMED_OUT))
            return
        for key, outcome in done:
            if isinstance(outcome, RefusedRequest):
                answers[key].set_exception(failure(outcome.code))
            else:
                answers[key].set_result(outcome)


def _fail(answers: Mapping[Any, AdminAnswer[Any]], code: int) -> None:
    for answer in answers.values():
        answer.set_exception(failure(code))
