"""The values that the delayed producer takes and returns: messages and receipts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from tarry.handle import Handle
from tarry.headers import derived_id

HeaderValue = str | bytes | None

OnlyIf = Literal["absent", "present"]

#: The application's own headers: a mapping, or pairs if a name occurs more than once.
MessageHeaders = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message to deliver later: the arguments of `DelayedProducer.send` as one value.

    Args:
        target: the topic to deliver to.
        value: the payload; text is sent as UTF-8, None as Kafka's null.
        key: encoded like `value`.
        delay: how long after sending. Give either `delay` or `at`.
        at: the due time, a datetime with a time zone.
        id: the message's UUID; None: a random one.
        headers: the application's own headers, which are delivered unchanged.
        partition: the partition of the target; None: chosen by the key.
        name: 1 to 255 bytes of UTF-8. At most one message of a key and a name waits at a time: this one replaces it.
        only_if: "absent": this message is skipped if one of its name waits; "present": if none does.
        expires_at: the latest time of a delivery, a datetime with a time zone; after it, the message becomes a dead
            letter (`expired`).
        window: the message is due later by a part of this window, which follows from its id.
    """

    target: str
    value: str | bytes | None
    key: str | bytes | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    id: UUID | str | bytes | None = None
    headers: MessageHeaders | None = None
    partition: int | None = None
    name: str | bytes | None = None
    only_if: OnlyIf | None = None
    expires_at: datetime | None = None
    window: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RepeatedMessage:
    """A message to deliver again and again: the arguments of `DelayedProducer.repeat` as one value.

    Args:
        target: the topic to deliver to.
        value: the payload of each occurrence; text is sent as UTF-8, None as Kafka's null.
        key: encoded like `value`; it must not be None.
        name: 1 to 255 bytes of UTF-8. At most one message of a key and a name waits at a time: this schedule replaces
            it.
        every: the interval, whole milliseconds, at least a second. Give either `every` or `cron`.
        cron: five fields, such as "0 9 * * MON-FRI".
        zone: the zone of `cron`, such as "Europe/Berlin"; None: UTC.
        first: the time from which `every` counts, a datetime with a time zone; None: the epoch.
        only_if: "absent": this schedule is skipped if a message of its name waits; "present": if none does.
        id: the schedule's UUID; None: a random one.
        headers: the application's own headers, which are delivered unchanged with each occurrence.
        partition: the partition of the target; None: chosen by the key.
        expires_at: the end of the schedule, a datetime with a time zone: an occurrence that would be later becomes a
            dead letter (`expired`).
        window: each occurrence is due later by the same part of this window, which follows from the schedule's id.
    """

    target: str
    value: str | bytes | None
    key: str | bytes
    name: str | bytes
    every: timedelta | None = None
    cron: str | None = None
    zone: str | None = None
    first: datetime | None = None
    only_if: OnlyIf | None = None
    id: UUID | str | bytes | None = None
    headers: MessageHeaders | None = None
    partition: int | None = None
    expires_at: datetime | None = None
    window: timedelta | None = None


@dataclass(frozen=True, slots=True)
class ScheduleReceipt:
    """An acknowledged schedule: the service will deliver its occurrences, until something ends it.

    Args:
        id: the schedule's id, 36 characters. Each occurrence has an id of its own, and this one in `tarry-schedule`.
        intake: the intake.
        partition: the partition of the record, which is that of the key.
        offset: the offset of the record there.
    """

    id: str
    intake: str
    partition: int
    offset: int

    @property
    def source(self) -> str:
        """The record's `topic/partition/offset`, as results give it in `source`."""
        return f"{self.intake}/{self.partition}/{self.offset}"

    @property
    def handle(self) -> Handle:
        """The place of the results; a schedule has no due time of its own. Cancel it by its key and name."""
        return Handle(self.intake, self.partition, 0, self.id)


@dataclass(frozen=True, slots=True)
class NameCancelReceipt:
    """An acknowledged cancel by name. The intake's results topic will say whether a message waited.

    Args:
        intake: the intake.
        partition: the partition of the cancel, which is that of the key.
        offset: the offset of the cancel there.
    """

    intake: str
    partition: int
    offset: int

    @property
    def source(self) -> str:
        """The cancel's `topic/partition/offset`, as results give it in `source`."""
        return f"{self.intake}/{self.partition}/{self.offset}"

    @property
    def id(self) -> str:
        """The id under which the service answers, 36 characters."""
        return derived_id(self.intake, self.partition, self.offset).decode()

    @property
    def handle(self) -> Handle:
        """The place of the answer; a cancel by name has no due time."""
        return Handle(self.intake, self.partition, 0, self.id)


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """An acknowledged cancel. The intake's results topic will say whether it came in time.

    Args:
        handle: the message to cancel.
        offset: the offset of the cancel in partition `handle.partition` of the intake.
    """

    handle: Handle
    offset: int

    @property
    def source(self) -> str:
        """The cancel's `topic/partition/offset`, as results give it in `cancel_source`."""
        return f"{self.handle.topic}/{self.handle.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged message: it is in the intake, and the service will write a result for it.

    The result says that it was delivered, cancelled, replaced or skipped, or that it is a duplicate or a dead letter.

    Args:
        id: the message's `tarry-id`, 36 characters.
        handle: identifies the message for a cancel or a search.
        due: the due time, in UTC.
        offset: the offset of the record in partition `handle.partition` of the intake.
    """

    id: str
    handle: Handle
    due: datetime
    offset: int


@dataclass(frozen=True, slots=True)
class RescheduleReceipt:
    """A committed rescheduling: a cancel and the replacement message, in one transaction.

    Args:
        sent: the receipt of the replacement message.
        cancel: the receipt of the cancel, for `OutcomeReader.of_cancel`. If its outcome is `cancel-too-late`, the
            service delivers both messages.
    """

    sent: Receipt
    cancel: CancelReceipt
