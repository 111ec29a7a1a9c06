"""What time it is at the brokers, by a record of ours that one of them stamps.

A topic whose `message.timestamp.type` is LogAppendTime stamps each record with the clock of its partition's leader, and
the delivery report has it. `I.status` is such a topic. The record is a tombstone of a key of its own: compaction drops
it, and who reads the topic passes it over. So this needs no right that publishing does not, and any Kafka can do it.

What is kept of an answer is how far the broker's wall time is from our monotonic time when the record was given to the
client. So the answer to an older question is as good as any, whatever step our own wall time has made since. The stamp
is made after that moment: a clock that is ahead of it is ahead for certain, and one that is behind looks the more
behind, the longer it took.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer

from tarry.clock import Clock
from tarry.errors import UsageError
from tarry.kafka.clients import drop
from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS

KEY = b"clock"

TOLERANCE_MS = 30_000
"""A clock may be so far ahead of a broker's: theirs are not all the same."""

CONNECT_S = 1.0
WITHIN_MS = 6_000
LOOK_S = 0.1


class BrokerTime:
    """Asks a broker for its time, one question at a time; one thread.

    Args:
        cluster: where.
        intakes: whose topics of status may be written to; one after the other is asked.
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
        """Whether an answer is under way."""
        return self._producer is not None

    def ask(self, connect_s: float = 0) -> None:
        """Begin to ask; `look` tells what came of it.

        Args:
            connect_s: how long to wait for a connection: without that the client looks for one once a second.
        """
        topic = self._topics[self._asked % len(self._topics)]
        self._asked += 1
        self._offset_ms, self._is_answered = None, False
        self._producer = self._cluster.clients.producer(self._cluster.publisher())
        try:
            if connect_s:
                self._producer.list_topics(topic, connect_s)
            sent_ms = self._clock.monotonic_ms()
            self._producer.produce(topic, None, KEY, 0, on_delivery=partial(self._reported, topic, sent_ms))
        except KafkaException as exception:
            self._fail(f"{topic}: {error_of(exception).str()}")

    def look(self, timeout_s: float = 0) -> bool:
        """Whether the answer is there, or is known not to come; waits so long at most."""
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
        """Ask no more."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    @property
    def offset_ms(self) -> int | None:
        """How far the broker's wall time is from our monotonic time, at most, as last answered; None: never."""
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


def refuse_a_clock_that_is_ahead(
    cluster: Cluster, intakes: Sequence[str], clock: Clock, on_event: Callable[..., None]
) -> int | None:
    """Compare this machine's clock with the brokers', at a start.

    Args:
        cluster: where.
        intakes: whose topics of status are there.
        clock: this machine's.
        on_event: takes an event's name and fields: that they do not tell, for one.

    Returns:
        How far the broker's time is from monotonic time; None: it does not tell.

    Raises:
        UsageError: it is ahead.
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
            f"the clock of this machine is {ahead_ms / 1000:.0f} s ahead of the brokers': messages would be early, and "
            "buckets closed too soon: set it, or theirs, by NTP, and start again"
        )
    return brokers.offset_ms
