"""What goes into the delayed producer, and what comes out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tarry.handle import Handle

HeaderValue = str | bytes | None

#: Headers of the application's own: a mapping, or pairs where a name stands more than once.
MessageHeaders = Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]]


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message to be delivered later: the arguments of `DelayedProducer.send` as one value.

    Args:
        target: the topic to deliver to.
        value: the payload; text is sent as UTF-8, None as Kafka's null.
        key: the key, likewise.
        delay: how long after sending; exactly one of this and `at`.
        at: when, a datetime with its zone.
        id: the message's UUID; None: a random one.
        headers: the application's own, which travel untouched.
        partition: of the target, to deliver to; None: by the key.
    """

    target: str
    value: str | bytes | None
    key: str | bytes | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    id: UUID | str | bytes | None = None
    headers: MessageHeaders | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class CancelReceipt:
    """The broker has acknowledged a cancel: what comes of it, the intake's results tell.

    Args:
        handle: of the message to be cancelled.
        offset: the cancel's place in the intake's partition `handle.partition`.
    """

    handle: Handle
    offset: int

    @property
    def source(self) -> str:
        """Its place as results name it, in `cancel_source`."""
        return f"{self.handle.topic}/{self.handle.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The broker has acknowledged a message: it will be delivered, or be found in the intake's dead letters.

    Args:
        id: its `tarry-id`, 36 characters.
        handle: the name under which it can be found and cancelled.
        due: when it is due, in UTC.
        offset: its place in the intake's partition `handle.partition`.
    """

    id: str
    handle: Handle
    due: datetime
    offset: int


@dataclass(frozen=True, slots=True)
class RescheduleReceipt:
    """The broker has committed a cancel and, in the same transaction, the message that takes the place of the other.

    Args:
        sent: the receipt of the message that was sent.
        cancel: the receipt of the cancel, for `OutcomeReader.of_cancel`: at `cancel-too-late` both are delivered.
    """

    sent: Receipt
    cancel: CancelReceipt
