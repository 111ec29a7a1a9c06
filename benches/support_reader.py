"""A read_committed reader in a process of its own that tells how late messages are.

Lateness is the wall time at which the reader has a message, less its due time: `tarry-due-ms`, or for the
relay, which writes none, what the producer asked for. On SIGTERM it tells the figures on stdout, as JSON:
of all, and under `marked` of those of each mark, where messages have any.
"""

import argparse
import json
import signal
import sys
import time
from collections import Counter, defaultdict
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benches.support_kafka import MARK, PARTITIONS
from tarry.testing.judge import percentile


def lateness_of(headers: Any, seen_ms: int) -> int:
    """How late a message is, in milliseconds."""
    named = dict(headers)
    return seen_ms - int(named.get("tarry-due-ms") or named["tarry-deliver-at"])


def figures_of(late_ms: Counter[int]) -> dict[str, Any]:
    """The figures of one kind of messages."""
    return {
        "judged": late_ms.total(),
        "early": sum(count for late, count in late_ms.items() if late < 0),
        "p50_ms": percentile(late_ms, 50),
        "p99_ms": percentile(late_ms, 99),
        "max_ms": percentile(late_ms, 100),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="tell how late messages arrive")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--skip-ms", type=int, default=0, help="leave out what is seen so soon after the first")
    arguments = parser.parse_args()
    reader = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": "bench.reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    reader.assign([TopicPartition(arguments.topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    running = True

    def stop(_signal: int, _frame: object) -> None:
        nonlocal running
        running = False

    signal.signal(signal.SIGTERM, stop)
    late_ms: Counter[int] = Counter()
    marked: dict[str, Counter[int]] = defaultdict(Counter)
    seen = 0
    from_ms: int | None = None
    while running:
        messages = reader.consume(1, 0.1)
        if not messages:
            continue
        messages += reader.consume(5_000, 0)
        # Taken when all of the batch is at hand: taken before, it could make a prompt message look early.
        seen_ms = time.time_ns() // 1_000_000
        from_ms = from_ms or seen_ms + arguments.skip_ms
        seen += len(messages)
        if seen_ms >= from_ms:
            for message in messages:
                headers: Any = message.headers()
                late = lateness_of(headers, seen_ms)
                late_ms[late] += 1
                if mark := dict(headers).get(MARK):
                    marked[mark.decode()][late] += 1
    reader.close()
    figures = {"seen": seen, **figures_of(late_ms)}
    if marked:
        figures["marked"] = {mark: figures_of(late) for mark, late in marked.items()}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
