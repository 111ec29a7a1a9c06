"""The transactional producer, and how it fences another one.

One transaction at a time, on one thread: begin, produce, send offsets, commit. After an error that leaves the fate of a
transaction unknown, the producer cannot be used any more; `renew` builds the next one under the same id, which aborts
any transaction that the last one left open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""How long the second try to register a transactional id may take."""

ABORT_S = 2.0
"""How long an abort may take before its transactional id counts as stuck."""

HASTE_S = 0.1
"""How long the first try to register a transactional id may take; the reason is in `_registered`."""

_QUEUE_FULL_WAIT_S = 0.05
_QUEUE_FULL_TRIES = 600
_FLUSH_S = 0.05
_LAST_NOT_ENDED = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS).name()
_NOT_OPEN = KafkaError(KafkaError.INVALID_TXN_STATE).name()
_INTERNAL_TOPIC = "__transaction_state"

STUCK_S = 3.0
"""How long the last transaction of an id may take to end on all its partitions.

It mostly takes milliseconds, but waits for each partition that has no leader.
"""

METADATA_TIMEOUT_S = 5.0
"""How long to wait for the metadata of a topic."""

ProducedHeaders = list[tuple[str, str | bytes | None]]
"""The type that the client library takes; its lists are invariant."""

OnFailure = Callable[[KafkaError | None, Any], None]
"""A delivery report; takes the error, or None, and the record."""


class Transactor:
    """A transactional producer under one id.

    Args:
        cluster: the cluster that it writes to.
        transactional_id: the name by which Kafka knows and fences it.
        compressed: whether its records are compressed.
        properties: librdkafka properties; they are added to the service's own and override them.
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
        """Its earlier ids, which no process uses any more."""
        self.is_stuck = False
        """Whether its id is unusable for now: the brokers may still be waiting to end its last transaction."""
        self._compressed = compressed
        self._properties = properties
        self.batch_bytes = BATCH_BYTES
        """The largest batch of several records that it sends, in bytes; a change takes effect at the next `renew`."""
        self.registrations = 0
        """How often it registered its id. A transaction begun at a lower number has ended: registering aborts it."""
        self._cluster = cluster
        self._producer: Producer | None = None
        self._changing = Lock()
        """The loop may rename it while another thread renews it."""

    @property
    def transactional_id(self) -> str:
        """The present name by which Kafka knows it."""
        return self._name if self._number == 1 else f"{self._name}-{self._number}"

    def rename(self) -> None:
        """Switch to another id, because a transaction cannot end while one of its partitions has no leader.

        Until the markers of that transaction are written to all its partitions, the brokers begin no other transaction
        of the same id (docs/adr/0018). No process uses the old id any more; a background thread tries to end its open
        transaction.
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
        """Abort the open transaction. If the id is stuck, or becomes stuck, drop the producer; `rename` comes next.

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
        """Whether a producer is built and registered."""
        return self._producer is not None

    def check_options(self) -> None:
        """Build a producer and drop it, without contacting the brokers.

        Raises:
            KafkaException: the client library refuses an option.
        """
        self._cluster.clients.producer(self._settings(self.transactional_id)).purge()

    def renew(self) -> None:
        """Build a producer and register it; this aborts any open transaction of an earlier producer with this id.

        Raises:
            RetriableError: the transaction coordinator does not answer yet.
            FatalError: the coordinator refused.
        """
        with self._changing:
            self.close()
            name = self.transactional_id
            self.registrations += 1
        try:
            producer = _registered(self._cluster, name, self._settings(name))
        except BrokerError as error:
            with self._changing:
                if name != self.transactional_id:  # renamed meanwhile: `_end_what_is_open` has fenced this producer
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
        return RetriableError(
            f"the transactional id {name} was replaced by {self.transactional_id} while its producer was built"
        )

    def _settings(self, name: str) -> Properties:
        """Return the properties of a producer with that id."""
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
        headers: ProducedHeaders | None,
        on_failure: OnFailure,
    ) -> None:
        """Add a record to the transaction; the client library sends it in the background.

        Args:
            topic: where to.
            partition: -1 to choose it by key.
            key: of the record.
            value: of the record.
            headers: of the record.
            on_failure: called with the error and the record if it could not be delivered.

        Raises:
            AbortableError: the queue stayed full for too long; or the partition is unknown, and no broker answers.
            FatalError: the producer is lost; noticed while waiting for room in the queue.
            KafkaException: this record cannot be sent; the transaction is unchanged.
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
        """Serve delivery reports; wait up to `timeout_s` for the first one.

        Returns:
            How many were served.

        Raises:
            FatalError: the producer is lost, for example because it was fenced.
        """
        with _serving():
            return self._live.poll(timeout_s)

    def deliver(self, has_failed: Callable[[], bool]) -> None:
        """Wait until all records are delivered, or until one has failed.

        After a failure, a commit would wait for the records queued after the failed one, until they time out.

        Raises:
            FatalError: the producer is lost.
        """
        with _serving():
            while self._live.flush(_FLUSH_S) and not has_failed():
                pass

    def push(self) -> int:
        """Serve delivery reports, and make the client library send queued records now, without waiting.

        Without this, a client that has just learned of a partition may delay its first records by a second.

        Returns:
            How many records are neither delivered nor failed.

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
            partition: its number.
            records: each with `key` and `value`.
            on_failure: called with the error and the record if one could not be delivered.

        Raises:
            AbortableError: the queue had no room for all of them, or the transaction has failed already.
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
            # The client library marks only the refused records.
            left = [record for record in left if "_error" in record]
            if not left:
                raise AbortableError(f"the client library accepted only {added} of {len(records)} records for {topic}")
            errors: list[Any] = [record.pop("_error") for record in left]
            # A full queue is the only cause that passes. A transaction that has failed takes no records any more.
            if (error := next((one for one in errors if one.code() != KafkaError._QUEUE_FULL), None)) is not None:
                raise AbortableError(f"could not write to {topic}: {error.str()}", error.name())
            self._make_room()

    def send_offsets(self, offsets: dict[Place, OffsetMetadata], group_metadata: Any) -> None:
        """Add offsets to the transaction; refused if the member is not of the current generation.

        Raises:
            AbortableError: refused; or the last transaction of this id does not end: the id is stuck.
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
                raise AbortableError(
                    f"the last transaction of {self.transactional_id} does not end: {error.str()}", error.name()
                ) from exception

        self._retry_until_final("send offsets", send)

    def commit(self, within_s: float | None = None) -> None:
        """Commit the transaction.

        Args:
            within_s: how long to wait; None: for as long as it takes.

        Raises:
            RetriableError: not within that time, and whether it is committed is unknown; calling again may tell.
            AbortableError: nothing of it is committed; call `abort` next.
            FatalError: its fate is unknown; call `renew` next.
        """
        doing = "commit the transaction"
        if within_s is None:
            self._retry_until_final(doing, lambda: self._live.commit_transaction(-1))
        else:
            with producer_errors(doing):
                self._live.commit_transaction(within_s)

    def abort(self, within_s: float | None = None) -> None:
        """Abort the transaction.

        After a refused AddPartitionsToTxn the broker has never opened the transaction, so the abort fails. Then the
        producer is registered again, which aborts as well. The broker still knows this producer, so registering it
        fences no other process.

        Args:
            within_s: how long to wait; None: for as long as it takes.

        Raises:
            RetriableError: not within that time; `renew`, `rename`, or a process that fences the id aborts it as well.
            FatalError: registering failed too, or the producer is fenced; take over again.
        """
        try:
            if within_s is None:
                self._retry_until_final("abort the transaction", lambda: self._live.abort_transaction(-1))
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

    def abort_offsets(self, offsets: dict[Place, OffsetMetadata], group_metadata: Any) -> None:
        """Open a transaction that sends these offsets alone, and abort it.

        Raises:
            RetriableError: no producer is built.
            AbortableError: refused for now.
            FatalError: the producer is lost.
        """
        self.begin()
        try:
            self.send_offsets(offsets, group_metadata)
        finally:
            self.give_up()

    def _refresh(self, topic: str) -> None:
        """Make the client fetch a topic's metadata again: a partition may have been added since."""
        try:
            self._live.list_topics(topic, METADATA_TIMEOUT_S)
        except KafkaException as exception:
            raise AbortableError(f"could not ask about {topic}: {exception}", error_of(exception).name()) from exception

    @property
    def producer(self) -> Producer:
        """The client library's producer; do not keep it, because `renew` replaces it.

        Raises:
            RetriableError: it is not built yet.
        """
        return self._live

    @property
    def _live(self) -> Producer:
        producer = self._producer  # read once: the loop may rename while another thread aborts
        if producer is None:
            raise RetriableError(f"the producer {self.transactional_id} is not built yet")
        return producer

    def _make_room(self) -> None:
        for _ in range(_QUEUE_FULL_TRIES):
            if self.poll(_QUEUE_FULL_WAIT_S):
                return
        raise AbortableError("the producer's queue stays full", "_QUEUE_FULL")

    def _retry_until_final(self, doing: str, call: Callable[[], None]) -> None:
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
    """Translate the error that ended the client: any call that runs the client library's callbacks may raise it."""
    return producer_errors("deliver records")


def fence(cluster: Cluster, transactional_ids: Sequence[str]) -> None:
    """Fence the processes that use these transactional ids, and abort their open transactions.

    Raises:
        RetriableError: the transaction coordinator does not answer yet.
        FatalError: the coordinator refused.
    """
    cluster.clients.at_once([partial(_fence, cluster, one) for one in transactional_ids])


def _fence(cluster: Cluster, transactional_id: str) -> None:
    _registered(cluster, transactional_id, cluster.transactor(transactional_id)).close()


def end_pending_offsets(
    cluster: Cluster,
    transactional_ids: Iterable[str],
    offsets: dict[Place, OffsetMetadata],
    group_metadata: Any,
) -> None:
    """Make a group's coordinator forget the offsets that it keeps as pending for these transactional ids.

    The coordinator keeps the offsets of an open transaction apart until it learns how that transaction ended. If it has
    missed the end, they stay, and a question for stable offsets gets no answer. The end of a later transaction of the
    same producer removes them.

    Args:
        cluster: the cluster.
        transactional_ids: ids of other processes; a process that still uses one is fenced.
        offsets: what that later transaction sends before it is aborted.
        group_metadata: of the group's consumer.

    Raises:
        RetriableError: the coordinators do not answer, or another process uses one of the ids at the same time.
        AbortableError: refused for now.
    """
    cluster.clients.at_once([partial(_end_pending, cluster, one, offsets, group_metadata) for one in transactional_ids])


def _end_pending(
    cluster: Cluster, transactional_id: str, offsets: dict[Place, OffsetMetadata], group_metadata: Any
) -> None:
    transactor = Transactor(cluster, transactional_id)
    try:
        transactor.renew()
        transactor.abort_offsets(offsets, group_metadata)
    except FatalError as error:
        # Another process has registered the id since, perhaps for the same reason. None of our producers is lost.
        raise RetriableError(str(error), error.code) from error
    finally:
        transactor.close()


def _end_what_is_open(cluster: Cluster, transactional_id: str) -> None:
    """Make the coordinator decide to abort the open transaction of an id that no process uses any more.

    This does not wait until the transaction has ended.
    """
    # An error may mean that the abort is decided but its markers are not written yet; or that another process has
    # registered the id, which aborts the transaction too. No caller waits for this: at the latest the transaction's
    # time-out ends it.
    with suppress(BrokerError):
        properties = cluster.transactor(transactional_id)
        drop(_try_to_register(cluster, transactional_id, properties, HASTE_S))


def _registered(cluster: Cluster, transactional_id: str, properties: Properties) -> Producer:
    """Return a new producer under an id, once the coordinator has aborted the last one's open transaction.

    That abort takes some milliseconds. Until it is complete the coordinator refuses to register the id, and the client
    library waits for half a second before it asks again. Another client asks at once.
    """
    # The first client is closed before the second begins: else it would go on asking, and fence the second.
    with suppress(RetriableError):
        return _try_to_register(cluster, transactional_id, properties, HASTE_S)
    return _try_to_register(cluster, transactional_id, properties, INIT_TIMEOUT_S)


def _try_to_register(cluster: Cluster, transactional_id: str, properties: Properties, timeout_s: float) -> Producer:
    producer = cluster.clients.producer(properties)
    try:
        # Without a connection, the client library's first search for the coordinator fails, and its next one is half a
        # second later. The first answer names the brokers; the second comes over the connection that is then made.
        with group_errors(f"reach the cluster to register {transactional_id}"):
            for _ in range(2):
                producer.list_topics(_INTERNAL_TOPIC, METADATA_TIMEOUT_S)
        with producer_errors(f"register {transactional_id}"):
            producer.init_transactions(timeout_s)
    except BrokerError:
        drop(producer)
        raise
    return producer
