"""What an application imports to send messages that arrive later."""

from tarry.client.aio import AsyncDelayedProducer
from tarry.client.outcome import OutcomeMetrics, OutcomeReader
from tarry.client.pending import PendingCancel, PendingMessage
from tarry.client.producer import DelayedProducer
from tarry.client.receipt import CancelReceipt, DelayedMessage, Receipt, RescheduleReceipt
from tarry.client.transactional_delays import TransactionalDelays

__all__ = [
    "AsyncDelayedProducer",
    "CancelReceipt",
    "DelayedMessage",
    "DelayedProducer",
    "OutcomeMetrics",
    "OutcomeReader",
    "PendingCancel",
    "PendingMessage",
    "Receipt",
    "RescheduleReceipt",
    "TransactionalDelays",
]
