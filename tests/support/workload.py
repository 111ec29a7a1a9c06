"""Sends messages of every kind that the contract allows, with random delays, and remembers their expected deliveries.

The workload uses a plain Kafka client, not tarry's: it tests the contract for clients in other languages.
It mixes keys (a few without), values (a few null or empty), both forms of an id, derived ids and
CloudEvents' ones, the three forms of a due time, windows, expiries that are far away, explicit
partitions, repeated and null headers, and inbound headers that must be replaced. Every choice comes from one seed.
"""

import json
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from hashlib import blake2b
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer

from tarry.testing.judge import NEVER_MS, Acceptance
from tests.support.checker import Arrived, Headers, Interned, Produced, digest

NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "tarry")

ONE_STRAGGLER_OF: Final = 300
_AN_HOUR_MS: Final = 3_600_000
_HEAR_EVERY: Final = 20
_OTHER_HEADERS: Final[tuple[Headers, ...]] = (
    (),
    (("trace", b"00-abc-01"),),
    (("trace", b"1"), ("trace", b"2"), ("trace", b"1")),
    (("empty", b""), ("null", None), ("binary", bytes(range(256)))),
    (("content-type", b"application/json"), ("Tarry-Id", b"not ours: case matters")),
)
_ZONE: Final = timezone(timedelta(hours=5, minutes=30))

SentHeaders = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Target:
    """A target topic, and its number of partitions."""

    topic: str
    partitions: int


def accepted_as_seen(produced: Sequence[Produced], arrived: Sequence[Arrived]) -> list[Produced]:
    """Return the same records with the times by which arrivals prove that they were read, which holds in any outage."""
    by_source = {record.source: record for record in produced}
    acceptances: dict[tuple[str, int], Acceptance] = defaultdict(Acceptance)
    for arrival in arrived:
        if (record := by_source.get(arrival.source)) is not None:
            acceptances[record.intake, record.partition].add(record.offset, arrival.seen_ms)
    return [
        replace(record, accepted_ms=acceptances[record.intake, record.partition].by(record.offset))
        for record in produced
    ]


@dataclass(slots=True)
class _Sent:
    """A message that was handed to the client and is not acknowledged yet."""

    id: str
    key: bytes | None
    target: Target
    due_ms: int
    value: bytes | None
    headers: Headers
    to_partition: int | None
    partition: int = -1
    offset: int = -1


class Workload:
    """Sends messages to one intake, and remembers them.

    Args:
        bootstrap: the broker, HOST:PORT.
        intake: the topic to send to.
        partitions: the number of the intake's partitions.
        targets: the targets of the messages.
        seed: the seed of all choices.
        keys: the number of keys; few keys make long sequences to judge.
        delays_ms: the shortest and the longest delay.
        instant_every: one due time in four is rounded up to a multiple of this many milliseconds, so that many
            messages are due at the same instant.
        due_ms: the first and the last due time, instead of delays.
        longest: the longest random part of a value, in characters.
        limits: whether some messages have a window or an expiry.
        straggle_until_ms: one message in `ONE_STRAGGLER_OF` is due at this time, as long as that is later than the
            longest delay.

    Threads: only one thread may call `send` and `keep_sending`; call `produced` after they have ended, and the others
    at any time.
    """

    def __init__(
        self,
        bootstrap: str,
        intake: str,
        partitions: int,
        targets: Sequence[Target],
        *,
        seed: int,
        keys: int = 50,
        delays_ms: tuple[int, int] = (200, 5_000),
        instant_every: int = 500,
        due_ms: tuple[int, int] | None = None,
        longest: int = 300,
        limits: bool = True,
        straggle_until_ms: int = 0,
    ) -> None:
        self._intake = intake
        self._straggle_until_ms = straggle_until_ms
        self._has_limits = limits
        self._partitions = partitions
        self._targets = list(targets)
        self._random = random.Random(seed)
        self._keys = [b"key-%d" % number for number in range(keys)]
        self._delays_ms = delays_ms
        self._instant_every = instant_every
        self._due_ms = due_ms
        self._longest = longest
        self._interned = Interned()
        self._sent: list[_Sent] = []
        self._refused: list[str] = []
        self._newest = [-1] * partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                # A broker may be away for a while: in the end, every sent message is stored once.
                "delivery.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,  # otherwise each refused connection is a log line
            }
        )

    def go_on(self, *, due_ms: tuple[int, int], longest: int) -> None:
        """From now on, send messages that are due between these times, with values of this length."""
        self._due_ms, self._longest = due_ms, longest

    def send(self, messages: int, over_s: float) -> None:
        """Send evenly over a time, and wait until all are acknowledged.

        Raises:
            AssertionError: the broker refused one.
        """
        started = time.monotonic()
        for number in range(messages):
            self._send_one()
            self._pace(number, started + over_s * number / messages)
        self._finish()

    def keep_sending(self, per_s: float, is_over: Callable[[], bool]) -> None:
        """Send evenly until a signal to stop, and wait until all are acknowledged.

        Raises:
            AssertionError: the broker refused one.
        """
        started, number = time.monotonic(), 0
        while not is_over():
            self._send_one()
            number += 1
            self._pace(number, started + number / per_s)
        self._finish()

    @property
    def sent(self) -> int:
        """The number of messages handed to the client so far."""
        return len(self._sent)

    @property
    def newest(self) -> dict[str, int]:
        """The highest acknowledged offset so far, by `TOPIC/PARTITION` of the intake; -1 if there is none."""
        return {f"{self._intake}/{partition}": offset for partition, offset in enumerate(self._newest)}

    def produced(self) -> list[Produced]:
        """The messages that must arrive; none of them is known to be accepted."""
        return [self._expected(each) for each in self._sent]

    def _pace(self, number: int, until: float) -> None:
        """Serve delivery reports, and wait until the next message is to be sent."""
        ahead = until - time.monotonic()
        if ahead > 0.001:
            self._producer.poll(ahead)
        elif number % _HEAR_EVERY == 0:  # late, but `newest` must still grow
            self._producer.poll(0)

    def _finish(self) -> None:
        self._producer.flush()
        if self._refused:
            raise AssertionError(f"{len(self._refused)} messages were refused, such as: {self._refused[0]}")

    def _send_one(self) -> None:
        choose = self._random
        now_ms = time.time_ns() // 1_000_000
        due_ms = self._when_due(now_ms)
        key = None if choose.random() < 0.05 else choose.choice(self._keys)
        target = choose.choice(self._targets)
        id_, id_headers = self._id()
        other = choose.choice(_OTHER_HEADERS)
        if id_headers and id_headers[0][0] == "ce_id":
            other = (*other, ("ce_id", id_.encode()))
        else:
            other = self._interned.headers(other)
        to_partition = choose.randrange(target.partitions) if choose.random() < 0.05 else None
        value = self._value(id_, due_ms)
        sent = _Sent(id_, key, target, due_ms, digest(value), other, to_partition)
        limits, later_ms = self._limits(id_, now_ms, due_ms)
        when = self._when(now_ms, due_ms - later_ms)
        headers: SentHeaders = [*other, ("tarry-target", target.topic), when, *limits]
        if id_headers and id_headers[0][0] == "tarry-id":
            headers += id_headers
        if to_partition is not None:
            headers.append(("tarry-partition", str(to_partition)))
        if choose.random() < 0.05:
            headers = [("tarry-due-ms", b"1"), *headers, ("tarry-source", b"old/0/1")]

        def acknowledged(error: KafkaError | None, message: "Message[Any, Any]") -> None:
            if error is not None:
                self._refused.append(str(error))
                return
            sent.partition, sent.offset = message.partition() or 0, message.offset() or 0
            self._newest[sent.partition] = max(sent.offset, self._newest[sent.partition])

        self._sent.append(sent)
        self._producer.produce(self._intake, value, key, timestamp=now_ms, headers=headers, on_delivery=acknowledged)

    def _when_due(self, now_ms: int) -> int:
        choose = self._random
        if self._due_ms is not None:
            return choose.randint(*self._due_ms)
        due_ms = now_ms + choose.randint(*self._delays_ms)
        if now_ms + self._delays_ms[1] < self._straggle_until_ms and choose.randrange(ONE_STRAGGLER_OF) == 0:
            return self._straggle_until_ms
        if choose.random() < 0.25:
            due_ms = -(-due_ms // self._instant_every) * self._instant_every
        return due_ms

    def _id(self) -> tuple[str, SentHeaders]:
        """Return an id and its header; for an empty id the service derives one."""
        made = uuid.UUID(int=self._random.getrandbits(128), version=4)
        form = self._random.random()
        if form < 0.4:
            return str(made), [("tarry-id", str(made))]
        if form < 0.7:
            return str(made), [("tarry-id", made.bytes)]
        if form < 0.8:
            return str(made), [("ce_id", str(made))]
        return "", []

    def _limits(self, id_: str, now_ms: int, due_ms: int) -> tuple[SentHeaders, int]:
        """Return headers of an expiry and of a window, and how much later the message is due because of that."""
        headers: SentHeaders = []
        later_ms = 0
        if not self._has_limits:
            return headers, later_ms
        if self._random.random() < 0.1:
            headers.append(("tarry-expires-at", str(due_ms + _AN_HOUR_MS)))
        if id_ and self._random.random() < 0.1:
            window_ms = self._random.choice((1, 7, 100, 2_000))
            # By the documentation, and not by the function of the service.
            hashed = blake2b(uuid.UUID(id_).bytes, digest_size=16).digest()
            jitter_ms = int.from_bytes(hashed[:8], "big") % window_ms
            if jitter_ms <= due_ms - now_ms:
                headers.append(("tarry-window-ms", str(window_ms)))
                later_ms = jitter_ms
        return headers, later_ms

    def _value(self, id_: str, due_ms: int) -> bytes | None:
        kind = self._random.random()
        if kind < 0.02:
            return None
        if kind < 0.04:
            return b""
        filler = "x" * self._random.randrange(self._longest)
        return json.dumps({"number": len(self._sent), "id": id_, "due_ms": due_ms, "filler": filler}).encode()

    def _when(self, now_ms: int, due_ms: int) -> tuple[str, str]:
        form = self._random.randrange(3)
        if form == 0:
            return "tarry-delay-ms", str(due_ms - now_ms)
        if form == 1:
            return "tarry-deliver-at", str(due_ms)
        at = datetime.fromtimestamp(due_ms // 1_000, self._random.choice((UTC, _ZONE)))
        text = at.replace(microsecond=due_ms % 1_000 * 1_000).isoformat(timespec="milliseconds")
        return "tarry-deliver-at", text.replace("+00:00", "Z")

    def _expected(self, sent: _Sent) -> Produced:
        source = f"{self._intake}/{sent.partition}/{sent.offset}"
        to_partition = sent.to_partition
        if to_partition is None and sent.key is None:
            to_partition = sent.partition % sent.target.partitions
        elif to_partition is None and sent.target.partitions == self._partitions:
            to_partition = sent.partition  # the same hash modulo the same number
        return Produced(
            id=sent.id or str(uuid.uuid5(NAMESPACE, source)),
            key=sent.key,
            target=sent.target.topic,
            due_ms=sent.due_ms,
            value=sent.value,
            headers=sent.headers,
            intake=self._intake,
            partition=sent.partition,
            offset=sent.offset,
            accepted_ms=NEVER_MS,
            target_partition=to_partition,
        )


class Sending:
    """A workload's `send` in a thread, while the test injects faults. The end of the block waits for the thread.

    The thread is almost always idle. The reader, whose times are measured, is a separate process.
    """

    def __init__(self, workload: Workload, messages: int, over_s: float) -> None:
        self._begin(lambda: workload.send(messages, over_s))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def is_going_on(self) -> bool:
        """Whether messages are still being sent."""
        return self._thread.is_alive()

    def _begin(self, send: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(send,), daemon=True)

    def _run(self, send: Callable[[], None]) -> None:
        try:
            send()
        except BaseException as error:  # noqa: BLE001 - it is raised where the block ends
            self._error = error


class Flow(Sending):
    """A workload's `keep_sending` in a thread, until the block is left."""

    def __init__(self, workload: Workload, per_s: float) -> None:
        self._over = threading.Event()
        self._begin(lambda: workload.keep_sending(per_s, self._over.is_set))

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        super().__exit__(*exception)
