"""Writes records that no client of the service would write; each must become a complete dead letter."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tarry.kafka.settings import Cluster
from tests.support.brokers import wait_until
from tests.support.checker import digest
from tests.support.raw_headers import produce_raw
from tests.support.stage import inbox

HUGE_BYTES: Final = 3_000_000
"""A value of one repeated byte: compressed by zstd it fits into any topic, uncompressed into none."""


@dataclass(slots=True)
class Foreign:
    """Writes such records, and checks their dead letters.

    Attributes:
        bootstrap: the broker's address that bypasses any proxy.
        intake: an intake with an overflow wheel.
        choose: the random source of all choices.
        sent: by key: the digest of the value, and whether the record was written to the intake.
    """

    bootstrap: str
    intake: str
    choose: random.Random
    sent: dict[bytes, tuple[bytes | None, bool]] = field(default_factory=dict)

    def send(self) -> None:
        """Write one record of each kind.

        To the intake: a record without headers that fits only into a compressed batch. To buckets of the lowest level,
        which are used again and again: a record that the service has not filed, and one with a header whose name is not
        UTF-8.

        Raises:
            AssertionError: the broker has not acknowledged all of them within some minutes.
        """
        huge = bytes([self.choose.randrange(256)]) * HUGE_BYTES
        self._write(self.intake, huge, "zstd")
        self._write(f"{self.intake}.wheel-1", self.choose.randbytes(100), "none")
        self._write_unreadable(f"{self.intake}.wheel-1", self.choose.randbytes(100))

    def verify(self, within_s: float) -> None:
        """Wait until each record is a dead letter.

        After a broker was killed, deleted records of a bucket may be there again. The service recognises its own by
        their due times, but a foreign record has none: it may become a dead letter more than once.

        Raises:
            AssertionError: a record is lost, damaged, or came twice.
        """
        wait_until(lambda: not self.sent.keys() - self._letters().keys(), "all foreign records are dead", within_s)
        for key, letters in self._letters().items():
            if key not in self.sent:
                continue
            value, is_of_the_intake = self.sent[key]
            assert {found for found, _ in letters} == {value}, f"{key!r} is damaged"
            wanted = b"no-delay" if is_of_the_intake else b"unreadable-headers"
            assert {code for _, code in letters} == {wanted}, f"{key!r}: {letters}"
            assert letters.total() == 1 or not is_of_the_intake, f"{key!r} is there {letters.total()} times"

    def _partition(self, topic: str) -> int:
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, 30)
        return self.choose.randrange(len(found.topics[topic].partitions))

    def _write_unreadable(self, topic: str, value: bytes) -> None:
        key = b"foreign-%d" % len(self.sent)
        produce_raw(self.bootstrap, topic, [(b"\xff\xfe", b"1")], key, value, self._partition(topic))
        self.sent[key] = digest(value), False

    def _write(self, topic: str, value: bytes, codec: str) -> None:
        partition, key = self._partition(topic), b"foreign-%d" % len(self.sent)
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": codec,
                "message.max.bytes": 2 * HUGE_BYTES,
                "log_level": 2,  # otherwise each refused connection is a log line
            }
        )
        failures: list[Any] = []

        def report(error: Any, _record: Any) -> None:
            if error is not None:
                failures.append(error)

        producer.produce(topic, value, key, partition, on_delivery=report)
        assert producer.flush(200) == 0, f"{topic} has not acknowledged a record"
        assert not failures, failures
        self.sent[key] = digest(value), topic == self.intake

    def _letters(self) -> dict[bytes, Counter[tuple[bytes | None, bytes]]]:
        """Return the dead letters by key."""
        found: dict[bytes, Counter[tuple[bytes | None, bytes]]] = {}
        with inbox(Cluster(self.bootstrap), [f"{self.intake}.dead"]) as dead:
            for record in dead.read_to_the_end():
                key: Any = record.key()
                headers: Any = record.headers()
                letter = digest(record.value()), dict(headers)["tarry-error"]
                found.setdefault(key or b"", Counter())[letter] += 1
        return found
