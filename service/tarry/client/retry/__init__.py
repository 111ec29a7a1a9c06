"""Ordered retry: a consumer whose messages are tried again later, and do not overtake each other."""

from tarry.client.retry.consumer import RetryingConsumer
from tarry.client.retry.handling import HandlerTransaction
from tarry.core.retry.message import RetryMessage
from tarry.core.retry.policy import GaveUp, OnError, RetryDecision, RetryPolicy

__all__ = [
    "GaveUp",
    "HandlerTransaction",
    "OnError",
    "RetryDecision",
    "RetryMessage",
    "RetryPolicy",
    "RetryingConsumer",
]
