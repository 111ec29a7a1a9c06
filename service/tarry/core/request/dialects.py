"""Dialects: the headers of other schedulers, which an intake can accept instead of ours.

A dialect says under which names a peer's producers write when, where to, with which key and to which partition, what
of it is gone at the target, and what the peer's consumers find there. It is a value: all that is done with one is here
and in `tarry.core.request.request`.

A peer's cancel names a schedule by its key and carries no due time. Without one there is nothing to find it by, so it
is dead as `bad-handle`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarry.core.request.header_values import Fault, counted, read_delay_or_none, read_epoch_s, read_rfc3339, shown
from tarry.headers import PARTITION, REQUEST_HEADERS, TAKEN_OFF, TARGET, ErrorCode

_Headers = list[tuple[str, bytes | None]]

_ETF1_TIMESTAMP = "scheduler-timestamp"
_ETF1_KEY = "scheduler-key"
_ETF1_TOPIC = "scheduler-topic"
_SENT_INSTEAD = "to cancel, send tarry-cancel with the message's handle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a peer's producers say what they ask for.

    Attributes:
        name: as the configuration has it.
        due: the header that says when.
        read_due: its name, its value and the record's timestamp to a due time, or to what is wrong.
        needs_due: whether a record without it is dead; it is due at once otherwise.
        target: the header that says where to.
        key: the header with the delivered record's key, which is null without it; None: the record's own key.
        partition: the header that says which partition of the target.
        kind: the header that tells a schedule from a cancel.
        schedule: its value on a schedule.
        null_cancels: whether a record with a null value is a cancel.
        unread: request headers that are taken off without a look.
        written: what the peer writes on a delivery: taken off a message that was sent on.
        sign: what we write in its place for the peer's consumers: from a record's key, timestamp and intake.
    """

    name: str
    due: str
    read_due: Callable[[str, bytes | None, int], int | Fault]
    target: str
    needs_due: bool = True
    key: str | None = None
    partition: str = PARTITION
    kind: str | None = None
    schedule: bytes = b""
    null_cancels: bool = False
    unread: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    sign: Callable[[bytes | None, int, str], _Headers] | None = None

    @property
    def request_headers(self) -> frozenset[str]:
        """What a record is dead with where it stands twice: the peer's names, and ours."""
        own = (self.due, self.target, self.key, self.partition, self.kind)
        return REQUEST_HEADERS | self.unread | {name for name in own if name is not None}

    @property
    def taken_off(self) -> frozenset[str]:
        """What does not travel on."""
        return TAKEN_OFF | self.request_headers | self.written

    def due_ms(self, found: Mapping[str, bytes | None], timestamp_ms: int) -> int | Fault:
        """When a record is due."""
        if self.due in found:
            return self.read_due(self.due, found[self.due], timestamp_ms)
        if self.needs_due:
            return Fault(ErrorCode.NO_DELAY, f"needs {self.due}: the intake's dialect is {self.name}")
        return counted(timestamp_ms, 0)

    def refusal(self, found: Mapping[str, bytes | None], *, is_null: bool) -> Fault | None:
        """Say why a record is no schedule, if it is none."""
        if self.null_cancels and is_null:
            return Fault(ErrorCode.BAD_HANDLE, f"a null value cancels nothing here: {_SENT_INSTEAD}")
        if self.kind is not None and self.kind in found and found[self.kind] != self.schedule:
            kind = shown(found[self.kind])
            return Fault(ErrorCode.BAD_HANDLE, f"{self.kind} {kind} is not served: {_SENT_INSTEAD}")
        return None

    def delivered_key(self, headers: _Headers, key: bytes | None) -> bytes | None:
        """The key that the target receives.

        Args:
            headers: as they came.
            key: as it came.
        """
        if self.key is None:
            return key
        return next((value for name, value in headers if name == self.key), None)

    def delivered_headers(self, headers: _Headers, key: bytes | None, timestamp_ms: int, intake: str) -> _Headers:
        """The headers that the target receives, beside our own.

        Args:
            headers: as they came.
            key: as it came.
            timestamp_ms: of the record.
            intake: its topic.
        """
        taken_off = TAKEN_OFF_BY_DIALECT[self.name]
        kept = [header for header in headers if header[0] not in taken_off]
        return kept if self.sign is None else kept + self.sign(key, timestamp_ms, intake)


def _signed_etf1(key: bytes | None, timestamp_ms: int, intake: str) -> _Headers:
    return [(_ETF1_TIMESTAMP, b"%d" % (timestamp_ms // 1_000)), (_ETF1_KEY, key), (_ETF1_TOPIC, intake.encode())]


#: github.com/etf1/kafka-message-scheduler
ETF1 = Dialect(
    name="etf1",
    due="scheduler-epoch",
    read_due=read_epoch_s,
    target="scheduler-target-topic",
    key="scheduler-target-key",
    null_cancels=True,
    written=frozenset({_ETF1_TIMESTAMP, _ETF1_KEY, _ETF1_TOPIC}),
    sign=_signed_etf1,
)

#: Scheduled messages of Karafka Pro.
KARAFKA = Dialect(
    name="karafka",
    due="schedule_target_epoch",
    read_due=read_epoch_s,
    target="schedule_target_topic",
    key="schedule_target_key",
    partition="schedule_target_partition",
    kind="schedule_source_type",
    schedule=b"schedule",
    unread=frozenset({"schedule_schema_version", "schedule_target_partition_key"}),
    written=frozenset(f"schedule_source_{name}" for name in ("topic", "partition", "offset", "key")),
)

#: github.com/martavoi/kafka-timebridge
TIMEBRIDGE = Dialect(
    name="timebridge",
    due="X-Timebridge-When",
    read_due=read_rfc3339,
    target="X-Timebridge-Where",
)

#: RabbitMQ's delayed message exchange: exchange and routing key say where to, and Kafka has neither.
RABBITMQ = Dialect(
    name="rabbitmq",
    due="x-delay",
    read_due=read_delay_or_none,
    needs_due=False,
    target=TARGET,
)

DIALECTS = {dialect.name: dialect for dialect in (ETF1, KARAFKA, TIMEBRIDGE, RABBITMQ)}

TAKEN_OFF_BY_DIALECT = {dialect.name: dialect.taken_off for dialect in DIALECTS.values()}
"""Made once: it is asked for with every delivery."""
