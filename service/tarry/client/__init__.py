"""What an application imports to send messages that arrive later."""

from tarry.client.aio import AsyncDelayedProducer
from tarry.client.messages import DelayedMessages
from tarry.client.outcome import OutcomeMetrics, OutcomeReader
from tarry.client.pending import PendingCancel, PendingMessage
from tarry.client.producer import DelayedProducer
from tarry.client.receipt import CancelReceipt, DelayedMessage, Receipt, RescheduleReceipt

__all__ = [
    "AsyncDelayedProducer",
    "CancelReceipt",
    "DelayedMessage",
    "DelayedMessages",
    "DelayedProducer",
    "OutcomeMetrics",
    "OutcomeReader",
    "PendingCancel",
    "PendingMessage",
    "Receipt",
    "RescheduleReceipt",
]
