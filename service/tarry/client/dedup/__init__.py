"""Deduplication for readers: a best-effort window in memory, and an exactly-once sink."""

from tarry.client.dedup.deduplicator import Deduplicator
from tarry.client.dedup.delivered import DeliveredMessage
from tarry.client.dedup.sink import PostgresSink
from tarry.client.dedup.window import DedupWindow

__all__ = ["DedupWindow", "Deduplicator", "DeliveredMessage", "PostgresSink"]
