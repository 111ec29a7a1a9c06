"""How many requests a principal may make: a token bucket for each, in this replica."""

import asyncio
from typing import Final

from tarry.clock import Clock

_MOST: Final = 10_000


class Rates:
    """A bucket for each name, with room for two seconds.

    Args:
        per_s: how many requests a second.
        clock: monotonic time.
    """

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left: dict[str, tuple[float, int]] = {}

    def take(self, name: str, count: int = 1) -> float:
        """Take from a bucket, or return after how many seconds that is possible; 0: it was taken."""
        now_ms = self._clock.monotonic_ms()
        most = 2.0 * self._per_s
        left, at_ms = self._left.get(name, (most, now_ms))
        left = min(most, left + (now_ms - at_ms) * self._per_s / 1_000)
        if left < count:
            self._left[name] = left, now_ms
            return (count - left) / self._per_s
        self._left[name] = left - count, now_ms
        if len(self._left) > _MOST:
            # Who has not come for two seconds has a full bucket again, as one who is not known.
            self._left = {one: found for one, found in self._left.items() if now_ms - found[1] < 2_000}
        return 0.0

    async def taken(self, name: str) -> None:
        """Take from a bucket, and wait for it if need be."""
        while True:
            after_s = self.take(name)
            if not after_s:
                return
            await asyncio.sleep(after_s)
