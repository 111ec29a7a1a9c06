"""What a process says of itself once a second: that its loop goes round, whether it is ready, and its gauges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.place import Place
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.stall import StallWatch
from tarry.metrics.families import (
    ASSIGNED,
    BUDGET_BYTES,
    HELD_BYTES,
    IN_BUCKETS,
    LAG,
    PARKED,
    REPLAYING,
    TAKEOVER_SECONDS,
    UNEMPTIED,
    WAITING,
)
from tarry.metrics.tally import Key, Tally

EVERY_MS = 1_000


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a process has taken over and replayed all that the group gave it; if not, why not, in one line."""

    ready: bool
    why: str


@dataclass(frozen=True, slots=True)
class View:
    """The loop as it stands.

    Attributes:
        joined: whether the group has said which partitions are ours, be it none.
        waiting: partitions that are to be taken over.
        states: those that are.
    """

    joined: bool
    waiting: int
    states: Mapping[Place, PartitionState]

    @property
    def replaying(self) -> int:
        """Partitions that are ours and do not fire yet."""
        return self.waiting + sum(state.replaying for state in self.states.values())


class Pulse:
    """Beats at most once a second, however often it is called.

    Args:
        clock: monotonic time.
        tally: takes the gauges.
        budget_bytes: for messages held.
        offsets: questions to the brokers.
        look: the loop as it stands.
        send: takes what is to be said, and never waits.
    """

    def __init__(
        self,
        clock: Clock,
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
        """Beat, if it is time."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + EVERY_MS
            self.beat()

    def beat(self) -> None:
        """Beat now: when something has changed that others wait for, and at the end."""
        view = self._look()
        self._ask_ends(view)
        self._tally.replace_gauges(self._gauges(view))
        self._send(_health(view))

    def taking_over(self) -> None:
        """The group has given us partitions, or all that were ours are taken over anew."""
        if self._taking_over_since_ms is None:
            self._taking_over_since_ms = self._clock.monotonic_ms()

    def serving(self) -> None:
        """All of them are taken over and replayed."""
        if self._taking_over_since_ms is not None:
            took_ms = self._clock.monotonic_ms() - self._taking_over_since_ms
            self._taking_over_since_ms = None
            self._tally.observe(TAKEOVER_SECONDS, took_ms / 1000)
        self.beat()

    def _ask_ends(self, view: View) -> None:
        """Note where the intakes ended when this was asked last, and ask again; never waits."""
        if self._asked is not None and self._asked.done:
            self._ends = self._asked.answers()
            self._asked = None
        if self._asked is None and view.states:
            self._asked = self._offsets.ask_ends(view.states)

    def _gauges(self, view: View) -> dict[Key, float]:
        gauges: dict[Key, float] = {
            (ASSIGNED.name,): len(view.states) + view.waiting,
            (REPLAYING.name,): view.replaying,
            (HELD_BYTES.name,): sum(state.held_bytes for state in view.states.values()),
            (BUDGET_BYTES.name,): self._budget_bytes,
        }
        for place, state in view.states.items():
            waiting = (WAITING.name, place[0])
            gauges[waiting] = gauges.get(waiting, 0) + state.held
            for level, messages in state.overflow.in_buckets.items():
                far = (IN_BUCKETS.name, place[0], str(level))
                gauges[far] = gauges.get(far, 0) + messages
            if state.overflow.slots:
                gauges[UNEMPTIED.name, place[0], str(place[1])] = len(state.overflow.done)
            for target, messages in state.parked.by_target().items():
                parked = (PARKED.name, place[0], target)
                gauges[parked] = gauges.get(parked, 0) + messages
            if (end := self._ends.get(place)) is not None:
                gauges[LAG.name, place[0], str(place[1])] = max(0, end - state.position)
        return gauges


class PulsingReader(Reader):
    """Reads a journal in a take-over, which may be long: the loop does not go round meanwhile, and yet nothing hangs.

    Args:
        cluster: see `Reader`.
        on_warning: see `Reader`.
        pulse: beats at each read.
        watch: see `Reader`.
    """

    def __init__(
        self, cluster: Cluster, on_warning: Callable[[str], None], pulse: Pulse, watch: StallWatch | None = None
    ) -> None:
        super().__init__(cluster, on_warning, watch=watch)
        self._pulse = pulse

    def read(self, most: int, timeout_s: float) -> tuple[Sequence[Message], Mapping[Place, int]]:
        """Read, as `Reader` does, and beat."""
        self._pulse.turn()
        return super().read(most, timeout_s)


def _health(view: View) -> Health:
    if not view.joined:
        return Health(ready=False, why="the group has not said yet which partitions are its own")
    if view.waiting:
        return Health(ready=False, why=f"{view.waiting} partitions are to be taken over")
    if replaying := view.replaying:
        return Health(ready=False, why=f"{replaying} partitions are being replayed")
    return Health(ready=True, why="")
