"""What an application imports to send messages that arrive later."""

from tarry.client.outcome import OutcomeReader
from tarry.client.producer import DelayedProducer
from tarry.client.receipt import CancelReceipt, DelayedMessage, Receipt

__all__ = ["CancelReceipt", "DelayedMessage", "DelayedProducer", "OutcomeReader", "Receipt"]
