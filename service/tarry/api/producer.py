"""The producer of the API: it takes messages as values, and says in which partition one without a key goes."""

from tarry.client import AsyncDelayedProducer, DelayedMessage, Receipt, RepeatedMessage, ScheduleReceipt


class ApiProducer(AsyncDelayedProducer):
    """A delayed producer for whoever sends a message again.

    The service recognises a second message with the same id and due time only in the same partition. A key decides the
    partition; of a message without a key, whoever may send it again does.
    """

    async def send_message(self, message: DelayedMessage, intake_partition: int | None = None) -> Receipt:
        """Send one message, and wait until the brokers have acknowledged it.

        Args:
            message: the message.
            intake_partition: for a message without a key: the partition of the intake; None: any.

        Raises:
            HeaderError: as `send`.
            BrokerError: as `send`.
        """
        return await self._acknowledged(lambda: self._connection.sender.send(message, intake_partition))

    async def send_schedule(self, message: RepeatedMessage) -> ScheduleReceipt:
        """Begin a schedule, and wait until the brokers have acknowledged it, as `repeat`."""
        return await self._acknowledged(lambda: self._connection.sender.repeat(message))
