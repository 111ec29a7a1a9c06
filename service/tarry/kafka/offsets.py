"""Questions about offsets, asked of the brokers by an admin client: committed ones, ends of logs, and trimming."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tarry.kafka.errors import error_of, group_errors, translate_group
from tarry.kafka.membership import OffsetMetadata, Place

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUEST_TIMEOUT_S = 10.0

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Offsets:
    """What the brokers know about offsets.

    Args:
        admin: an admin client.
        group: whose committed offsets are meant.
    """

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group

    def committed(self, places: Iterable[Place], *, stable: bool) -> dict[Place, OffsetMetadata]:
        """What the group has committed; a partition without an offset is left out.

        Args:
            places: partitions.
            stable: refuse while a transaction that commits one of them is open; otherwise the answer is the last
                one committed, open transaction or not.

        Raises:
            RetriableError: an open transaction, or no answer.
        """
        wanted = [TopicPartition(*place) for place in places]
        with group_errors("ask for committed offsets"):
            futures = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group, wanted)],
                require_stable=stable,
                request_timeout=REQUEST_TIMEOUT_S,
            )
            found = futures[self._group].result()
        offsets: dict[Place, OffsetMetadata] = {}
        for one in found.topic_partitions or []:
            if one.error is not None:
                raise translate_group(one.error, f"ask for the offset of {one.topic}/{one.partition}")
            if one.offset >= 0:
                offsets[one.topic, one.partition] = (one.offset, one.metadata or "")
        return offsets

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset that each log still holds."""
        return self._list(places, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        """The end of each log: its high watermark, or (`committed`) its last stable offset."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._list(places, _LATEST, isolation)

    def ask_since(self, places: Mapping[Place, int]) -> "Pending":
        """Ask for the first offset whose timestamp is at or after a time in ms: -1 where there is none."""
        request = {TopicPartition(*place): OffsetSpec.for_timestamp(at_ms) for place, at_ms in places.items()}
        return Pending(self._admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S))

    def ask_ends(self, places: Iterable[Place]) -> "Pending":
        """Ask for high watermarks without waiting for the answer."""
        request = {TopicPartition(*place): _LATEST for place in places}
        return Pending(self._admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S))

    def trim(self, below: Mapping[Place, int]) -> "Pending":
        """Delete the records below an offset of each partition, without waiting for the answer."""
        request = [TopicPartition(*place, offset) for place, offset in below.items()]
        if not request:
            return Pending({})
        return Pending(self._admin.delete_records(request, request_timeout=REQUEST_TIMEOUT_S))

    def _list(self, places: Iterable[Place], spec: OffsetSpec, isolation: IsolationLevel) -> dict[Place, int]:
        request = {TopicPartition(*place): spec for place in places}
        return self._results(
            self._admin.list_offsets(request, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
        )

    def _results(self, futures: dict[TopicPartition, "Future[Any]"]) -> dict[Place, int]:
        with group_errors("ask for offsets"):
            return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}


class Pending:
    """Answers under way: the loop looks in on them, and never waits."""

    def __init__(self, futures: "dict[TopicPartition, Future[Any]]") -> None:
        self._futures = futures

    @property
    def done(self) -> bool:
        """Whether all have come, or failed."""
        return all(future.done() for future in self._futures.values())

    def answers(self) -> dict[Place, int]:
        """The answers that came; what failed is asked again another time, and is left out."""
        return {
            (p.topic, p.partition): future.result().offset
            for p, future in self._futures.items()
            if future.done() and future.exception() is None
        }

    def failures(self) -> list[str]:
        """One line for each that failed."""
        lines = []
        for place, future in self._futures.items():
            exception = future.exception() if future.done() else None
            if isinstance(exception, KafkaException):
                lines.append(f"{place.topic}/{place.partition}: {error_of(exception).str()}")
        return lines
