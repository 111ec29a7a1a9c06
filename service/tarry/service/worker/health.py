"""The health report of a process, once a second: that its loop goes round, whether it is ready, and its gauges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.types import Place
from tarry.service.metrics.families import (
    ASSIGNED,
    BUDGET_BYTES,
    CLOCK_AHEAD,
    HELD_BYTES,
    IN_BUCKETS,
    LAG,
    PARKED,
    QUARANTINED,
    REFUSED_LETTERS,
    REPLAYING,
    TAKEOVER_SECONDS,
    UNEMPTIED,
    WAITING,
    WITHOUT_LEADER,
)
from tarry.service.metrics.tally import Key, Tally
from tarry.service.worker.aside import Aside
from tarry.service.worker.steady_clock import SteadyClock

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


@dataclass(frozen=True, slots=True)
class View:
    """The present state of the loop.

    Attributes:
        joined: whether the group has assigned us partitions, or an empty assignment.
        waiting: how many partitions wait to be taken over.
        states: the partitions that are taken over.
        aside: the partitions that cannot be served now.
    """

    joined: bool
    waiting: int
    states: Mapping[Place, PartitionState]
    aside: Aside

    @property
    def replaying(self) -> int:
        """How many of our partitions do not fire yet; those that are set aside do not count."""
        return self.waiting + sum(state.replaying for state in self.states.values())


class HealthReporter:
    """Sends a report at most once a second, however often `turn` is called.

    Args:
        clock: monotonic time, and how far the machine's wall time is ahead.
        tally: takes the gauges.
        budget_bytes: the memory for held messages.
        offsets: asks the brokers for offsets.
        look: returns the present state of the loop.
        send: takes the health; must not wait.
    """

    def __init__(
        self,
        clock: SteadyClock,
        tally: Tally,
        budget_bytes: int,
        offsets: Offsets,
        look: Callable[[], View],
        send: Callable[[Health], None],
    ) -> None:
        self._clock = clock
        self._tally = tally
        self._budget_bytes = budget_bytes
        self._offsets = offsets
        self._look = look
        self._send = send
        self._next_ms = 0
        self._taking_over_since_ms: int | None = None
        self._asked: Pending | None = None
        self._ends: dict[Place, int] = {}

    def turn(self) -> None:
        """Send a report, if it is time."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + EVERY_MS
            self.beat()

    def beat(self) -> None:
        """Send a report now: after a change that others wait for, and at the end."""
        view = self._look()
        self._ask_ends(view)
        self._tally.replace_gauges(self._gauges(view))
        self._send(_health(view))

    def taking_over(self) -> None:
        """Begin to measure a take-over: the group has assigned us partitions, or all of ours are taken over anew."""
        if self._taking_over_since_ms is None:
            self._taking_over_since_ms = self._clock.monotonic_ms()

    def serving(self) -> None:
        """End the measurement: all partitions are taken over and replayed."""
        if self._taking_over_since_ms is not None:
            took_ms = self._clock.monotonic_ms() - self._taking_over_since_ms
            self._taking_over_since_ms = None
            self._tally.observe(TAKEOVER_SECONDS, took_ms / 1000)
        self.beat()

    def _ask_ends(self, view: View) -> None:
        """Note the ends of the intakes from the last request, and ask again, without waiting."""
        if self._asked is not None and self._asked.done:
            self._ends = self._asked.answers()
            self._asked = None
        if self._asked is None and view.states:
            self._asked = self._offsets.ask_ends(view.states)

    def _gauges(self, view: View) -> dict[Key, float]:
        gauges: dict[Key, float] = {
            (ASSIGNED.name,): len(view.states) + view.waiting + len(view.aside),
            (REPLAYING.name,): view.replaying,
            (HELD_BYTES.name,): sum(state.memory_bytes for state in view.states.values()),
            (BUDGET_BYTES.name,): self._budget_bytes,
            (CLOCK_AHEAD.name,): self._clock.ahead_ms / 1000,
        }
        for place, state in view.states.items():
            waiting = (WAITING.name, place[0])
            gauges[waiting] = gauges.get(waiting, 0) + state.held
            for level, messages in state.overflow.in_buckets.items():
                far = (IN_BUCKETS.name, place[0], str(level))
                gauges[far] = gauges.get(far, 0) + messages
            if state.letters.left:
                refused = (REFUSED_LETTERS.name, place[0])
                gauges[refused] = gauges.get(refused, 0) + state.letters.left
            if state.overflow.slots:
                gauges[UNEMPTIED.name, place[0], str(place[1])] = len(state.overflow.done)
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
