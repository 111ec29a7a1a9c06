"""The fake producer, with or without transactions."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tarry.kafka.clients import Properties
from tarry.kafka.types import Place
from tarry.testing.fake.log import Draft, until_nul
from tarry.testing.fake.membership import GroupMetadata
from tarry.testing.fake.metadata import ask_metadata
from tarry.testing.fake.outbox import Outbox, Queued, Report
from tarry.testing.fake.refusals import RefusedRequest, failure
from tarry.testing.fake.sending import FakeSender
from tarry.testing.fake.transacting import Stage, Transacting
from tarry.testing.fake.wire import FOR_EVER_MS, Wire

QUEUE_RECORDS = 100_000
QUEUE_KBYTES = 1_048_576
MESSAGE_BYTES = 1_000_000
TRANSACTION_TIMEOUT_MS = 60_000
SENDING_MEANWHILE = 0.1
"""The probability that a call of `produce` sends a part of the queue, as the library's threads may do meanwhile."""
_LOOK_EVERY_MS = 10

GivenHeaders = Sequence[tuple[str, str | bytes | None]] | dict[str, str | bytes | None]


class FakeProducer:
    """Has the methods of `confluent_kafka.Producer`.

    Args:
        wire: the connection to the cluster.
        properties: librdkafka's properties.
    """

    def __init__(self, wire: Wire, properties: Properties) -> None:
        self._wire = wire
        self._most_bytes = int(properties.get("message.max.bytes", MESSAGE_BYTES))
        self._outbox = Outbox(
            int(properties.get("queue.buffering.max.messages", QUEUE_RECORDS)),
            int(properties.get("queue.buffering.max.kbytes", QUEUE_KBYTES)) * 1024,
            errors_only=bool(properties.get("delivery.report.only.error", False)),
        )
        name = str(properties.get("transactional.id", ""))
        timeout_ms = int(properties.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        self._transacting = Transacting(wire, name, timeout_ms, self._give_up, self._begin_sequences)
        self._sender = FakeSender(wire, properties, self._outbox, self._transacting.admit, self._take_refusal)

    def __len__(self) -> int:
        return len(self._outbox)

    def __bool__(self) -> bool:
        return True

    # -- records ----------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
        timestamp: int = 0,
        headers: GivenHeaders | None = None,
    ) -> None:
        """Queue a record; a part of the queue may be sent."""
        report = callback if on_delivery is None else on_delivery
        self._enqueue(topic, value, key, partition, report, timestamp, headers)
        if self._wire.server.random.random() < SENDING_MEANWHILE:
            self._sender.send_some()

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Report | None = None,
        on_delivery: Report | None = None,
    ) -> int:
        """Queue records without headers. A refused record gets the key `_error`."""
        report = callback if on_delivery is None else on_delivery
        queued = 0
        for message in messages:
            try:
                self._enqueue(topic, message.get("value"), message.get("key"), partition, report, 0, None)
                queued += 1
            except KafkaException as exception:
                message["_error"] = exception.args[0]
            except BufferError:
                message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        return queued

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports, and wait for the first one. A part of the queue may be sent."""
        clock = self._wire.clock
        ends_ms = clock.monotonic_ms() + _ms(timeout)
        while True:
            if self._transacting.may_send:
                self._sender.send_some()
            self._sender.expire()
            served = self._outbox.serve()
            self._transacting.tell()
            left_ms = ends_ms - clock.monotonic_ms()
            if served or left_ms <= 0:
                return served
            clock.advance(min(_LOOK_EVERY_MS, left_ms))
            self._wire.process.must_live()

    def flush(self, timeout: float = -1) -> int:
        """Send all queued records and serve all reports; return how many records are left."""
        self._send_all(self._wire.clock.monotonic_ms() + _ms(timeout))
        self._transacting.tell()
        return len(self._outbox)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:  # noqa: ARG002 - the client library's signature
        """Drop all queued records. No record is in flight between two calls."""
        if in_queue:
            self._outbox.settle(self._outbox.waiting, KafkaError(KafkaError._PURGE_QUEUE))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the metadata of a topic, or of all topics."""
        found = ask_metadata(self._wire, topic, timeout)
        for name, one in found.topics.items():
            if one.error is None or name in self._sender.counts:
                self._sender.know(name, len(one.partitions))
        return found

    def close(self) -> bool:
        """Abort an open transaction, and send all queued records of a producer without transactions.

        Raises:
            KafkaException: the producer has a fatal error.
        """
        if not self._wire.process.alive:
            return True
        if self._transacting.stage in {Stage.OPEN, Stage.ABORTABLE, Stage.COMMITTING}:
            self.abort_transaction()
        self._transacting.require(Stage.PLAIN, Stage.NEW, Stage.READY)
        return self.flush() == 0

    # -- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float = -1) -> None:
        """Register the transactional id, which fences an earlier producer and aborts its open transaction."""
        self._transacting.init(None if timeout < 0 else _ms(timeout))

    def begin_transaction(self) -> None:
        """Open a transaction locally, without a request."""
        self._transacting.begin()
        self._outbox.failures = 0
        self._sender.begin()

    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition],
        group_metadata: GroupMetadata,
        timeout: float = -1,
    ) -> None:
        """Add offsets to the transaction. The cluster refuses them from a member of an old generation."""
        if self._transacting.may_send:
            self._sender.send_some()
        offsets = {(one.topic, one.partition): (one.offset, one.metadata or "") for one in positions if one.offset >= 0}
        self._transacting.send_offsets(offsets, group_metadata, None if timeout < 0 else _ms(timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send all queued records, and commit."""
        self._transacting.require(Stage.OPEN, Stage.COMMITTING)
        self._transacting.stage = Stage.COMMITTING
        ends_ms = self._wire.clock.monotonic_ms() + _ms(timeout)
        if not self._send_all(ends_ms):
            raise failure(KafkaError._TIMED_OUT, "Failed to flush all outstanding messages", retriable=True)
        if self._transacting.may_send and (failed := self._outbox.failures):
            text = f"{failed} message(s) failed delivery (see individual delivery reports)"
            self._transacting.fail(KafkaError._INCONSISTENT, text)
        self._transacting.require(Stage.COMMITTING)
        self._transacting.end(ends_ms - self._wire.clock.monotonic_ms(), commit=True)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop all queued records, and abort."""
        self._transacting.require(Stage.OPEN, Stage.ABORTABLE, Stage.COMMITTING)
        self.purge()
        self._outbox.serve()
        self._transacting.end(_ms(timeout), commit=False)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _enqueue(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        report: Report | None,
        timestamp_ms: int,
        headers: GivenHeaders | None,
    ) -> None:
        self._check_stage()
        clock = self._wire.clock
        pairs = headers.items() if isinstance(headers, dict) else headers or ()
        draft = Draft(
            _bytes(key),
            _bytes(value),
            [(until_nul(name), _bytes(one)) for name, one in pairs] or None,
            timestamp_ms or clock.now_ms(),
        )
        if len(draft.key or b"") + len(draft.value or b"") > self._most_bytes:
            raise failure(KafkaError.MSG_SIZE_TOO_LARGE)
        known = self._sender.counts.get(topic)
        if known == 0:
            raise failure(KafkaError._UNKNOWN_TOPIC)
        if known is not None and partition >= known:
            raise failure(KafkaError._UNKNOWN_PARTITION)
        if not self._outbox.has_room_for(draft):
            raise BufferError("Local: Queue full")
        if partition < 0:
            partition = self._sender.choose(topic, draft.key)
        self._outbox.put(Queued(topic, partition, draft, report, clock.monotonic_ms()))

    def _check_stage(self) -> None:
        if self._transacting.stage is Stage.FATAL:
            raise failure(KafkaError._FATAL)
        if self._transacting.stage not in {Stage.PLAIN, Stage.OPEN}:
            raise failure(KafkaError._STATE)

    def _send_all(self, ends_ms: int) -> bool:
        everything = self._sender.send_all(ends_ms, lambda: self._transacting.may_send)
        self._outbox.serve()
        return everything

    def _begin_sequences(self) -> None:
        self._sender.forget_gaps()

    def _give_up(self) -> None:
        """Drop the queued records that are not in flight."""
        waiting = [record for record in self._outbox.waiting if not record.stranded]
        self._outbox.settle(waiting, KafkaError(KafkaError._PURGE_QUEUE))

    def _take_refusal(self, refusal: RefusedRequest, place: Place) -> None:
        """React to a partition that has refused a batch or was not available."""
        if self._transacting.stage is not Stage.PLAIN:
            self._transacting.refuse(refusal, f"write to {place[0]} [{place[1]}]")
        elif refusal.code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._sender.know(place[0], 0)


def _ms(seconds: float) -> int:
    return FOR_EVER_MS if seconds < 0 else round(seconds * 1000)


def _bytes(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given
