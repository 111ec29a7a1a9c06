"""The client library: send messages that the service delivers later, and follow their outcomes."""

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
