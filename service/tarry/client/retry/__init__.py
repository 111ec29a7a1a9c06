"""Ordered retry: a consumer that retries failed messages later and keeps the order of each key."""

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
