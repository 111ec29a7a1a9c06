"""Dialects: the headers of other schedulers, which an intake can accept instead of tarry's own.

A dialect maps the header names that producers of the other scheduler write: due time, target, key and partition. It
also says which headers are removed before delivery, and which headers the consumers of the other scheduler expect.

A cancel of another scheduler names a schedule by its key and carries no due time. Where the key of a record is its name
(`same_key`), it is a cancel by name. Elsewhere the message cannot be found without a due time, so the cancel becomes a
dead letter with the code `bad-handle`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarry.core.request.header_values import HeaderFault, counted, read_delay_or_none, read_epoch_s, read_rfc3339, shown
from tarry.headers import PARTITION, REQUEST_HEADERS, TAKEN_OFF, TARGET, ErrorCode

_Headers = list[tuple[str, bytes | None]]

_ETF1_TIMESTAMP = "scheduler-timestamp"
_ETF1_KEY = "scheduler-key"
_ETF1_TOPIC = "scheduler-topic"
_SENT_INSTEAD = "to cancel, send tarry-cancel with the message's handle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The headers with which producers of another scheduler ask for a delivery.

    Attributes:
        name: its name in the configuration.
        due: the header with the due time.
        read_due: turns that header's name and value and the record's timestamp into a due time or a fault.
        needs_due: whether a record without that header becomes a dead letter; otherwise it is due at once.
        target: the header with the target topic.
        key: the header with the key to deliver (null if the header is missing), or None: deliver the record's key.
        partition: the header with the partition of the target.
        kind: the header that distinguishes a schedule from a cancel, or None.
        schedule: the value of the header `kind` on a schedule.
        cancels: the values of the header `kind` on a cancel.
        null_cancels: whether a record with a null value is a cancel.
        unread: request headers that are removed and ignored.
        written: headers that the other scheduler writes on a delivery. They are removed, because a record that it has
            delivered may be sent to an intake again.
        sign: makes the headers that its consumers expect, from the record's key, timestamp and intake.
    """

    name: str
    due: str
    read_due: Callable[[str, bytes | None, int], int | HeaderFault]
    target: str
    needs_due: bool = True
    key: str | None = None
    partition: str = PARTITION
    kind: str | None = None
    schedule: bytes = b""
    cancels: frozenset[bytes | None] = frozenset()
    null_cancels: bool = False
    unread: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    sign: Callable[[bytes | None, int, str], _Headers] | None = None

    @property
    def request_headers(self) -> frozenset[str]:
        """The headers of which a record may have only one each: the dialect's and tarry's."""
        own = (self.due, self.target, self.key, self.partition, self.kind)
        return REQUEST_HEADERS | self.unread | {name for name in own if name is not None}

    @property
    def taken_off(self) -> frozenset[str]:
        """The headers that are not delivered."""
        return TAKEN_OFF | self.request_headers | self.written

    def due_ms(self, found: Mapping[str, bytes | None], timestamp_ms: int) -> int | HeaderFault:
        """Return the due time of a record, before rounding.

        Args:
            found: the record's headers.
            timestamp_ms: the record's timestamp.
        """
        if self.due in found:
            return self.read_due(self.due, found[self.due], timestamp_ms)
        if self.needs_due:
            return HeaderFault(ErrorCode.NO_DELAY, f"needs {self.due}: the intake's dialect is {self.name}")
        return counted(timestamp_ms, 0)

    def is_cancel(self, found: Mapping[str, bytes | None], *, is_null: bool) -> bool:
        """Return whether a record cancels the schedule of its key, where the key is the name.

        It does if the other scheduler would read it so, or if it has neither a value nor a due time: a tombstone.

        Args:
            found: the record's headers.
            is_null: whether its value is null.
        """
        if self.kind is not None and self.kind in found:
            return found[self.kind] in self.cancels
        return is_null and (self.null_cancels or self.due not in found)

    def refusal(self, found: Mapping[str, bytes | None], *, is_null: bool) -> HeaderFault | None:
        """Return why a record is not a schedule; None if it is one.

        Args:
            found: the record's headers.
            is_null: whether its value is null.
        """
        if self.null_cancels and is_null:
            return HeaderFault(
                ErrorCode.BAD_HANDLE, f"a record with a null value is not a cancel here: {_SENT_INSTEAD}"
            )
        if self.kind is not None and self.kind in found and found[self.kind] != self.schedule:
            kind = shown(found[self.kind])
            return HeaderFault(ErrorCode.BAD_HANDLE, f"{self.kind} {kind} is not supported: {_SENT_INSTEAD}")
        return None

    def delivered_key(self, headers: _Headers, key: bytes | None) -> bytes | None:
        """Return the key that the target receives.

        Args:
            headers: the original headers.
            key: the original key.
        """
        if self.key is None:
            return key
        return next((value for name, value in headers if name == self.key), None)

    def delivered_headers(self, headers: _Headers, key: bytes | None, timestamp_ms: int, intake: str) -> _Headers:
        """Return the headers that the target receives, without tarry's own.

        Args:
            headers: the original headers.
            key: the original key.
            timestamp_ms: the record's timestamp.
            intake: the intake's topic.
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
    cancels=frozenset({b"cancel", b"tombstone"}),
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

#: RabbitMQ's delayed message exchange. Its exchange and routing key do not exist in Kafka, so `tarry-target` is used.
RABBITMQ = Dialect(
    name="rabbitmq",
    due="x-delay",
    read_due=read_delay_or_none,
    needs_due=False,
    target=TARGET,
)

DIALECTS = {dialect.name: dialect for dialect in (ETF1, KARAFKA, TIMEBRIDGE, RABBITMQ)}

TAKEN_OFF_BY_DIALECT = {dialect.name: dialect.taken_off for dialect in DIALECTS.values()}
"""Computed once, because every delivery needs it."""
