"""Ordered retry: a consumer whose messages are tried again later, and do not overtake each other."""

from tarry.client.retry.consumer import RetryingConsumer
from tarry.client.retry.core.message import RetryMessage
from tarry.client.retry.core.policy import GaveUp, OnError, RetryDecision, RetryPolicy
from tarry.client.retry.handling import HandlerTransaction

__all__ = [
    "GaveUp",
    "HandlerTransaction",
    "OnError",
    "RetryDecision",
    "RetryMessage",
    "RetryPolicy",
    "RetryingConsumer",
]
