"""How much the producers of a process may write, as Kafka's `producer_byte_rate` has it.

A request is taken whatever its size, and then the client is held back until its rate is that of the quota again.
"""

from tarry.testing.manual_clock import ManualClock


class Quota:
    """Who is held back.

    Args:
        clock: of everything.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.bytes_per_s: int | None = None
        """Of each process; None: as much as it likes."""
        self._clock = clock
        self._held_until_ms: dict[str, int] = {}

    def holds(self, process: str) -> bool:
        """Whether the producers of a process are held back now."""
        return self.bytes_per_s is not None and self._clock.monotonic_ms() < self._held_until_ms.get(process, 0)

    def spend(self, process: str, size: int) -> None:
        """A process has written so many bytes."""
        if self.bytes_per_s is not None:
            begins_ms = max(self._clock.monotonic_ms(), self._held_until_ms.get(process, 0))
            self._held_until_ms[process] = begins_ms + size * 1_000 // self.bytes_per_s
