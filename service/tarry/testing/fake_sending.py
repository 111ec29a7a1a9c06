"""The methods of the client's producers, `DelayedProducer` and `AsyncDelayedProducer`, on a fake service.

No call waits: when it returns, the message is in the intake.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, overload
from uuid import UUID

from tarry.client.closing import AsyncClosing, Closing
from tarry.client.pending import IntakeTopic
from tarry.client.receipt import (
    CancelReceipt,
    DelayedMessage,
    MessageHeaders,
    NameCancelReceipt,
    OnlyIf,
    Receipt,
    RepeatedMessage,
    RescheduleReceipt,
    ScheduleReceipt,
)
from tarry.client.record import IntakeRecord, to_cancel, to_handle, to_name_cancel, to_record, to_schedule
from tarry.client.rescheduling import refuse_itself
from tarry.handle import Handle

_TICK_MS: Final = 1


class FakeSending(Closing):
    """Has the methods of a `DelayedProducer`."""

    intake: str
    """The topic of the intake."""

    @property
    def aio(self) -> "AsyncFakeSending":
        """The same for coroutines, with the methods of an `AsyncDelayedProducer`."""
        return AsyncFakeSending(self)

    def send(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as in `DelayedProducer.send`
        headers: MessageHeaders | None = None,
        partition: int | None = None,
        name: str | bytes | None = None,
        only_if: OnlyIf | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> Receipt:
        """Send a message, as `DelayedProducer.send` does.

        Raises:
            HeaderError: the message could never be delivered.
        """
        return self.send_message(
            DelayedMessage(target, value, key, delay, at, id, headers, partition, name, only_if, expires_at, window)
        )

    def send_message(self, message: DelayedMessage) -> Receipt:
        """Send a message.

        Raises:
            HeaderError: as `send`.
        """
        receipt = self._sent(message)
        self._settle()
        return receipt

    def repeat(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes,
        *,
        name: str | bytes,
        every: timedelta | None = None,
        cron: str | None = None,
        zone: str | None = None,
        first: datetime | None = None,
        only_if: OnlyIf | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as in `DelayedProducer.repeat`
        headers: MessageHeaders | None = None,
        partition: int | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> ScheduleReceipt:
        """Begin a schedule, as `DelayedProducer.repeat` does.

        Raises:
            HeaderError: the schedule could never be accepted.
        """
        return self.repeat_message(
            RepeatedMessage(
                target, value, key, name, every, cron, zone, first, only_if, id, headers, partition, expires_at, window
            )
        )

    def repeat_message(self, message: RepeatedMessage) -> ScheduleReceipt:
        """Begin a schedule.

        Raises:
            HeaderError: as `repeat`.
        """
        record = to_schedule(message, self._now_ms())
        receipt = ScheduleReceipt(record.id, self.intake, *self._append(record, None))
        self._settle()
        return receipt

    @overload
    def send_many(self, messages: Iterable[DelayedMessage]) -> Iterator[Receipt]: ...

    @overload
    def send_many(self, messages: Iterable[RepeatedMessage]) -> Iterator[ScheduleReceipt]: ...

    @overload
    def send_many(
        self, messages: Iterable[DelayedMessage | RepeatedMessage]
    ) -> Iterator[Receipt | ScheduleReceipt]: ...

    def send_many(self, messages: Iterable[DelayedMessage | RepeatedMessage]) -> Iterator[Any]:
        """Send each message when its receipt is taken from the iterator, as `DelayedProducer.send_many` does.

        Raises:
            HeaderError: as `send`.
        """
        for message in messages:
            if isinstance(message, RepeatedMessage):
                yield self.repeat_message(message)
            else:
                yield self.send_message(message)

    def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Send a cancel for a message, as `DelayedProducer.cancel` does.

        Raises:
            HeaderError: `handle` is not a handle, is a handle of another intake, or is that of a schedule.
        """
        receipt = self._cancelled(self._own(handle))
        self._settle()
        return receipt

    def cancel_named(self, key: str | bytes, name: str | bytes) -> NameCancelReceipt:
        """Cancel the message that waits under a name of a key, as `DelayedProducer.cancel_named` does.

        Raises:
            HeaderError: the name is empty or longer than 255 bytes, or the key is None.
        """
        receipt = NameCancelReceipt(self.intake, *self._append(to_name_cancel(key, name), None))
        self._settle()
        return receipt

    def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, as `DelayedProducer.reschedule` does.

        Raises:
            HeaderError: `handle` is not a handle, the new message could never be delivered, or it has the same id and
                due time as the old one.
        """
        parsed = self._own(handle)
        refuse_itself(parsed, message, self._now_ms(), _TICK_MS)
        cancelled = self._cancelled(parsed)
        sent = self._sent(message)
        self._settle()
        return RescheduleReceipt(sent, cancelled)

    def close(self) -> None:
        """Do nothing: no message is in flight, and the service keeps running."""

    def _sent(self, message: DelayedMessage) -> Receipt:
        now_ms = self._now_ms()
        record = to_record(message, now_ms)
        partition, offset = self._append(record, None)
        return IntakeTopic(self.intake, _TICK_MS).receipt(record, now_ms, partition, offset)

    def _cancelled(self, handle: Handle) -> CancelReceipt:
        _, offset = self._append(to_cancel(handle), handle.partition)
        return CancelReceipt(handle, offset)

    def _own(self, handle: Handle | str) -> Handle:
        return to_handle(handle, self.intake)

    @abstractmethod
    def _now_ms(self) -> int:
        """Wall time."""

    @abstractmethod
    def _append(self, record: IntakeRecord, partition: int | None) -> tuple[int, int]:
        """Append a record to the intake.

        Args:
            record: the record.
            partition: the partition; None: chosen by the key.

        Returns:
            The partition and the offset.
        """

    @abstractmethod
    def _settle(self) -> None:
        """Run the service's loop until there is nothing to do at this time."""


class AsyncFakeSending(AsyncClosing):
    """Has the methods of an `AsyncDelayedProducer`.

    Args:
        sending: the object that sends.
    """

    def __init__(self, sending: FakeSending) -> None:
        self._sending = sending

    async def send(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes | None = None,
        *,
        delay: timedelta | None = None,
        at: datetime | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as in `AsyncDelayedProducer.send`
        headers: MessageHeaders | None = None,
        partition: int | None = None,
        name: str | bytes | None = None,
        only_if: OnlyIf | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> Receipt:
        """Send a message, as `AsyncDelayedProducer.send` does."""
        message = DelayedMessage(
            target, value, key, delay, at, id, headers, partition, name, only_if, expires_at, window
        )
        return self._sending.send_message(message)

    async def repeat(
        self,
        target: str,
        value: str | bytes | None,
        key: str | bytes,
        *,
        name: str | bytes,
        every: timedelta | None = None,
        cron: str | None = None,
        zone: str | None = None,
        first: datetime | None = None,
        only_if: OnlyIf | None = None,
        id: UUID | str | bytes | None = None,  # noqa: A002 - as in `AsyncDelayedProducer.repeat`
        headers: MessageHeaders | None = None,
        partition: int | None = None,
        expires_at: datetime | None = None,
        window: timedelta | None = None,
    ) -> ScheduleReceipt:
        """Begin a schedule, as `AsyncDelayedProducer.repeat` does."""
        message = RepeatedMessage(
            target, value, key, name, every, cron, zone, first, only_if, id, headers, partition, expires_at, window
        )
        return self._sending.repeat_message(message)

    async def cancel(self, handle: Handle | str) -> CancelReceipt:
        """Send a cancel for a message, as `AsyncDelayedProducer.cancel` does."""
        return self._sending.cancel(handle)

    async def cancel_named(self, key: str | bytes, name: str | bytes) -> NameCancelReceipt:
        """Cancel the message that waits under a name of a key, as `AsyncDelayedProducer.cancel_named` does."""
        return self._sending.cancel_named(key, name)

    async def reschedule(self, handle: Handle | str, message: DelayedMessage) -> RescheduleReceipt:
        """Cancel a message and send another in its place, as `AsyncDelayedProducer.reschedule` does."""
        return self._sending.reschedule(handle, message)

    async def close(self) -> None:
        """Do nothing: no message is in flight, and the service keeps running."""
