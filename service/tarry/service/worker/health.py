"""The health report of a process, once a second: that its loop goes round, whether it is ready, and its gauges."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tarry.core.partition import PartitionState
from tarry.core.request.pause import Pause
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.types import Place
from tarry.service.metrics.families import (
    ASSIGNED,
    BUDGET_BYTES,
    CLOCK_AHEAD,
    CLOCK_SKEW,
    DUE_WITHIN,
    HELD_BYTES,
    IN_BUCKETS,
    LAG,
    NAMES,
    OPEN_TRANSACTION,
    OVERDUE,
    PARKED,
    PASSED_OVER,
    PAUSED,
    PAUSED_TARGETS,
    QUARANTINED,
    REFUSED_LETTERS,
    REPLAYING,
    SERVED,
    SILENT,
    UNTRIMMED,
    WAITING,
    WITHOUT_LEADER,
)
from tarry.service.metrics.tally import SeriesKey, Tally
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.view import View
from tarry.units import format_duration

EVERY_MS = 1_000
"""How often a report is sent."""

SILENT_FROM_MS = 3_000
"""The brokers are asked once a second; from then on they count as silent."""

UNREADY_FROM_MS = 10_000
"""A process to which no broker has answered for so long is not ready."""

MOST_TARGETS = 100
"""The most paused targets of an intake that have a gauge each: those that are paused for longest."""

_M, _H, _D = 60_000, 3_600_000, 86_400_000
STEPS_MS = (_M, 10 * _M, _H, 6 * _H, _D, 7 * _D)
"""The times from now for which `DUE_WITHIN` counts messages; the last series of an intake is of all."""

WITHIN = (*map(format_duration, STEPS_MS), "+Inf")
"""The same as values of a label."""


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
        pauses: returns the pauses in force, by intake.
        open_seconds: returns for how long transactions that stay open have been open, by partition and topic.
        send: takes the health; must not wait.
    """

    def __init__(
        self,
        clock: SteadyClock,
        tally: Tally,
        budget_bytes: int,
        offsets: Offsets,
        pauses: Callable[[], Mapping[str, Sequence[Pause]]],
        open_seconds: Callable[[], Mapping[tuple[Place, str], float]],
        send: Callable[[Health], None],
    ) -> None:
        self._clock = clock
        self._tally = tally
        self._budget_bytes = budget_bytes
        self._offsets = offsets
        self._pauses = pauses
        self._open_seconds = open_seconds
        self._send = send
        self._next_ms = 0
        self._asked: PendingAnswers | None = None
        self._ends: dict[Place, int] = {}
        self._places: list[Place] = []
        """The partitions of which the ends are asked for."""
        self._answered_ms = clock.monotonic_ms()
        """When a broker last answered, or had nothing to answer; monotonic."""

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
        self._send(_health(view, self._silent_ms()))

    def _silent_ms(self) -> int:
        """Return for how long no broker has answered."""
        silent_ms = self._clock.monotonic_ms() - self._answered_ms
        return silent_ms if silent_ms >= SILENT_FROM_MS else 0

    def _ask_ends(self, view: View) -> None:
        """Note the ends of the intakes from the last request, and ask again, without waiting."""
        if self._asked is not None and self._asked.done:
            self._ends = self._asked.answers()
            self._asked = None
            if self._ends:
                self._answered_ms = self._clock.monotonic_ms()
        # Who has lost its partitions asks on: mostly because no broker answers.
        self._places = list(view.states) or self._places
        if not self._places:
            self._answered_ms = self._clock.monotonic_ms()
        elif self._asked is None:
            self._asked = self._offsets.ask_ends(self._places)

    def _gauges(self, view: View) -> dict[SeriesKey, float]:
        gauges: dict[SeriesKey, float] = {
            (ASSIGNED.name,): len(view.states) + view.waiting + len(view.aside),
            (REPLAYING.name,): view.not_firing,
            (HELD_BYTES.name,): sum(state.memory_bytes for state in view.states.values()),
            (BUDGET_BYTES.name,): self._budget_bytes,
            (CLOCK_AHEAD.name,): self._clock.ahead_ms / 1000,
            (SILENT.name,): self._silent_ms() / 1000,
        }
        if (skew_ms := self._clock.skew_ms) is not None:
            gauges[(CLOCK_SKEW.name,)] = skew_ms / 1000
        now_ms = self._clock.now_ms()
        for place, state in view.states.items():
            for series, value in _gauges_of(place, state, now_ms):
                gauges[series] = gauges.get(series, 0) + value
            if (end := self._ends.get(place)) is not None:
                gauges[LAG.name, place[0], str(place[1])] = max(0, end - state.position)
        for family, places in ((QUARANTINED, view.aside.quarantined), (WITHOUT_LEADER, view.aside.away)):
            for topic, partition in places:
                gauges[family.name, topic, str(partition)] = 1
        for ((intake, partition), topic), seconds in self._open_seconds().items():
            gauges[OPEN_TRANSACTION.name, intake, str(partition), topic] = seconds
        pauses = self._pauses()
        for intake in {intake for intake, _ in view.states}:
            paused = sorted(pauses.get(intake, ()), key=lambda pause: pause.at_ms)
            gauges[PAUSED_TARGETS.name, intake] = len(paused)
            for pause in paused[:MOST_TARGETS]:
                gauges[PAUSED.name, intake, pause.target] = max(0, now_ms - pause.at_ms) / 1000
        return gauges


def _gauges_of(place: Place, state: PartitionState, now_ms: int) -> Iterator[tuple[SeriesKey, float]]:
    """Yield what a partition adds to the gauges of its intake, and its own."""
    intake, partition = place
    yield (SERVED.name, intake, str(partition)), 1
    yield (WAITING.name, intake), state.waiting
    yield (PASSED_OVER.name, intake), len(state.passed_over)
    if not state.is_gated:
        yield (OVERDUE.name, intake, str(partition)), state.overdue_ms(now_ms) / 1000
    for level, messages in state.overflow.in_buckets.items():
        yield (IN_BUCKETS.name, intake, str(level)), messages
    if state.overflow.has_levels:
        yield (UNTRIMMED.name, intake, str(partition)), state.overflow.untrimmed
        soon = state.overflow.due_by([now_ms + step_ms for step_ms in STEPS_MS])
        for within, messages in zip(WITHIN, soon, strict=True):
            yield (DUE_WITHIN.name, intake, within), messages
    yield (NAMES.name, intake), state.names.count
    if state.letters.left:
        yield (REFUSED_LETTERS.name, intake), state.letters.left
    for target, messages in state.parked.by_target().items():
        yield (PARKED.name, intake, target), messages


def _health(view: View, silent_ms: int) -> Health:
    if silent_ms >= UNREADY_FROM_MS:
        return Health(ready=False, why=f"no broker has answered for {silent_ms // 1000} s")
    if not view.joined:
        return Health(ready=False, why="the group has not assigned partitions to this process yet")
    if view.waiting:
        return Health(ready=False, why=f"{view.waiting} partitions wait to be taken over")
    if count := view.not_firing:
        return Health(ready=False, why=f"{count} partitions are being replayed")
    return Health(ready=True, why="\n".join(view.aside.lines()))
