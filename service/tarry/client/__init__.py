"""The client library: send messages that the service delivers later, and follow their outcomes."""

from typing import TYPE_CHECKING, Any

from tarry.client import outcome
from tarry.client.aio import AsyncDelayedProducer
from tarry.client.outcome import OutcomeReader
from tarry.client.pending import PendingCancel, PendingMessage, PendingNameCancel, PendingSchedule
from tarry.client.producer import DelayedProducer
from tarry.client.receipt import (
    CancelReceipt,
    DelayedMessage,
    NameCancelReceipt,
    Receipt,
    RepeatedMessage,
    RescheduleReceipt,
    ScheduleReceipt,
)
from tarry.client.transactional_delays import TransactionalDelays

if TYPE_CHECKING:
    from tarry.client.outcome import OutcomeMetrics

__all__ = [
    "AsyncDelayedProducer",
    "CancelReceipt",
    "DelayedMessage",
    "DelayedProducer",
    "NameCancelReceipt",
    "OutcomeMetrics",
    "OutcomeReader",
    "PendingCancel",
    "PendingMessage",
    "PendingNameCancel",
    "PendingSchedule",
    "Receipt",
    "RepeatedMessage",
    "RescheduleReceipt",
    "ScheduleReceipt",
    "TransactionalDelays",
]


def __getattr__(name: str) -> Any:
    if name != "OutcomeMetrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return outcome.OutcomeMetrics
