"""The background threads of a producer, which send queued records in batches, one partition at a time."""

from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError

from tarry.kafka.clients import Properties
from tarry.kafka.types import Place
from tarry.testing.fake.log import batch_bytes
from tarry.testing.fake.outbox import Outbox, Queued
from tarry.testing.fake.partitioner import choose
from tarry.testing.fake.refusals import AnswerLost, Busy, RefusedRequest, Unanswered
from tarry.testing.fake.wire import Wire

MESSAGE_TIMEOUT_MS = 300_000
PROPAGATION_MS = 30_000
LINGER_MS = 5
BATCH_BYTES = 1_000_000
BATCH_RECORDS = 10_000
IN_FLIGHT = 5
"""The number of batches in flight to one partition."""

_NOT_OF_THE_BATCH = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.UNKNOWN_TOPIC_OR_PART})
"""Errors of the request that adds a partition to the transaction: no record is bad."""


class FakeSender:
    """Sends the queued records of one producer.

    Args:
        wire: the connection to the cluster.
        properties: the properties of the producer.
        outbox: the queue.
        admit: adds a partition to the open transaction, and returns the producer's id; None outside of transactions.
        on_refusal: called for each refused batch.
    """

    def __init__(
        self,
        wire: Wire,
        properties: Properties,
        outbox: Outbox,
        admit: Callable[[Place], int | None],
        on_refusal: Callable[[RefusedRequest, Place], None],
    ) -> None:
        self._wire = wire
        self._outbox = outbox
        self._admit = admit
        self._on_refusal = on_refusal
        self._partitioner = str(properties.get("partitioner", "consistent_random"))
        self._transaction = str(properties.get("transactional.id", ""))
        self._timeout_ms = int(properties.get("message.timeout.ms", MESSAGE_TIMEOUT_MS))
        self._propagation_ms = int(properties.get("topic.metadata.propagation.max.ms", PROPAGATION_MS))
        self._linger_ms = float(properties.get("linger.ms", LINGER_MS))
        self._batch_bytes = int(properties.get("batch.size", BATCH_BYTES))
        self._batch_records = int(properties.get("batch.num.messages", BATCH_RECORDS))
        codec = properties.get("compression.type", properties.get("compression.codec", "none"))
        self._compressed = codec != "none"
        self._gaps: set[Place] = set()
        self._announced: set[Place] = set()
        self.counts: dict[str, int] = {}
        """The number of partitions of each known topic; 0 for a topic that does not exist."""

    def know(self, topic: str, partitions: int) -> None:
        """Remember the number of partitions of a topic from its metadata."""
        self.counts[topic] = partitions

    def choose(self, topic: str, key: bytes | None) -> int:
        """Return the partition for a key; -1 while the topic is not known."""
        partitions = self.counts.get(topic, 0)
        return choose(self._partitioner, key, partitions, self._wire.server.random) if partitions else -1

    def begin(self) -> None:
        """Start a transaction, which has no partitions yet."""
        self._announced.clear()

    def forget_gaps(self) -> None:
        """Start new sequence numbers, because the producer has a new epoch."""
        self._gaps.clear()

    def send_some(self) -> None:
        """Send the queued records of randomly chosen partitions, once a record has waited for `linger.ms`."""
        server = self._wire.server
        waiting = self._outbox.waiting
        if not waiting or self._wire.clock.monotonic_ms() - waiting[0].since_ms < self._linger_ms:
            return
        self._resolve()
        for place in dict.fromkeys(record.place for record in self._outbox.waiting):
            if server.random.random() < 0.5:
                self._send(place)

    def send_all(self, ends_ms: int, going_on: Callable[[], bool]) -> bool:
        """Send all queued records. To wait, advance the clock.

        Args:
            ends_ms: the monotonic time at which to stop.
            going_on: returns whether records may still be sent. Records in flight are waited for in any case.

        Returns:
            Whether the queue is empty.
        """
        clock = self._wire.clock
        while True:
            self._resolve()
            for place in dict.fromkeys(record.place for record in self._outbox.waiting):
                while going_on() and self._send(place):
                    pass
            self.expire()
            if not self._outbox.waiting:
                return True
            if clock.monotonic_ms() >= ends_ms:
                return False
            clock.advance(min(10, ends_ms - clock.monotonic_ms()))
            self._wire.process.must_live()

    def expire(self) -> None:
        """Fail the records whose timeout has passed."""
        now_ms = self._wire.clock.monotonic_ms()
        self._resolve()
        for record in self._outbox.waiting:
            age_ms = now_ms - record.since_ms
            if not self.counts.get(record.topic) and age_ms >= self._propagation_ms:
                self.counts[record.topic] = 0
                self._outbox.settle([record], self._why_unknown(record.topic))
            elif age_ms >= self._timeout_ms:
                self._outbox.settle([record], KafkaError(KafkaError._MSG_TIMED_OUT))

    def _why_unknown(self, topic: str) -> KafkaError:
        error = self._wire.server.topics.metadata(topic).topics[topic].error
        return error or KafkaError(KafkaError._UNKNOWN_TOPIC)

    def _resolve(self) -> None:
        """Look up topics that were unknown when records were queued for them, and choose the records' partitions."""
        server = self._wire.server
        if not server.running:
            return
        for record in self._outbox.waiting:
            if not self.counts.get(record.topic) and (count := server.topics.count(record.topic)):
                self.counts[record.topic] = count
            if record.partition < 0:
                record.partition = self.choose(record.topic, record.draft.key)
        for record in self._outbox.waiting:
            if 0 < self.counts.get(record.topic, 0) <= record.partition:
                self._outbox.settle([record], KafkaError(KafkaError._UNKNOWN_PARTITION))

    def _send(self, place: Place) -> bool:
        """Send one batch of a partition; return whether there may be more to send."""
        topic, partition = place
        quota, process = self._wire.server.quota, self._wire.process.name
        if partition < 0 or not self.counts.get(topic) or quota.holds(process):
            return False
        batch = self._batch(place)
        if not batch:
            return False
        topics = self._wire.server.topics
        if topics.is_away(place):
            self._announce(place)
            return False
        try:
            write = partial(self._write, place, batch)
            first = self._wire.try_in_background("produce", write, transaction=self._transaction)
        except (Unanswered, Busy):
            return False
        except AnswerLost:
            # The client sends it again, and the broker detects the duplicate: only the offset is unknown.
            self._outbox.settle(batch, None)
        except RefusedRequest as refusal:
            self._take_refusal(refusal, place, batch)
        else:
            stamps = topics.of(topic).stamps
            self._outbox.settle(batch, None, first, self._wire.clock.now_ms() if stamps else None)
            drafts = [record.draft for record in batch]
            quota.spend(process, lambda: batch_bytes(drafts, compressed=self._compressed))
        return True

    def _announce(self, place: Place) -> None:
        """Add a partition to the transaction, as the client does before it looks for the partition's leader."""
        if place in self._announced or not self._wire.server.running:
            return
        self._announced.add(place)
        try:
            self._admit(place)
        except Busy:
            self._announced.discard(place)
        except RefusedRequest as refusal:
            self._on_refusal(refusal, place)

    def _batch(self, place: Place) -> list[Queued]:
        batch: list[Queued] = []
        size = 0
        for record in self._outbox.waiting:
            if record.place == place and not record.stranded:
                size += record.draft.size
                if batch and (size > self._batch_bytes or len(batch) >= self._batch_records):
                    break
                batch.append(record)
        return batch

    def _write(self, place: Place, batch: list[Queued]) -> int:
        if place in self._gaps:
            raise RefusedRequest(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        topics = self._wire.server.topics
        topics.log(place)
        producer = self._admit(place)
        now_ms = self._wire.clock.now_ms()
        drafts = [record.draft for record in batch]
        return topics.of(place[0]).append(place[1], drafts, producer, now_ms, compressed=self._compressed)

    def _take_refusal(self, refusal: RefusedRequest, place: Place, batch: list[Queued]) -> None:
        if refusal.code in _NOT_OF_THE_BATCH:
            self._on_refusal(refusal, place)
            return
        self._gaps.add(place)
        several = len(refusal.culprits) > 1
        for at, record in enumerate(batch):
            code = refusal.code
            if several:
                guilty = at in refusal.culprits
                code = KafkaError.INVALID_RECORD if guilty else KafkaError._INVALID_DIFFERENT_RECORD
            self._outbox.settle([record], KafkaError(code))
        for _ in range(IN_FLIGHT - 1):
            for record in self._batch(place):
                record.stranded = True
        self._on_refusal(refusal, place)
