"""The bare relay: the minimum of an exactly-once hop over Kafka in Python, as fast as possible.

It consumes from the intake, reads and copies each message's headers, produces the message to one target and one result
record, and adds the consumed offsets to the same transaction. It has no delay, no order, no checks and no journal. The
difference between the service and this relay is the cost of delaying.

For a fair comparison it is well tuned, and leaves out everything that a relay can leave out:

- transactions of up to 5,000 messages, one in flight, on one producer; one process, one thread;
- `retry.backoff.ms=1`, `retry.backoff.max.ms=10`: with the default, back-to-back transactions wait 100 ms
  each;
- a result has the message's key and a constant value of the size that the service writes, so that the
  broker stores as many bytes and Python formats none;
- delivery reports are enabled for errors only, so that librdkafka creates no objects for delivered records;
- Python's cyclic collector is off: the relay makes no cycles.
"""

import argparse
import gc
import json
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

TRANSACTION_MESSAGES: Final = 5_000
RESULT_VALUE: Final = json.dumps(
    {
        "v": 1,
        "outcome": "fired",
        "id": "00000000-0000-4000-8000-000000000000",
        "source": "tarry.delayed/0/1000000",
        "due_ms": 1_700_000_000_000,
        "at_ms": 1_700_000_000_000,
        "target": "bench.target",
    },
    separators=(",", ":"),
).encode()


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """The topics and the group of one relay.

    Args:
        bootstrap: the broker, HOST:PORT.
        intake, target, results: topic names.
        group: consumer group and transactional id.
    """

    bootstrap: str
    intake: str
    target: str
    results: str
    group: str


def relay_consumer(plan: RelayPlan) -> Consumer:
    """Return a consumer that always has a fetch request open, so that it never waits while the broker has records."""
    return Consumer(
        {
            "bootstrap.servers": plan.bootstrap,
            "group.id": plan.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": 262_144,
            "check.crcs": False,
        }
    )


def relay_producer(plan: RelayPlan) -> Producer:
    """Return a transactional producer with large batches and short retry backoffs."""
    return Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            "transactional.id": plan.group,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "batch.size": 1_048_576,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 1_000_000,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 10,
            "delivery.report.only.error": True,
        }
    )


class Relay:
    """Moves batches from intake to target until told to stop. One thread."""

    def __init__(self, plan: RelayPlan) -> None:
        self._plan = plan
        self._consumer = relay_consumer(plan)
        self._producer = relay_producer(plan)
        self._running = True

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Make `run` return after the current transaction."""
        self._running = False

    def run(self) -> None:
        """Relay until stopped; print to stdout the assignment, and the time when the first batch was read."""
        self._producer.init_transactions()
        self._consumer.subscribe([self._plan.intake], on_assign=lambda _consumer, _partitions: _tell(event="assigned"))
        first = True
        while self._running:
            # Wait for the first message, then take all that are there; do not wait for a batch to grow.
            batch = self._consumer.consume(1, 0.1)
            if not batch:
                continue
            if first:
                _tell(event="first", at_ms=time.time_ns() // 1_000_000)
                first = False
            batch += self._consumer.consume(TRANSACTION_MESSAGES - 1, 0)
            self._move(batch)
        self._consumer.close()

    def _move(self, batch: "list[Message[Any, Any]]") -> None:
        produce, target, results = self._producer.produce, self._plan.target, self._plan.results
        ends: dict[int, int] = {}
        self._producer.begin_transaction()
        for message in batch:
            error = message.error()
            if error is not None:
                raise SystemExit(f"relay: {error}")
            partition, key, offset = message.partition(), message.key(), message.offset()
            if partition is None or offset is None:
                raise SystemExit("relay: a message without a place")
            produce(target, message.value(), key, headers=message.headers())
            produce(results, RESULT_VALUE, key, partition)
            ends[partition] = offset + 1
        offsets = [TopicPartition(self._plan.intake, partition, end) for partition, end in ends.items()]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata())
        self._producer.commit_transaction()


def _tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="the bare relay that the service is measured against")
    for name in ("bootstrap", "intake", "target", "results", "group"):
        parser.add_argument(f"--{name}", required=True)
    relay = Relay(RelayPlan(**vars(parser.parse_args())))
    signal.signal(signal.SIGTERM, relay.stop)
    gc.disable()
    relay.run()


if __name__ == "__main__":
    main()
