"""Consumers with ordered retry, as processes, and messages at which their handlers fail.

A message's value says how often its handler fails, so it does not matter which process handles it.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, Producer

from tarry.client.retry import HandlerTransaction, OnError, RetryingConsumer, RetryMessage, RetryPolicy
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """The configuration of a consumer."""

    bootstrap: str
    topic: str
    group: str
    intake: str
    out: str
    """The topic to which its handler sends a record for each handled message."""
    order: str = "key"
    group_protocol: str = "classic"
    first_ms: int = 200
    longest_ms: int = 60_000
    missing_after_ms: int = 60_000
    max_key_queue: int = 10_000
    attempts: int | None = None
    """The most attempts; then the key stops. None: no limit."""
    mended: str = ""
    """A path: once it exists, no handler fails."""
    options: dict[str, str] = field(default_factory=dict)
    """librdkafka properties."""


class Task(NamedTuple):
    """A message's value."""

    number: int
    """The message's number within its key, from 0."""
    failures: int
    """How often its handler fails before it succeeds."""
    sent_ms: int

    def value(self) -> bytes:
        """The task as a message's value."""
        return b"%d:%d:%d" % self

    @classmethod
    def of(cls, value: bytes | None) -> "Task":
        """Parse a message's value."""
        number, failures, sent_ms = (value or b"").split(b":")
        return cls(int(number), int(failures), int(sent_ms))


class TooSoonError(Exception):
    """The error that the handler raises."""


def _tell(event: str, **fields: object) -> None:
    sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")


def consumer(config: RetryConfig) -> RetryingConsumer:
    """The consumer of a process."""

    def handle(message: RetryMessage, transaction: HandlerTransaction) -> None:
        is_mended = config.mended and Path(config.mended).exists()
        if not is_mended and message.attempt <= Task.of(message.value).failures:
            raise TooSoonError(f"attempt {message.attempt}")
        transaction.produce(config.out, message.value, message.key, {"attempt": b"%d" % message.attempt})

    return RetryingConsumer(
        config.bootstrap,
        config.topic,
        config.group,
        handle,
        RetryPolicy(
            first_ms=config.first_ms,
            longest_ms=config.longest_ms,
            attempts=config.attempts,
            when_exhausted=OnError.STOP,
        ),
        intake=config.intake,
        order=config.order,  # type: ignore[arg-type]  # it is checked there
        group_protocol=config.group_protocol,  # type: ignore[arg-type]
        missing_after=timedelta(milliseconds=config.missing_after_ms),
        max_key_queue=config.max_key_queue,
        options=config.options,
        on_event=_tell,
    )


class Consuming:
    """A process with a consumer, over all its restarts."""

    def __init__(self, config: RetryConfig, directory: Path, name: str) -> None:
        self._config = config
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Consuming":
        """Start it without waiting for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.retrying", json.dumps(asdict(self._config))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )
        return self

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM; return its exit code."""
        return self._end(signal.SIGTERM)

    def events(self, name: str) -> int:
        """Return how often it has logged this event, over all its restarts."""
        return self._log.read_text(encoding="utf-8").count(f'"event": "{name}"')

    def tail(self) -> str:
        """Its last lines."""
        return "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-20:])

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(number)
        return process.wait(30)


@contextmanager
def consuming(config: RetryConfig, directory: Path, count: int) -> Iterator[list[Consuming]]:
    """Processes of one group, which end with the context."""
    with ExitStack() as until_the_end:
        processes = [Consuming(config, directory, f"{config.group}-{number}") for number in range(count)]
        for process in processes:
            until_the_end.callback(process.kill)
            process.start()
        yield processes


def drawn(keys: int, messages: int, failing: float, choose: random.Random) -> list[tuple[bytes, int]]:
    """Draw keys and numbers of failures. A share of the messages of every other key fails one to four times."""

    def one() -> tuple[bytes, int]:
        key = choose.randrange(keys)
        fails = key % 2 and choose.random() < 2 * failing
        return b"key-%d" % key, choose.randint(1, 4) if fails else 0

    return [one() for _ in range(messages)]


def send(
    bootstrap: str, topic: str, wanted: Sequence[tuple[bytes, int]], per_s: float = 1_000.0
) -> dict[bytes, list[Task]]:
    """Send tasks evenly over time; returns them, in order, by key.

    Args:
        bootstrap: the broker.
        topic: the topic.
        wanted: their keys, and how often the handler fails.
        per_s: messages per second.
    """
    sent: dict[bytes, list[Task]] = {}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "partitioner": "murmur2_random", "linger.ms": 2}
    )
    began = time.monotonic()
    for number, (key, failures) in enumerate(wanted):
        tasks = sent.setdefault(key, [])
        task = Task(len(tasks), failures, time.time_ns() // 1_000_000)
        tasks.append(task)
        producer.produce(topic, task.value(), key)
        ahead_s = began + (number + 1) / per_s - time.monotonic()
        while ahead_s > 0:  # a report ends the wait
            producer.poll(ahead_s)
            ahead_s = began + (number + 1) / per_s - time.monotonic()
        producer.poll(0)
    if left := producer.flush(30):
        raise AssertionError(f"{left} messages were not sent")
    return sent


class Done(NamedTuple):
    """A record that a handler has sent."""

    key: bytes
    task: Task
    attempt: int
    at_ms: int
    """The record's timestamp."""


def all_done(bootstrap: str, topic: str) -> list[Done]:
    """Return the records that handlers have sent, read_committed, up to the topic's present end."""
    return [_done(record) for record in read_topic(bootstrap, topic)]


def wait_done(bootstrap: str, topic: str, messages: int, deadline_s: float) -> list[Done]:
    """Wait until handlers have sent a number of records; return all records by then.

    Raises:
        AssertionError: it takes too long.
    """
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests.retrying",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        reader.subscribe([topic])
        done: list[Done] = []
        ends = time.monotonic() + deadline_s
        while len(done) < messages:
            if time.monotonic() > ends:
                raise AssertionError(f"{len(done)} of {messages} messages were done within {deadline_s:g} s")
            done += [_done(record) for record in reader.consume(1_000, 0.5) if record.error() is None]
        return done
    finally:
        reader.close()


def _done(record: "Message[Any, Any]") -> Done:
    headers: Any = record.headers()
    attempt = int(dict(headers)["attempt"])
    return Done(record.key() or b"", Task.of(record.value()), attempt, record.timestamp()[1])


def in_order_and_once(sent: dict[bytes, list[Task]], done: Sequence[Done]) -> None:
    """Compare the handled messages with those that were sent.

    Raises:
        AssertionError: a message was done twice, or not, or out of its key's order.
    """
    by_key: dict[bytes, list[Task]] = {key: [] for key in sent}
    for one in done:
        by_key[one.key].append(one.task)
        assert one.attempt == one.task.failures + 1, one
    assert by_key == sent


def main() -> None:
    """Consume until SIGTERM."""
    retrying = consumer(RetryConfig(**json.loads(sys.argv[1])))
    signal.signal(signal.SIGTERM, lambda *_: retrying.stop())
    retrying.run()


if __name__ == "__main__":
    main()
