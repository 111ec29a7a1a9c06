"""The health report of a process, once a second: that its loop goes round, whether it is ready, and its gauges."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.service.metrics.families import (
    ASSIGNED,
    BUDGET_BYTES,
    CLOCK_AHEAD,
    HELD_BYTES,
    IN_BUCKETS,
    LAG,
    PARKED,
    PASSED_OVER,
    QUARANTINED,
    REFUSED_LETTERS,
    REPLAYING,
    UNTRIMMED,
    WAITING,
    WITHOUT_LEADER,
)
from tarry.service.metrics.tally import SeriesKey, Tally
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.view import View

if TYPE_CHECKING:
    from tarry.kafka.types import Place

EVERY_MS = 1_000
"""How often a report is sent."""


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a process is ready.

    Attributes:
        ready: whether it has taken over and replayed all partitions that it can serve.
        why: why it is not ready; or which partitions it does not serve, one a line.
    """

    ready: bool
    why: str


class HealthReporter:
    """Sends a report at most once a second, however often `turn` is called.

    Args:
        clock: monotonic time, and how far the machine's wall time is ahead.
        tally: takes the gauges.
        budget_bytes: the memory for held messages.
        offsets: asks the brokers for offsets.
        send: takes the health; must not wait.
    """

    def __init__(
        self,
        clock: SteadyClock,
        tally: Tally,
        budget_bytes: int,
        offsets: Offsets,
        send: Callable[[Health], None],
    ) -> None:
        self._clock = clock
        self._tally = tally
        self._budget_bytes = budget_bytes
        self._offsets = offsets
        self._send = send
        self._next_ms = 0
        self._asked: PendingAnswers | None = None
        self._ends: dict[Place, int] = {}

    def turn(self, look: Callable[[], View]) -> None:
        """Send a report, if it is time.

        Args:
            look: returns the present state of the partitions; called only then.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + EVERY_MS
            self.beat(look())

    def beat(self, view: View) -> None:
        """Send a report now: after a change that others wait for, and at the end."""
        self._ask_ends(view)
        self._tally.replace_gauges(self._gauges(view))
        self._send(_health(view))

    def _ask_ends(self, view: View) -> None:
        """Note the ends of the intakes from the last request, and ask again, without waiting."""
        if self._asked is not None and self._asked.done:
            self._ends = self._asked.answers()
            self._asked = None
        if self._asked is None and view.states:
            self._asked = self._offsets.ask_ends(view.states)

    def _gauges(self, view: View) -> dict[SeriesKey, float]:
        gauges: dict[SeriesKey, float] = {
            (ASSIGNED.name,): len(view.states) + view.waiting + len(view.aside),
            (REPLAYING.name,): view.replaying,
            (HELD_BYTES.name,): sum(state.memory_bytes for state in view.states.values()),
            (BUDGET_BYTES.name,): self._budget_bytes,
            (CLOCK_AHEAD.name,): self._clock.ahead_ms / 1000,
        }
        for place, state in view.states.items():
            waiting = (WAITING.name, place[0])
            gauges[waiting] = gauges.get(waiting, 0) + state.waiting
            passed_over = (PASSED_OVER.name, place[0])
            gauges[passed_over] = gauges.get(passed_over, 0) + len(state.passed_over)
            for level, messages in state.overflow.in_buckets.items():
                far = (IN_BUCKETS.name, place[0], str(level))
                gauges[far] = gauges.get(far, 0) + messages
            if state.letters.left:
                refused = (REFUSED_LETTERS.name, place[0])
                gauges[refused] = gauges.get(refused, 0) + state.letters.left
            if state.overflow.has_levels:
                gauges[UNTRIMMED.name, place[0], str(place[1])] = state.overflow.untrimmed
            for target, messages in state.parked.by_target().items():
                parked = (PARKED.name, place[0], target)
                gauges[parked] = gauges.get(parked, 0) + messages
            if (end := self._ends.get(place)) is not None:
                gauges[LAG.name, place[0], str(place[1])] = max(0, end - state.position)
        for family, places in ((QUARANTINED, view.aside.quarantined), (WITHOUT_LEADER, view.aside.waiting)):
            for topic, partition in places:
                gauges[family.name, topic, str(partition)] = 1
        return gauges


def _health(view: View) -> Health:
    if not view.joined:
        return Health(ready=False, why="the group has not assigned partitions to this process yet")
    if view.waiting:
        return Health(ready=False, why=f"{view.waiting} partitions wait to be taken over")
    if replaying := view.replaying:
        return Health(ready=False, why=f"{replaying} partitions are being replayed")
    return Health(ready=True, why="\n".join(view.aside.lines()))
