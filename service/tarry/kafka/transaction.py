"""The transactional producer, and how it fences another.

One at a time, on one thread: begin, produce, offsets, commit. After an error that leaves a transaction's fate open the
producer is useless; `renew` builds the next one under the same id, which aborts whatever the last one left open.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError
from tarry.kafka.clients import Properties, drop
from tarry.kafka.errors import error_of, group_errors, producer_errors, translate
from tarry.kafka.settings import BATCH_BYTES, Cluster
from tarry.kafka.types import OffsetMetadata, Place

INIT_TIMEOUT_S = 10.0

ABORT_S = 2.0
"""How long an abort may take before its id counts as stuck."""

HASTE_S = 0.1
"""How long the first try to register may take."""

_QUEUE_FULL_WAIT_S = 0.05
_QUEUE_FULL_TRIES = 600
_FLUSH_S = 0.05
_LAST_NOT_ENDED = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS).name()
_NOT_OPEN = KafkaError(KafkaError.INVALID_TXN_STATE).name()
_THERE_ANYWAY = "__transaction_state"

STUCK_S = 3.0
"""How long the last transaction of an id may take to end everywhere: mostly milliseconds, but it waits for leaders."""

METADATA_TIMEOUT_S = 5.0
"""How long it is waited to be told about a target."""

Headers = list[tuple[str, str | bytes | None]]
"""As the client library takes them; its lists are invariant."""

OnFailure = Callable[[KafkaError | None, Any], None]


class Transactor:
    """A transactional producer under one id.

    Args:
        cluster: where.
        transactional_id: the name under which Kafka knows it, and fences it.
        compressed: whether what it writes is compressed.
        properties: librdkafka's, beside the service's own or instead of them.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        compressed: bool = False,
        properties: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._name = transactional_id
        self._number = 1
        self.former: set[str] = set()
        """Ids that were its own before: nobody uses them any more."""
        self.is_stuck = False
        """Whether its id could not be gone on with: the brokers may wait to end its last transaction."""
        self._compressed = compressed
        self._properties = properties
        self.batch_bytes = BATCH_BYTES
        """The largest batch of several records that it sends; a change counts from the next `renew` on."""
        self.registrations = 0
        """How often its id was registered by it: what a producer of fewer has begun is over."""
        self._cluster = cluster
        self._producer: Producer | None = None
        self._changing = Lock()
        """Renewed beside the loop, it may be renamed by the loop meanwhile."""

    @property
    def transactional_id(self) -> str:
        """The name under which Kafka knows it."""
        return self._name if self._number == 1 else f"{self._name}-{self._number}"

    def rename(self) -> None:
        """Go on under another id: a transaction of this one can't end while one of its partitions has no leader.

        Until its markers are written everywhere, the brokers begin no other transaction of that id (docs/adr/0018).
        From here on nobody uses the old one; what it may have open is ended beside the loop, where that can be.
        """
        left = self.transactional_id
        with self._changing:
            was_registered = self.registrations > 0
            if was_registered:
                self.former.add(left)
            self.close()
            self._number += 1
            self.registrations += 1
            self.is_stuck = False
        if was_registered:
            self._cluster.clients.in_background(partial(_end_what_is_open, self._cluster, left))

    def give_up(self) -> None:
        """Abort what is open; an id that is stuck, or becomes so, is to be changed: `rename`.

        Raises:
            FatalError: the producer is lost.
        """
        try:
            if not self.is_stuck:
                self.abort(ABORT_S)
        except RetriableError:
            self.is_stuck = True
        if self.is_stuck:
            self.close()

    @property
    def started(self) -> bool:
        """Whether there is a producer."""
        return self._producer is not None

    def check_options(self) -> None:
        """Build a producer and drop it, without a word to the brokers.

        Raises:
            KafkaException: an option is refused.
        """
        self._cluster.clients.producer(self._settings(self.transactional_id)).purge()

    def renew(self) -> None:
        """Build a producer and register it: whatever an earlier one of this id left open is aborted.

        Raises:
            RetriableError: the coordinator does not answer yet.
            FatalError: refused.
        """
        with self._changing:
            self.close()
            name = self.transactional_id
            self.registrations += 1
        try:
            producer = _registered(self._cluster, name, self._settings(name))
        except BrokerError as error:
            with self._changing:
                if name != self.transactional_id:  # who ends what it has open has fenced this one
                    raise self._was_renamed(name) from error
                self.is_stuck = isinstance(error, RetriableError)
            raise
        with self._changing:
            if name == self.transactional_id:
                self._producer = producer
                return
        drop(producer)
        raise self._was_renamed(name)

    def _was_renamed(self, name: str) -> RetriableError:
        return RetriableError(f"{name} is {self.transactional_id} now")

    def _settings(self, name: str) -> Properties:
        """Of a producer under that id."""
        properties = self._cluster.transactor(name, self.batch_bytes, compressed=self._compressed)
        return {**properties, **self._properties}

    def close(self) -> None:
        """Drop the producer; an open transaction stays open until it is fenced or times out."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    def begin(self) -> None:
        """Open a transaction."""
        with producer_errors("begin a transaction"):
            self._live.begin_transaction()

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        on_failure: OnFailure,
    ) -> None:
        """Add a record; it is sent in the background.

        Args:
            topic: where to.
            partition: which, or -1 to choose by key.
            key: of the record.
            value: of the record.
            headers: of the record.
            on_failure: called with the error and the record if it could not be delivered.

        Raises:
            AbortableError: no room in the queue for too long; or the partition is not known, and no broker answers.
            FatalError: the producer was found to be lost while room was waited for.
            KafkaException: this record can't be sent, and the transaction is as it was.
        """
        refreshed = False
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_failure, headers=headers)  # type: ignore[union-attr]
            except BufferError:
                self._make_room()
            except KafkaException as exception:
                if refreshed or error_of(exception).code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                refreshed = True
                self._refresh(topic)
            else:
                return

    def poll(self, timeout_s: float = 0) -> int:
        """Serve delivery reports; wait at most so long for the first.

        Returns:
            How many were served.

        Raises:
            FatalError: the producer is lost, as it is when it was fenced.
        """
        with _serving():
            return self._live.poll(timeout_s)

    def deliver(self, has_failed: Callable[[], bool]) -> None:
        """Wait until all records are delivered, or until one has failed.

        A commit would wait for those that are queued behind the one that failed, until they time out.

        Raises:
            FatalError: the producer is lost.
        """
        with _serving():
            while self._live.flush(_FLUSH_S) and not has_failed():
                pass

    def push(self) -> int:
        """Serve delivery reports and see to it that records are on their way, without waiting.

        A client that has just learned of a partition may else leave its first records lying for a second.

        Returns:
            How many are neither delivered nor failed.

        Raises:
            FatalError: the producer is lost.
        """
        with _serving():
            return self._live.flush(0)

    def produce_all(
        self, topic: str, partition: int, records: list[dict[str, bytes]], on_failure: OnFailure | None = None
    ) -> None:
        """Add records without headers to one partition, in one call.

        Args:
            topic: where to.
            partition: which.
            records: each with `key` and `value`.
            on_failure: called with the error and the record if one could not be delivered.

        Raises:
            AbortableError: not all of them found room.
        """
        left = records
        while left:
            try:
                added = self._live.produce_batch(topic, left, partition, on_failure)
            except BufferError:
                self._make_room()
                continue
            if added == len(left):
                return
            # What was refused is marked, and nothing else is: a full queue is the one cause that passes.
            left = [record for record in left if "_error" in record]
            if not left:
                raise AbortableError(f"{len(records)} records to {topic}, and {added} were taken")
            for record in left:
                record.pop("_error")
            self._make_room()

    def send_offsets(self, offsets: dict[Place, OffsetMetadata], group_metadata: Any) -> None:
        """Add offsets; refused if the member is no longer of the current generation.

        Raises:
            AbortableError: refused; or the last transaction of this id does not end, and it is stuck.
            FatalError: the producer is lost.
        """
        wanted = [TopicPartition(*place, offset, metadata) for place, (offset, metadata) in offsets.items()]

        def send() -> None:
            try:
                self._live.send_offsets_to_transaction(wanted, group_metadata, STUCK_S)
            except KafkaException as exception:
                error = error_of(exception)
                if error.name() != _LAST_NOT_ENDED or not error.retriable():
                    raise
                self.is_stuck = True
                raise AbortableError(f"{self.transactional_id} is stuck: {error.str()}", error.name()) from exception

        self._again("send offsets", send)

    def commit(self, within_s: float | None = None) -> None:
        """Commit, however long it takes.

        Args:
            within_s: do not wait for longer; None: for as long as it takes.

        Raises:
            RetriableError: not within that time; whether it is committed is not known; the same call may tell.
            AbortableError: nothing of it is committed; `abort` is the next call.
            FatalError: its fate is not known; `renew` is the next call.
        """
        doing = "commit the transaction"
        if within_s is None:
            self._again(doing, lambda: self._live.commit_transaction(-1))
        else:
            with producer_errors(doing):
                self._live.commit_transaction(within_s)

    def abort(self, within_s: float | None = None) -> None:
        """Abort, however long it takes.

        After a refused AddPartitionsToTxn, whose transaction the broker never opened, that fails; then the producer is
        registered anew, which aborts as well. The broker knows it still, so this fences nobody.

        Args:
            within_s: do not wait for longer; None: for as long as it takes.

        Raises:
            RetriableError: not within that time; `renew` aborts it as well, or `rename`, and whoever fences the id.
            FatalError: that failed too, or the producer is fenced; take over anew.
        """
        try:
            if within_s is None:
                self._again("abort the transaction", lambda: self._live.abort_transaction(-1))
            else:
                with producer_errors("abort the transaction"):
                    self._live.abort_transaction(within_s)
        except FatalError as error:
            if error.code != _NOT_OPEN:
                raise
            try:
                self.renew()
            except RetriableError as refused:
                if within_s is not None:
                    raise
                raise FatalError(str(refused), refused.code) from refused

    def _refresh(self, topic: str) -> None:
        """Have the client look at a topic anew: a partition may have been added since."""
        try:
            self._live.list_topics(topic, METADATA_TIMEOUT_S)
        except KafkaException as exception:
            raise AbortableError(f"could not ask about {topic}: {exception}", error_of(exception).name()) from exception

    @property
    def producer(self) -> Producer:
        """The producer, once there is one; not to be kept: after `renew` it is another."""
        return self._live

    @property
    def _live(self) -> Producer:
        producer = self._producer  # once: the loop may rename beside a thread that aborts
        if producer is None:
            raise RetriableError(f"the producer {self.transactional_id} is not built yet")
        return producer

    def _make_room(self) -> None:
        for _ in range(_QUEUE_FULL_TRIES):
            if self.poll(_QUEUE_FULL_WAIT_S):
                return
        raise AbortableError("the producer's queue stays full", "_QUEUE_FULL")

    def _again(self, doing: str, call: Callable[[], None]) -> None:
        while True:
            try:
                call()
            except KafkaException as exception:
                error = translate(error_of(exception), doing)
                if not isinstance(error, RetriableError):
                    raise error from exception
            else:
                return


def _serving() -> AbstractContextManager[None]:
    """Whatever runs the client library's call-backs raises what has ended the client."""
    return producer_errors("deliver records")


def fence(cluster: Cluster, transactional_ids: Sequence[str]) -> None:
    """Abort what processes left open under these ids, and shut the processes out.

    Raises:
        RetriableError: the coordinator does not answer yet.
        FatalError: refused.
    """
    cluster.clients.at_once([partial(_fence, cluster, one) for one in transactional_ids])


def _fence(cluster: Cluster, transactional_id: str) -> None:
    _registered(cluster, transactional_id, cluster.transactor(transactional_id)).close()


def _end_what_is_open(cluster: Cluster, transactional_id: str) -> None:
    """Have the coordinator decide what is open under an id that nobody uses any more, without waiting for the end."""
    # Decided, while its markers are not written; or somebody else has registered the id, which decides it too. Nobody
    # waits for this: at the latest the transaction's time-out ends it.
    with suppress(BrokerError):
        properties = cluster.transactor(transactional_id)
        drop(_try_to_register(cluster, transactional_id, properties, HASTE_S))


def _registered(cluster: Cluster, transactional_id: str, properties: Properties) -> Producer:
    """A new producer under an id, once the coordinator has aborted what the last one left open.

    Until it has, which takes some milliseconds, it sends who registers away, and the client library waits for half a
    second before it asks again. Another client asks at once.
    """
    # The first is gone before the second begins: it would go on asking, and fence the second.
    with suppress(RetriableError):
        return _try_to_register(cluster, transactional_id, properties, HASTE_S)
    return _try_to_register(cluster, transactional_id, properties, INIT_TIMEOUT_S)


def _try_to_register(cluster: Cluster, transactional_id: str, properties: Properties, timeout_s: float) -> Producer:
    producer = cluster.clients.producer(properties)
    try:
        # Without a connection the first look for the coordinator finds nothing, and the next one is half a second
        # later. The first answer tells the brokers' names, and the second comes over the connection that is then made.
        with group_errors(f"reach the cluster to register {transactional_id}"):
            for _ in range(2):
                producer.list_topics(_THERE_ANYWAY, METADATA_TIMEOUT_S)
        with producer_errors(f"register {transactional_id}"):
            producer.init_transactions(timeout_s)
    except BrokerError:
        drop(producer)
        raise
    return producer
