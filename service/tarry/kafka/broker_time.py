"""The brokers' time, measured by a record that we write and a broker stamps.

In a topic whose `message.timestamp.type` is LogAppendTime, the leader of the partition stamps each record with its own
clock, and the delivery report contains the timestamp. `I.status` is such a topic. The record is a tombstone with a key
of its own: compaction drops it, and readers of the topic skip it. So this needs no right beyond those for publishing,
and works with any Kafka.

The record also says by its headers what this machine's clock shows, and the machine's name, so that `tarry check` can
compare the clocks of all services with the brokers' (`clocks_of`).

The result is the difference of the broker's wall time and our monotonic time at the moment when the record was given to
the client. So an older answer stays valid, whatever step our own wall time has made since. The broker stamps the record
after that moment. So a clock of ours that is ahead of the timestamp is certainly ahead, while the delay of the delivery
makes our clock look further behind than it is.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from platform import node
from typing import Any, NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer

from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.kafka.clients import drop
from tarry.kafka.errors import error_of
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.record_headers import headers_of
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS
from tarry.kafka.trim_tolerant_reader import TrimTolerantReader

KEY = b"clock"
"""The key of the tombstones."""

CLOCK_MS, HOST = "tarry-clock-ms", "tarry-host"
"""The headers of a tombstone: the time by the machine's clock when the record was made, and the machine's name."""

LAST_QUESTIONS = 1_000
"""How many records of a status topic are looked at for questions."""

AHEAD_MS, BEHIND_MS = 2_000, 10_000
"""From where on a machine's clock is wrong. The way to the broker counts as behind."""

RECENT_MS = 2 * 3_600_000
"""A service asks for the time once an hour; an older question is of one that has ended."""

TOLERANCE_MS = 30_000
"""How far our clock may be ahead of a broker's, because the brokers' clocks differ."""

CONNECT_S = 1.0
"""How long the first question waits for a connection."""

WITHIN_MS = 6_000
"""How long a start waits for the answer."""

LOOK_S = 0.1


class BrokerTime:
    """Asks a broker for its time, one question at a time; for one thread.

    Args:
        cluster: the Kafka cluster.
        intakes: the intakes whose status topics may be written to; each question goes to the next one.
        clock: monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, cluster: Cluster, intakes: Sequence[str], clock: Clock, on_event: Callable[..., None]) -> None:
        self._cluster = cluster
        self._topics = [intake + STATUS for intake in intakes]
        self._clock = clock
        self._on_event = on_event
        self._producer: Producer | None = None
        self._asked = 0
        self._offset_ms: int | None = None
        self._is_answered = False

    @property
    def is_asked(self) -> bool:
        """Whether a question was asked whose answer is not taken yet."""
        return self._producer is not None

    def ask(self, connect_s: float = 0) -> None:
        """Begin to ask; call `look` for the answer.

        Args:
            connect_s: how long to wait for a connection; if 0, the client tries to connect once a second.
        """
        topic = self._topics[self._asked % len(self._topics)]
        self._asked += 1
        self._offset_ms, self._is_answered = None, False
        self._producer = self._cluster.clients.producer(self._cluster.publisher())
        try:
            if connect_s:
                self._producer.list_topics(topic, connect_s)
            sent_ms = self._clock.monotonic_ms()
            headers: Any = [(CLOCK_MS, b"%d" % self._clock.now_ms()), (HOST, node().encode())]
            report = partial(self._reported, topic, sent_ms)
            self._producer.produce(topic, None, KEY, 0, headers=headers, on_delivery=report)
        except KafkaException as exception:
            self._fail(f"{topic}: {error_of(exception).str()}")

    def look(self, timeout_s: float = 0) -> bool:
        """Wait up to `timeout_s` for the answer; return whether it has come or has failed."""
        if self._producer is None:
            return True
        if not self._is_answered:
            try:
                self._producer.poll(timeout_s)
            except KafkaException as exception:
                self._fail(error_of(exception).str())
        if self._is_answered:
            producer, self._producer = self._producer, None
            self._cluster.clients.in_background(partial(drop, producer))
        return self._is_answered

    def close(self) -> None:
        """Drop the question that is under way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    @property
    def offset_ms(self) -> int | None:
        """The most that the broker's wall time differs from our monotonic time, by the last answer; None: no answer."""
        return self._offset_ms

    def _reported(self, topic: str, sent_ms: int, error: KafkaError | None, record: Any) -> None:
        if error is not None:
            self._fail(f"{topic}: {error.str()}")
            return
        kind, stamp_ms = record.timestamp()
        if kind != TIMESTAMP_LOG_APPEND_TIME:
            self._fail(f"{topic} has not message.timestamp.type=LogAppendTime")
            return
        self._offset_ms, self._is_answered = stamp_ms - sent_ms, True

    def _fail(self, reason: str) -> None:
        self._is_answered = True
        self._on_event("clock_not_compared", reason=reason)


class ComparedClock(NamedTuple):
    """The clock of a machine, compared with the clock of a broker.

    Attributes:
        host: the machine's name.
        ahead_ms: how far its clock was ahead; negative if it was behind. The way to the broker counts as behind.
        at_ms: when, by the broker's clock.
    """

    host: str
    ahead_ms: int
    at_ms: int

    @property
    def is_wrong(self) -> bool:
        """Whether it differs too much; as the alert `TarryClockSkew` has it."""
        return self.ahead_ms > AHEAD_MS or self.ahead_ms < -BEHIND_MS


def clocks_of(cluster: Cluster, intake: str, offsets: Offsets, clock: Clock) -> list[ComparedClock]:
    """Return the last comparison of each machine whose service asked for the time in an intake's status topic.

    Args:
        cluster: the Kafka cluster.
        intake: the intake; its status topic exists.
        offsets: asks for the ends of the topic.
        clock: monotonic time.

    Raises:
        BrokerError: no answer.
    """
    log = (intake + STATUS, 0)
    start, end = offsets.starts([log])[log], offsets.ends([log], committed=False)[log]
    if start == end:
        return []
    found: dict[str, ComparedClock] = {}
    with closing(TrimTolerantReader(cluster, clock)) as reader:
        for _, record in read_to_ends(reader, {log: max(start, end - LAST_QUESTIONS)}, {log: end}):
            headers = dict(headers_of(record))
            said = headers.get(CLOCK_MS) or b""
            kind, stamp_ms = record.timestamp()
            if record.key() == KEY and kind == TIMESTAMP_LOG_APPEND_TIME and said.isdigit():
                host = (headers.get(HOST) or b"").decode(errors="replace")
                found[host] = ComparedClock(host, int(said) - stamp_ms, stamp_ms)
    return list(found.values())


def refuse_a_clock_that_is_ahead(
    cluster: Cluster, intakes: Sequence[str], clock: Clock, on_event: Callable[..., None]
) -> int | None:
    """Compare this machine's clock with the brokers' at a start.

    Args:
        cluster: the Kafka cluster.
        intakes: the intakes whose status topics exist.
        clock: this machine's.
        on_event: takes an event's name and fields, such as `clock_not_compared` when there is no answer.

    Returns:
        The difference of the broker's time and monotonic time, in ms; None if there is no answer.

    Raises:
        UsageError: this machine's clock is ahead by more than `TOLERANCE_MS`.
    """
    brokers = BrokerTime(cluster, intakes, clock, on_event)
    brokers.ask(CONNECT_S)
    deadline_ms = clock.monotonic_ms() + WITHIN_MS
    while not brokers.look(LOOK_S):
        if clock.monotonic_ms() > deadline_ms:
            on_event("clock_not_compared", reason="no answer")
            break
    brokers.close()
    if brokers.offset_ms is None:
        return None
    ahead_ms = clock.now_ms() - clock.monotonic_ms() - brokers.offset_ms
    if ahead_ms > TOLERANCE_MS:
        raise UsageError(
            f"this machine's clock is {ahead_ms / 1000:.0f} s ahead of the brokers' clocks, so messages would be "
            "early: set the wrong clock right (NTP), and start again"
        )
    return brokers.offset_ms
