"""Sends messages at a steady rate (an open loop), in a separate process.

It does not slow down if the contender is slow. Every 5 ms it queues the messages whose time to be sent has come. At the
end it prints as JSON how many messages it sent, from when to when, and so the rate that it really offered.
"""

import argparse
import json
import random
import sys
import time

from benches.support_kafka import AwayTopics, Topics, load_producer, produce

TICK_S = 0.005


def offer(
    bootstrap: str,
    topics: Topics,
    rate: int,
    seconds: float,
    delays_ms: tuple[int, int],
    first: int = 0,
    mark: str | None = None,
) -> None:
    """Send `rate` messages a second for a time, each with a delay between two bounds, numbered from `first` on."""
    producer = load_producer(bootstrap)
    producer.list_topics(topics.intake, timeout=30)
    choose = random.Random(1)
    shortest_ms, longest_ms = delays_ms
    spread_ms = longest_ms - shortest_ms
    started, first_ms = time.monotonic(), time.time_ns() // 1_000_000
    sent, total = 0, round(rate * seconds)
    while sent < total:
        upto = min(total, int((time.monotonic() - started) * rate) + 1)
        now_ms = time.time_ns() // 1_000_000
        for number in range(sent, upto):
            due_ms = now_ms + shortest_ms + int(choose.random() * spread_ms)
            produce(producer, topics, first + number, ("tarry-deliver-at", str(due_ms)), mark)
        sent = upto
        producer.poll(0)
        time.sleep(max(0.0, started + (sent / rate) - time.monotonic(), TICK_S if sent < total else 0.0))
    last_ms = time.time_ns() // 1_000_000
    producer.flush()
    sys.stdout.write(json.dumps({"sent": sent, "first_ms": first_ms, "last_ms": last_ms}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="send messages at a steady rate")
    parser.add_argument("bootstrap")
    parser.add_argument("name", help="name of the measurement; its topics are named after it")
    parser.add_argument("--rate", type=int, required=True, help="messages a second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--delays", type=int, nargs=2, required=True, metavar="MS")
    parser.add_argument("--first", type=int, default=0, help="number of the first; ids of two loads must differ")
    parser.add_argument("--mark", help="the kind of the messages, by which the reader separates its figures")
    parser.add_argument(
        "--away", action="store_true", help="send to the other target of the measurement (`AwayTopics`)"
    )
    arguments = parser.parse_args()
    shortest_ms, longest_ms = arguments.delays
    topics = AwayTopics(arguments.name) if arguments.away else Topics(arguments.name)
    delays_ms = (shortest_ms, longest_ms)
    offer(arguments.bootstrap, topics, arguments.rate, arguments.seconds, delays_ms, arguments.first, arguments.mark)


if __name__ == "__main__":
    main()
