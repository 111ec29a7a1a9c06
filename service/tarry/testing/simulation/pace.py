"""How fast time passes in a simulated world: the longest that a process waits for records in one round."""

from collections.abc import Iterable
from typing import Final

from tarry.testing.fake import FakeBroker
from tarry.testing.simulation.process import Process

IDLE_MS: Final = 10
COARSE_MS: Final = 100
"""As long as the service's own loop waits without work."""


class Pace:
    """The pace of one world. One thread runs its processes, so while one waits, time passes for the others.

    A coarse pace makes large steps, but only while nothing happens: while no process makes a request, and until the
    next message is due. A run then takes about half as long.

    Args:
        broker: the cluster of the world.
        is_fine: whether to make small steps only, so that processes interleave more closely.
    """

    def __init__(self, broker: FakeBroker, *, is_fine: bool) -> None:
        self.is_fine = is_fine
        self._broker = broker
        self._steps = 0  # at the beginning of the last round

    def begin_round(self, processes: Iterable[Process]) -> None:
        """Limit how long these processes wait for records, until the next round."""
        self._broker.wait_at_most(self._longest_wait_ms(processes))

    def _longest_wait_ms(self, processes: Iterable[Process]) -> int:
        before, self._steps = self._steps, self._broker.steps
        if self.is_fine or self._steps != before:
            return IDLE_MS
        dues = [
            due_ms - process.clock.now_ms()
            for process in processes
            for state in process.states.values()
            if (due_ms := state.next_due_ms()) is not None
        ]
        return max(IDLE_MS, min([COARSE_MS, *dues]))
