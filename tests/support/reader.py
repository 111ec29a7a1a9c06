"""A read_committed reader of targets in a separate process.

A reader in the test's process would share the interpreter lock with the test, so its times of arrival would be too
late. `python -m tests.support.reader` only reads. It appends frames of arrivals to a file, and `Reader` in the test
collects them from there.

When its standard input ends, the process asks for the ends of the topics as a read_uncommitted client, reads up to
these ends, and exits with 0. So it misses no record that was written before, and needs no time-out to decide that no
more records come. If it cannot reach the ends, because a transaction is open, it exits with 3. A signal would not do:
it would kill a process that is not yet far enough to catch it.
"""

import argparse
import contextlib
import marshal
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.support.checker import DUE_HEADER, ID_HEADER, SOURCE_HEADER, Arrived, Interned, digest
from tests.support.topics import ends_of

FINISH_S: Final = 30.0
KNOWN_WITHIN_S: Final = 30.0
STUCK: Final = 3
STALLED_S: Final = 10.0
"""After so long without a record, the process asks whether there are records that it does not get."""

_LENGTH: Final = struct.Struct(">I")
_PASSING: Final = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT}
"""Errors of a client whose broker is away; the client continues by itself when the broker is back."""

_OWN: Final = (ID_HEADER, DUE_HEADER, SOURCE_HEADER)


def fields(message: "Message[Any, Any]", seen_ms: int) -> tuple[object, ...]:
    """Return the fields of an `Arrived`, in their order."""
    own: dict[str, list[str]] = {name: [] for name in _OWN}
    rest: list[tuple[str, bytes | None]] = []
    headers: Any = message.headers() or []
    for name, value in headers:
        if name in own:
            own[name].append("null" if value is None else value.decode("utf-8", "backslashreplace"))
        else:
            rest.append((name, value))
    return (
        ",".join(own[ID_HEADER]),
        message.key(),
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        ",".join(own[DUE_HEADER]),
        ",".join(own[SOURCE_HEADER]),
        digest(message.value()),
        tuple(rest),
        seen_ms,
    )


class Reader:
    """Starts the reading process, and collects the arrivals.

    Args:
        bootstrap: the broker, HOST:PORT.
        topics: the topics to read from their beginning. One that is just being created is waited for.
        directory: for the file of frames and the process's stderr.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], directory: Path) -> None:
        self.arrived: list[Arrived] = []
        self.newest: dict[str, int] = {}
        """The highest source offset that has arrived, by `TOPIC/PARTITION` of the intake."""
        self._bootstrap = bootstrap
        self._topics = topics
        self._interned = Interned()
        self._unread = bytearray()
        name = f"reader-{time.monotonic_ns()}"
        self._path = directory / f"{name}.frames"
        self._path.touch()
        self._frames = self._path.open("rb")
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.reader", bootstrap, str(self._path), *topics],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def poll(self) -> list[Arrived]:
        """Collect new arrivals; return all arrivals so far."""
        self._unread += self._frames.read()
        while len(self._unread) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._unread)[0]
            if len(self._unread) < end:
                break
            # The file was written by the process that this object started.
            for one in marshal.loads(self._unread[_LENGTH.size : end]):  # noqa: S302
                self._take(self._shared(*one))
            del self._unread[:end]
        return self.arrived

    def wait_for(self, messages: int, deadline_s: float) -> list[Arrived]:
        """Wait until a number of records have arrived.

        Raises:
            AssertionError: the deadline passed, or the process ended.
        """
        return self.wait_until(lambda arrived: len(arrived) >= messages, f"{messages} messages", deadline_s)

    def wait_until(self, enough: Callable[[list[Arrived]], bool], what: str, deadline_s: float) -> list[Arrived]:
        """Wait until `enough` of all arrivals is true.

        Raises:
            AssertionError: the deadline passed, or the process ended.
        """
        ends = time.monotonic() + deadline_s
        while not enough(self.poll()):
            if self._process.poll() is not None:
                raise AssertionError(f"the reader ended: {self._log.read_text()}")
            if time.monotonic() > ends:
                arrived = len(self.arrived)
                raise AssertionError(f"no {what} within {deadline_s:g} s: {arrived} arrived; {self._standing()}")
            time.sleep(0.02)
        return self.arrived

    def finish(self) -> list[Arrived]:
        """Read to the present ends of the topics and stop; return all arrivals.

        Raises:
            AssertionError: the end could not be reached: a transaction is open.
        """
        self._end_its_input()
        code = self._process.wait(FINISH_S + 30)
        if code != 0:
            raise AssertionError(f"the reader ended with {code}: {self._log.read_text()}")
        return self.poll()

    def close(self) -> None:
        """Make sure that the process is gone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._end_its_input()
        self._frames.close()
        self._path.unlink()

    def _end_its_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _standing(self) -> str:
        """Return how far targets are read, stable and written: it shows which part is behind."""
        read: dict[tuple[str, int], int] = {}
        for one in self.arrived:
            place = one.target, one.partition
            read[place] = max(read.get(place, 0), one.offset + 1)
        standing = []
        for topic in self._topics:
            written = ends_of(self._bootstrap, topic, committed=False)
            for partition, stable in ends_of(self._bootstrap, topic, committed=True).items():
                said = f"{topic}/{partition}: read to {read.get((topic, partition), 0)}"
                standing.append(f"{said}, stable to {stable}, written to {written[partition]}")
        return ", ".join(standing)

    def _take(self, arrived: Arrived) -> None:
        self.arrived.append(arrived)
        place, _, offset = arrived.source.rpartition("/")
        if offset.isdecimal():  # the checker reports a damaged source
            self.newest[place] = max(int(offset), self.newest.get(place, -1))

    def _shared(self, *one: Any) -> Arrived:
        arrived = Arrived(*one)
        key, headers = self._interned.key(arrived.key), self._interned.headers(arrived.headers)
        values = {name: getattr(arrived, name) for name in Arrived.__slots__}
        return Arrived(**{**values, "key": key, "headers": headers})


@contextlib.contextmanager
def reading(bootstrap: str, topics: Sequence[str], directory: Path) -> Iterator[Reader]:
    """A `Reader` whose process always ends with the context."""
    reader = Reader(bootstrap, topics, directory)
    try:
        yield reader
    finally:
        reader.close()


class Reading:
    """The reading process: reads all partitions, and tracks its positions.

    When its connections end, the client library may stop fetching for ever (librdkafka #4916): then another consumer
    goes on from the same offsets.

    Args:
        bootstrap: the broker, HOST:PORT.
        topics: the topics to read.
        stalled_s: after so long without a record, it asks whether there are records that it does not get.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], stalled_s: float = STALLED_S) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "tests.reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "reconnect.backoff.max.ms": 500,
            "fetch.error.backoff.ms": 100,
            "log_level": 2,  # or each refused connection is a line
        }
        self._bootstrap = bootstrap
        self._stalled_s = stalled_s
        self.consumer = Consumer(self._settings)
        self._partitions = [
            TopicPartition(topic, partition, OFFSET_BEGINNING)
            for topic in topics
            for partition in range(self._partition_count(topic))
        ]
        self._reached = {(each.topic, each.partition): 0 for each in self._partitions}
        self.consumer.assign(self._partitions)
        self._fetched_at = time.monotonic()

    def _partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions. It waits for a topic that is so new that the broker lacks it."""
        deadline = time.monotonic() + KNOWN_WITHIN_S
        while True:
            known = self.consumer.list_topics(timeout=30).topics
            if (metadata := known.get(topic)) is not None and metadata.partitions:
                return len(metadata.partitions)
            if time.monotonic() > deadline:
                raise SystemExit(f"no broker knows {topic} after {KNOWN_WITHIN_S} s")
            self.consumer.poll(0.05)

    def batch(self) -> list[tuple[object, ...]]:
        """Return the records that are available; wait a little for the first."""
        messages = self.consumer.consume(1, 0.1)
        if messages:
            messages += self.consumer.consume(5_000, 0)
        elif time.monotonic() - self._fetched_at >= self._stalled_s:
            self._fetched_at = time.monotonic()
            self._go_on_if_stalled()
        # Taken when all of the batch is at hand: taken before, it could make a prompt message look early.
        seen_ms = time.time_ns() // 1_000_000
        arrived = []
        for message in messages:
            error, offset = message.error(), message.offset() or 0
            place = (message.topic() or "", message.partition() or 0)
            if error is None:
                self._reached[place], self._fetched_at = offset + 1, time.monotonic()
                arrived.append(fields(message, seen_ms))
            elif error.code() == KafkaError._PARTITION_EOF:
                # The offset after the last transaction's marker, which no reader gets as a record.
                self._reached[place] = offset
            elif not error.retriable() and error.code() not in _PASSING:
                raise SystemExit(f"reader: {error}")
        return arrived

    def _go_on_if_stalled(self) -> None:
        """Take another consumer if there are records that this one does not get."""
        try:
            ends = self.ends(committed=True)
        except KafkaException as exception:
            sys.stderr.write(f"reader: gets nothing, and does not learn whether it should: {exception}\n")
            return  # the broker is away, or has just come back: it asks again later
        if missing := self.missing(ends):
            sys.stderr.write(f"reader: gets nothing although {missing} are there; another consumer goes on\n")
            self.consumer.close()
            self.consumer = Consumer(self._settings)
            self.consumer.assign([TopicPartition(*place, offset) for place, offset in self._reached.items()])

    def ends(self, *, committed: bool) -> dict[tuple[str, int], int]:
        """Return the present end of every partition; with `committed`, up to the first open transaction.

        Another client asks: the one that reads may have lost the topics from its metadata.
        """
        return {
            (topic, partition): end
            for topic in sorted({each.topic for each in self._partitions})
            for partition, end in ends_of(self._bootstrap, topic, committed=committed).items()
        }

    def missing(self, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Return for each partition how far it is from its end; empty when all ends are reached."""
        return {place: end - self._reached[place] for place, end in ends.items() if self._reached[place] < end}


def _input_has_ended() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])  # nobody writes to it


def main() -> int:
    parser = argparse.ArgumentParser(description="append what a read_committed reader gets to a file")
    parser.add_argument("bootstrap")
    parser.add_argument("path", type=Path)
    parser.add_argument("topics", nargs="+")
    arguments = parser.parse_args()
    reading_ = Reading(arguments.bootstrap, arguments.topics)
    ends: dict[tuple[str, int], int] | None = None
    give_up = 0.0
    with arguments.path.open("ab", buffering=0) as frames:
        while True:
            if ends is None and _input_has_ended():
                ends, give_up = reading_.ends(committed=False), time.monotonic() + FINISH_S
            if batch := reading_.batch():
                frame = marshal.dumps(batch)
                frames.write(_LENGTH.pack(len(frame)) + frame)
            if ends is None:
                continue
            if not (missing := reading_.missing(ends)):
                return 0
            if time.monotonic() > give_up:
                sys.stderr.write(f"reader: not at the end after {FINISH_S:g} s: {missing}\n")
                return STUCK


if __name__ == "__main__":
    sys.exit(main())
