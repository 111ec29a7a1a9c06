"""Asking the brokers about offsets, with an admin client: committed offsets, ends of logs, and trimming."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tarry.errors import RetriableError
from tarry.kafka.errors import error_of, group_errors, translate_group
from tarry.kafka.settings import Cluster
from tarry.kafka.types import OffsetMetadata, Place

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUEST_TIMEOUT_S = 10.0

NOT_STABLE = KafkaError(KafkaError._TIMED_OUT).name()
"""The code of the error when a transaction stays open for `REQUEST_TIMEOUT_S`, or no broker answers."""

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def ask_committed(consumer: Consumer, places: Iterable[Place]) -> dict[Place, OffsetMetadata]:
    """Return the committed offsets of a consumer's group; a read_committed consumer waits for open transactions to end.

    A partition without an offset is left out.

    Raises:
        RetriableError: a transaction stays open, or there is no answer.
    """
    with group_errors("ask for committed offsets"):
        found = consumer.committed([TopicPartition(*place) for place in places], timeout=REQUEST_TIMEOUT_S)
    offsets: dict[Place, OffsetMetadata] = {}
    for one in found:
        if one.error is not None:
            raise translate_group(one.error, f"ask for the offset of {one.topic}/{one.partition}")
        if one.offset >= 0:
            offsets[one.topic, one.partition] = (one.offset, one.metadata or "")
    return offsets


class Offsets:
    """Asks the brokers about offsets.

    Args:
        admin: an admin client.
        group: the group whose committed offsets it asks for.
        cluster: the Kafka cluster.
    """

    def __init__(self, admin: AdminClient, group: str, cluster: Cluster) -> None:
        self._admin = admin
        # Not the admin client's list_consumer_group_offsets: with it, a response such as NOT_COORDINATOR, which a new
        # cluster sends, crashes the process (librdkafka #5040). This consumer never joins the group.
        self._asker = cluster.clients.consumer(cluster.asker(group))

    def committed(self, places: Iterable[Place]) -> dict[Place, OffsetMetadata]:
        """Return the last offsets that the group has committed, without waiting for open transactions.

        A partition without an offset is left out.

        Raises:
            RetriableError: no answer.
        """
        return ask_committed(self._asker, places)

    def clients(self) -> list[object]:
        """Return the clients that it uses."""
        return [self._admin, self._asker]

    def close(self) -> None:
        """Close the client."""
        self._asker.close()

    def existing(self, places: Iterable[Place]) -> list[Place]:
        """Return those of the partitions that exist."""
        wanted = list(places)
        counts: dict[str, int] = {}
        with group_errors("ask for topics"):
            for topic in {topic for topic, _ in wanted}:
                found = self._asker.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
                counts[topic] = 0 if found.error else len(found.partitions)
        return [(topic, partition) for topic, partition in wanted if partition < counts[topic]]

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the first offset that each log still holds."""
        return self._results(self._ask(places, _EARLIEST, committed=False))

    def ask_starts(self, places: Iterable[Place]) -> "PendingAnswers":
        """Ask as `starts` does, without waiting for the answer."""
        return PendingAnswers(self._ask(places, _EARLIEST, committed=False))

    def ends(self, places: Iterable[Place], *, committed: bool) -> dict[Place, int]:
        """Return the end of each log: its high watermark, or (`committed`) its last stable offset."""
        return self._results(self._ask(places, _LATEST, committed=committed))

    def since(self, places: Mapping[Place, int]) -> dict[Place, int]:
        """Return the first offset of each log whose timestamp is at or after a time in ms; -1 if there is none."""
        return self._results(self._list_since(places))

    def ask_since(self, places: Mapping[Place, int]) -> "PendingAnswers":
        """Ask as `since` does, without waiting for the answer."""
        return PendingAnswers(self._list_since(places))

    def _list_since(self, places: Mapping[Place, int]) -> "dict[TopicPartition, Future[Any]]":
        request = {TopicPartition(*place): OffsetSpec.for_timestamp(at_ms) for place, at_ms in places.items()}
        return self._admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)

    def ask_ends(self, places: Iterable[Place], *, committed: bool = False) -> "PendingAnswers":
        """Ask as `ends` does, without waiting for the answer."""
        return PendingAnswers(self._ask(places, _LATEST, committed=committed))

    def trim(self, below: Mapping[Place, int]) -> "PendingAnswers":
        """Delete the records below an offset of each partition, without waiting for the answer."""
        request = [TopicPartition(*place, offset) for place, offset in below.items()]
        if not request:
            return PendingAnswers({})
        return PendingAnswers(self._admin.delete_records(request, request_timeout=REQUEST_TIMEOUT_S))

    def _ask(
        self, places: Iterable[Place], spec: OffsetSpec, *, committed: bool
    ) -> "dict[TopicPartition, Future[Any]]":
        request = {TopicPartition(*place): spec for place in places}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._admin.list_offsets(request, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)

    def _results(self, futures: dict[TopicPartition, "Future[Any]"]) -> dict[Place, int]:
        try:
            with group_errors("ask for offsets"):
                return {(p.topic, p.partition): future.result().offset for p, future in futures.items()}
        except RetriableError as error:
            if error.code != "_NOENT":
                raise
            places = [(p.topic, p.partition) for p in futures]
            unseen = sorted({topic for topic, _ in set(places).difference(self.existing(places))})
            if not unseen:
                raise  # they have leaders by now
            text = f"{', '.join(unseen)}: not there, or this user may not see it (docs/security.md)"
            raise RetriableError(text, "UNKNOWN_TOPIC_OR_PART") from error


class PendingAnswers:
    """Answers under way, which the loop takes later, without waiting."""

    def __init__(self, futures: "dict[TopicPartition, Future[Any]]") -> None:
        self._futures = futures

    @property
    def done(self) -> bool:
        """Whether all answers have come or failed."""
        return all(future.done() for future in self._futures.values())

    def answers(self) -> dict[Place, int]:
        """Return the answers that came; failed ones are left out, and the caller asks again another time."""
        return {
            (p.topic, p.partition): future.result().offset
            for p, future in self._futures.items()
            if future.done() and future.exception() is None
        }

    def succeeded(self) -> list[Place]:
        """Return the partitions whose answer came."""
        return [(p.topic, p.partition) for p, one in self._futures.items() if one.done() and one.exception() is None]

    def failed(self) -> dict[Place, str]:
        """Return the partitions whose request failed, with the error's text."""
        failed: dict[Place, str] = {}
        for place, future in self._futures.items():
            exception = future.exception() if future.done() else None
            if isinstance(exception, KafkaException):
                failed[place.topic, place.partition] = error_of(exception).str()
        return failed

    def failures(self) -> list[str]:
        """Return one line for each failed request."""
        return [f"{topic}/{partition}: {text}" for (topic, partition), text in self.failed().items()]
