"""Deletes settled records of the retry topic, which has unlimited retention."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.kafka.offsets import Offsets, PendingAnswers

if TYPE_CHECKING:
    from tarry.kafka.types import Place

EVERY_MS = 60_000
"""The time between two deletions."""

AGAIN_MS = 3_600_000
"""The wait after a refused deletion; most likely the client has no right to delete records."""


class Trimming:
    """Trims partitions of the retry topic.

    Args:
        offsets: sends the requests to the brokers.
        topic: the retry topic.
        clock: monotonic time.
        on_event: called with the name of an event and its fields.
    """

    def __init__(self, offsets: Offsets, topic: str, clock: Clock, on_event: Callable[..., None]) -> None:
        self._offsets = offsets
        self._topic = topic
        self._clock = clock
        self._on_event = on_event
        self._settled: dict[Place, int] = {}
        self._asked: PendingAnswers | None = None
        self._next_ms = clock.monotonic_ms() + EVERY_MS

    def committed(self, partition: int, position: int) -> None:
        """Note that all records below an offset are settled and committed; they may go, whoever owns the partition."""
        if position > 0:
            self._settled[self._topic, partition] = position

    def turn(self) -> None:
        """Check the answers to the last request, or send the next request if it is time."""
        if self._asked is not None:
            if self._asked.done:
                failures = self._asked.failures()
                self._asked = None
                for failure in failures:
                    self._on_event("trim_failed", reason=failure)
                    self._next_ms = self._clock.monotonic_ms() + AGAIN_MS
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + EVERY_MS
        if self._settled:
            self._asked = self._offsets.trim(self._settled)
            self._settled = {}
