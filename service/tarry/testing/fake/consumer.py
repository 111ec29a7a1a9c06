"""The fake consumer: a group member, a reader of assigned partitions, or a client that only sends queries."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tarry.kafka.clients import Properties
from tarry.kafka.types import OffsetMetadata, Place
from tarry.testing.fake.classic_member import ClassicMember
from tarry.testing.fake.consumer_member import ConsumerMember
from tarry.testing.fake.member import Member, Subscription
from tarry.testing.fake.membership import Application, GroupMetadata
from tarry.testing.fake.metadata import ask_metadata
from tarry.testing.fake.reading import AssignedPartitions, Cursor, Event
from tarry.testing.fake.refusals import AnswerLost, Busy, RefusedRequest, Unanswered, failure
from tarry.testing.fake.wire import FOR_EVER_MS, Wire

SESSION_MS = 45_000
GROUP_SESSION_MS = 6_000
"""The session timeout of KIP-848 groups, which the broker sets. The embedded broker has the same value."""
MAX_POLL_MS = 300_000
REQUEST_TIMEOUT_MS = 60_000

_NO_OFFSET = -1001

OnRebalance = Callable[[Consumer, list[TopicPartition]], None]


class FakeConsumer:
    """Has the methods of `confluent_kafka.Consumer`.

    Args:
        wire: the connection to the cluster.
        properties: librdkafka's properties.
    """

    def __init__(self, wire: Wire, properties: Properties) -> None:
        self._wire = wire
        self._properties = properties
        self._group = str(properties["group.id"])
        self._committed_only = properties.get("isolation.level", "read_committed") == "read_committed"
        self._reading = AssignedPartitions(
            wire.server.topics,
            committed=self._committed_only,
            tell_ends=bool(properties.get("enable.partition.eof", False)),
            reset=str(properties.get("auto.offset.reset", "largest")),
        )
        self._member: Member | None = None
        self._callbacks: dict[str, OnRebalance | None] = {}
        self._assigned_by_callback = False
        self._closed = False

    # -- membership -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Join the group at the next poll."""
        properties = self._properties
        classic = properties.get("group.protocol", "classic") == "classic"
        max_poll_ms = int(properties.get("max.poll.interval.ms", MAX_POLL_MS))
        session_ms = int(properties.get("session.timeout.ms", SESSION_MS)) if classic else GROUP_SESSION_MS
        instance = str(properties.get("group.instance.id") or "") or None
        name, usual = ("partition.assignment.strategy", "range") if classic else ("group.remote.assignor", "uniform")
        assignors = str(properties.get(name, usual)).split(",")
        process = self._wire.process
        application = Application(process, "", instance, tuple(topics), session_ms, max_poll_ms, assignors)
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        subscription = Subscription(self._group, application, max_poll_ms, self._tell)
        self._member = (ClassicMember if classic else ConsumerMember)(self._wire, subscription)
        self._wire.server.members.append(self._member)

    def memberid(self) -> str | None:
        """Return the member id; empty if the consumer is not a member."""
        return self._member.id if self._member is not None else ""

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the metadata that proves membership now."""
        return self._member.metadata() if self._member is not None else GroupMetadata(self._group)

    def commit(
        self, message: Any = None, offsets: list[TopicPartition] | None = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        """Commit offsets outside of transactions."""
        if offsets is None:
            offsets = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        if self._member is not None and self._member.is_lost_for_good:
            raise failure(KafkaError._FATAL, "Commit failed: Local: Fatal error")
        wanted = {(one.topic, one.partition): (one.offset, one.metadata or "") for one in offsets}
        shown = self.consumer_group_metadata()
        session_ms = int(self._properties.get("session.timeout.ms", SESSION_MS))
        try:
            self._wire.ask("commit", partial(self._commit, wanted, shown), session_ms, self._group)
        except RefusedRequest as refusal:
            if self._member is not None:
                self._member.be_refused(refusal.code)
            raise failure(refusal.code, f"Commit failed: {KafkaError(refusal.code).str()}") from refusal
        except Unanswered as silence:
            raise failure(KafkaError._WAIT_COORD, "Commit failed: Local: Waiting for coordinator") from silence
        except AnswerLost as silence:
            raise failure(KafkaError._TRANSPORT, "Commit failed: Local: Broker transport failure") from silence
        return None if asynchronous else [TopicPartition(*place, *offset) for place, offset in wanted.items()]

    def _commit(self, offsets: dict[Place, OffsetMetadata], shown: GroupMetadata) -> None:
        group = self._wire.server.groups.of(self._group)
        group.membership.check(shown, transactional=False)
        for topic, _ in offsets:
            self._wire.server.topics.of(topic)
            if topic in self._wire.server.topics.unreadable:
                raise RefusedRequest(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        group.offsets.commit(offsets)

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets. A read_committed consumer waits for pending transactional offsets."""
        places = [(one.topic, one.partition) for one in partitions]
        timeout_ms = REQUEST_TIMEOUT_MS if timeout < 0 else round(timeout * 1000)
        try:
            found = self._wire.ask_until_answered("committed", partial(self._ask, places), timeout_ms, self._group)
        except (Unanswered, Busy) as silence:
            raise failure(KafkaError._TIMED_OUT, "Failed to get committed offsets: Local: Timed out") from silence
        return [TopicPartition(*place, *(found[place] or (_NO_OFFSET,))) for place in places]

    def _ask(self, places: Sequence[Place]) -> dict[Place, OffsetMetadata | None]:
        offsets = self._wire.server.groups.of(self._group).offsets

        def is_stable() -> bool:
            return not any(offsets.is_unstable(place) for place in places)

        if self._committed_only and not is_stable():
            raise Busy(KafkaError.UNSTABLE_OFFSET_COMMIT, is_stable)
        return {place: offsets.get(place) for place in places}

    def _tell(self, what: Literal["assign", "revoke", "lost"], places: Sequence[Place]) -> None:
        """Call the application's rebalance callback; then assign or unassign, if the callback did not."""
        given = [TopicPartition(*place) for place in places]
        self._assigned_by_callback = False
        callback = self._callbacks[what]
        if callback is not None:
            callback(cast("Consumer", self), given)
        if self._assigned_by_callback:
            return
        if what == "assign":
            self.incremental_assign(given)
        else:
            self.incremental_unassign(given)

    # -- reading ----------------------------------------------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, and no others."""
        self._reading.cursors.clear()
        self.incremental_assign(partitions)

    def unassign(self) -> None:
        """Read no partition."""
        self._assigned_by_callback = True
        self._reading.cursors.clear()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions in addition."""
        self._assigned_by_callback = True
        self._reading.look_again()
        for one in partitions:
            place = (one.topic, one.partition)
            if place in self._reading.cursors:
                raise failure(KafkaError._CONFLICT, f"{one.topic} [{one.partition}] is already assigned")
            self._reading.cursors[place] = Cursor(one.offset)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Stop reading these partitions."""
        self._assigned_by_callback = True
        for one in partitions:
            self._reading.drop((one.topic, one.partition))

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return [TopicPartition(*place) for place in sorted(self._reading.cursors)]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._reading.paused.update(map(self._place, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._reading.paused.difference_update(map(self._place, partitions))
        self._reading.look_again()

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets after the last records that were returned."""
        found = []
        for one in partitions:
            cursor = self._reading.cursors[self._place(one)]
            at = _NO_OFFSET if cursor.consumed is None else max(cursor.consumed, cursor.next)
            found.append(TopicPartition(one.topic, one.partition, at))
        return found

    def poll(self, timeout: float = -1) -> Event | None:
        """Return one record or event, or None after the timeout."""
        found = self._consume(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Event]:
        """Return the records and events that are available; if there are none, wait for some until the timeout."""
        return self._consume(num_messages, timeout)

    def _consume(self, most: int, timeout: float) -> list[Event]:
        clock = self._wire.clock
        wait_ms, longest_ms = FOR_EVER_MS if timeout < 0 else round(timeout * 1000), self._wire.server.longest_wait_ms
        ends_ms = clock.monotonic_ms() + (wait_ms if longest_ms is None else min(wait_ms, longest_ms))
        while True:
            if found := self._serve(most):
                return found
            left_ms = ends_ms - clock.monotonic_ms()
            if left_ms <= 0:
                return []
            # The group may have news that `has_something` does not see: poll it from time to time.
            look_ms = min(left_ms, 100) if self._member is not None else left_ms
            clock.advance_until(self._reading.has_something, clock.monotonic_ms() + look_ms)
            self._wire.process.must_live()

    def _serve(self, most: int) -> list[Event]:
        if self._member is not None and (error := self._member.poll()) is not None:
            return [Message(error=error)]
        if not self._wire.server.running or not self._reading.has_something():
            return []
        try:
            self._wire.try_in_background("fetch", lambda: None)
        except (Unanswered, AnswerLost):
            return []
        found = self._reading.take(self._wire.server.draw_fetched(most))
        self._wire.clock.advance(self._reading.waited_ms(found))
        self._wire.process.must_live()
        return found

    def _place(self, partition: TopicPartition) -> Place:
        """Return the topic and number of an assigned partition.

        Raises:
            KafkaException: the partition is not assigned.
        """
        place = (partition.topic, partition.partition)
        if place not in self._reading.cursors:
            raise failure(KafkaError._UNKNOWN_PARTITION)
        return place

    # -- the cluster ------------------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of a topic, or of all topics."""
        return ask_metadata(self._wire, topic, timeout)

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: ARG002 - the client library's signature
    ) -> tuple[int, int]:
        """Return the log start offset and the end of a log: the last stable offset for a read_committed consumer."""
        place = (partition.topic, partition.partition)

        def ask() -> tuple[int, int]:
            log = self._wire.server.topics.led_log(place)
            return log.start, log.stable_end if self._committed_only else log.end

        timeout_ms = REQUEST_TIMEOUT_MS if timeout < 0 else round(timeout * 1000)
        try:
            return self._wire.ask_until_answered("list_offsets", ask, timeout_ms)
        except RefusedRequest as refusal:
            raise failure(refusal.code) from refusal
        except Unanswered as silence:
            raise failure(KafkaError._TIMED_OUT) from silence

    def close(self) -> None:
        """Give up all partitions, leave the group and stop reading."""
        if self._closed:
            return
        self._closed = True
        if self._member is not None:
            self._member.close()
            if self._member in self._wire.server.members:
                self._wire.server.members.remove(self._member)
        self._reading.cursors.clear()
