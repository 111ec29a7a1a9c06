"""What came back and is settled is deleted now and then: the retry topic keeps everything until then."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.kafka.offsets import Offsets, Pending

if TYPE_CHECKING:
    from tarry.kafka.types import Place

EVERY_MS = 60_000
AGAIN_MS = 3_600_000
"""How long after a refusal: most likely the right to delete is missing."""


class Trimming:
    """Trims partitions of the retry topic.

    Args:
        offsets: questions to the brokers.
        topic: where messages come back.
        clock: monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, offsets: Offsets, topic: str, clock: Clock, on_event: Callable[..., None]) -> None:
        self._offsets = offsets
        self._topic = topic
        self._clock = clock
        self._on_event = on_event
        self._settled: dict[Place, int] = {}
        self._asked: Pending | None = None
        self._next_ms = clock.monotonic_ms() + EVERY_MS

    def committed(self, partition: int, position: int) -> None:
        """All in front of an offset is settled, and that is committed: whoever owns the partition by now."""
        if position > 0:
            self._settled[self._topic, partition] = position

    def turn(self) -> None:
        """Take the answers, or ask, if it is time to."""
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
