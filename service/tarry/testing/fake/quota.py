"""A limit on the bytes that the producers of a process may write, like Kafka's `producer_byte_rate`.

The cluster accepts a request of any size. Then it throttles the client until its rate is down to the quota again.
"""

from collections.abc import Callable

from tarry.testing.manual_clock import ManualClock


class Quota:
    """The quota, and the processes that are throttled now.

    Args:
        clock: the cluster's clock.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.bytes_per_s: int | None = None
        """The quota of each process, in bytes per second; None: no quota."""
        self._clock = clock
        self._held_until_ms: dict[str, int] = {}

    def holds(self, process: str) -> bool:
        """Return whether the producers of a process are throttled now."""
        return self.bytes_per_s is not None and self._clock.monotonic_ms() < self._held_until_ms.get(process, 0)

    def spend(self, process: str, size: Callable[[], int]) -> None:
        """Count the bytes that a process has written; their number is asked for only if there is a quota."""
        if self.bytes_per_s is not None:
            begins_ms = max(self._clock.monotonic_ms(), self._held_until_ms.get(process, 0))
            self._held_until_ms[process] = begins_ms + size() * 1_000 // self.bytes_per_s
