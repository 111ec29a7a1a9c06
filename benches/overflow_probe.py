"""Short delays beside a backlog: when the service fires again after a kill, and how late new messages are."""

import os
import signal
import time
import uuid
from dataclasses import dataclass
from typing import Final, Self

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from benches.support_kafka import KEYS, PARTITIONS, Topics, load_producer
from benches.support_process import now_ms

EVERY_MS: Final = 20
DELAY_MS: Final = 200
BEFORE_MS: Final = 2_000
FRESH: Final = 10
FRESH_DELAY_MS: Final = 1_000
PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that the reader got.

    Attributes:
        produced_ms: when the service produced it to the target.
        late_ms: when the reader got it, minus its due time.
    """

    produced_ms: int
    late_ms: int


class Probe:
    """Sends messages with short delays, and reads the deliveries read_committed; a context manager.

    Args:
        bootstrap: the broker, HOST:PORT.
        topics: of the measurement.
    """

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._topics = topics
        self._producer = load_producer(bootstrap)
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench.probe",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 1,
            }
        )
        self._reader.assign([TopicPartition(topics.target, number, OFFSET_END) for number in range(PARTITIONS)])
        self._sent = 0
        self._next_ms = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def warm_up(self) -> None:
        """Send messages for two seconds, so that the reader has its partitions and its position.

        Raises:
            SystemExit: none arrived.
        """
        ends, seen = now_ms() + BEFORE_MS, 0
        patience_ms = now_ms() + round(PATIENCE_S * 1_000)
        while now_ms() < ends or not seen:
            self._offer()
            seen += len(self._read())
            if now_ms() > patience_ms:
                raise SystemExit(f"no message has arrived within {PATIENCE_S:g} s")

    def time_kill(self, pid: int) -> int:
        """Kill the process with kill -9 while messages are on their way.

        Returns:
            Milliseconds until the reader got a message that was produced after the kill.

        Raises:
            SystemExit: none arrived.
        """
        os.kill(pid, signal.SIGKILL)
        killed_ms, killed_s = now_ms(), time.monotonic()
        while time.monotonic() - killed_s < PATIENCE_S:
            self._offer()
            # The process may have produced something in its last millisecond.
            if any(seen.produced_ms > killed_ms + 1 for seen in self._read()):
                return now_ms() - killed_ms
        raise SystemExit(f"no message is fired {PATIENCE_S:g} s after the kill")

    def fresh(self) -> int:
        """Send messages with a delay of a second; return the lateness of the latest.

        Raises:
            SystemExit: not all arrived.
        """
        due_ms = now_ms() + FRESH_DELAY_MS
        for _ in range(FRESH):
            self._send(due_ms, b"fresh")
        self._producer.flush()
        late: list[int] = []
        ends = time.monotonic() + PATIENCE_S
        while len(late) < FRESH:
            late += [seen.late_ms for seen in self._read(b"fresh")]
            if time.monotonic() > ends:
                raise SystemExit(f"{len(late)} of {FRESH} fresh messages have arrived within {PATIENCE_S:g} s")
        return max(late)

    def _offer(self) -> None:
        if now_ms() >= self._next_ms:
            self._next_ms = now_ms() + EVERY_MS
            self._send(now_ms() + DELAY_MS, b"probe")

    def _send(self, due_ms: int, value: bytes) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("tarry-target", self._topics.target),
            ("tarry-deliver-at", str(due_ms)),
            ("tarry-id", str(uuid.uuid4())),
        ]
        self._sent += 1
        self._producer.produce(self._topics.intake, value, KEYS[self._sent % len(KEYS)], headers=headers)
        self._producer.poll(0)

    def _read(self, value: bytes | None = None) -> list[Seen]:
        """Return the messages that have arrived, all or those with this value; wait a few milliseconds for them."""
        found: list[Seen] = []
        for message in self._reader.consume(1_000, 0.005):
            if message.error() is None and value in {None, message.value()}:
                headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]
                found.append(Seen(message.timestamp()[1], now_ms() - int(headers["tarry-due-ms"])))
        return found
