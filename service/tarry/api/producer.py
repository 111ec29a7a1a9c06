"""The producer of the API: it takes messages as values, and says in which partition one without a key goes."""

from collections.abc import Callable

from tarry.client import AsyncDelayedProducer, DelayedMessage, Receipt, RepeatedMessage, ScheduleReceipt
from tarry.client.pending import Pending, ReceiptT


def _ignore() -> None:
    """Do nothing when a record is queued."""


class ApiProducer(AsyncDelayedProducer):
    """A delayed producer for whoever sends a message again.

    The service recognises a second message with the same id and due time only in the same partition. A key decides the
    partition; of a message without a key, whoever may send it again does.
    """

    async def send_message(
        self, message: DelayedMessage, intake_partition: int | None = None, on_queued: Callable[[], None] = _ignore
    ) -> Receipt:
        """Send one message, and wait until the brokers have acknowledged it.

        Args:
            message: the message.
            intake_partition: for a message without a key: the partition of the intake; None: any.
            on_queued: called when it has its place: what is sent to its partition from now on comes after it.

        Raises:
            HeaderError: as `send`.
            BrokerError: as `send`.
        """
        return await self._queued(lambda: self._connection.sender.send(message, intake_partition), on_queued)

    async def send_schedule(self, message: RepeatedMessage, on_queued: Callable[[], None] = _ignore) -> ScheduleReceipt:
        """Begin a schedule, and wait until the brokers have acknowledged it, as `repeat`."""
        return await self._queued(lambda: self._connection.sender.repeat(message), on_queued)

    async def _queued(self, hand_over: Callable[[], Pending[ReceiptT]], on_queued: Callable[[], None]) -> ReceiptT:
        def queue() -> Pending[ReceiptT]:
            pending = hand_over()
            on_queued()
            return pending

        return await self._acknowledged(queue)
