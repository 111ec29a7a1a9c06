"""Rates and lateness of the last minutes, from the results of an intake.

Each look reads the results that were written since the last one, and at most `MOST` of them: if there are more, the
last ones stand for all. Nobody looks: nothing is read. The memory is that of some targets and slots of time.

    slot of 5 s        12:00:00     12:00:05     12:00:10
    orders             40, worst 3  38, worst 9  41, worst 2        messages and lateness in ms
"""

import json
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tarry.headers import Outcome
from tarry.kafka.inspector import Inspector
from tarry.kafka.topics import RESULTS

if TYPE_CHECKING:
    from tarry.kafka.types import Place

SLOT_MS: Final = 5_000
SLOTS: Final = 120
"""Ten minutes."""

MINUTE_SLOTS: Final = 12
MOST: Final = 5_000
"""How many results of a partition a look reads at most."""

MOST_TARGETS: Final = 100
LOOK_BACK_MS: Final = 60_000

BOUNDS_MS: Final = tuple(sorted({round(10 ** (step / 8)) for step in range(8 * 9)}))
"""The upper bounds of classes of lateness: a third wider each, from 1 ms to eleven days."""


class Fired(NamedTuple):
    """A delivery, as its result tells."""

    target: str
    due_ms: int
    at_ms: int


@dataclass(slots=True)
class Slot:
    """The deliveries to a target in a slot of time."""

    count: float = 0.0
    worst_ms: int = 0
    classes: dict[int, float] = field(default_factory=dict)


class Figures(NamedTuple):
    """The last minute's deliveries to a target.

    Attributes:
        per_s: messages a second.
        p50_ms: half were at most this late, to within a third.
        p99_ms: 99 of 100 were at most this late, to within a third.
        worst_ms: how late the latest one was.
    """

    per_s: float
    p50_ms: int | None
    p99_ms: int | None
    worst_ms: int | None


NOTHING: Final = Figures(0.0, None, None, None)


class Recent:
    """The deliveries of the last minutes of an intake; pure."""

    def __init__(self) -> None:
        self._slots: OrderedDict[str, dict[int, Slot]] = OrderedDict()
        self.last_ms: dict[str, int] = {}
        """The last delivery to each target."""
        self.since_ms: int | None = None
        """Since when deliveries are known."""

    def take(self, fired: Iterable[Fired], weight: float = 1.0) -> None:
        """Take deliveries; each stands for `weight` of them."""
        for target, due_ms, at_ms in fired:
            of_target = self._slots.setdefault(target, {})
            self._slots.move_to_end(target)
            slot = of_target.setdefault(at_ms // SLOT_MS, Slot())
            late_ms = max(at_ms - due_ms, 0)
            slot.count += weight
            slot.worst_ms = max(slot.worst_ms, late_ms)
            number = min(bisect_left(BOUNDS_MS, late_ms), len(BOUNDS_MS) - 1)
            slot.classes[number] = slot.classes.get(number, 0.0) + weight
            self.last_ms[target] = max(at_ms, self.last_ms.get(target, 0))
        while len(self._slots) > MOST_TARGETS:
            gone, _ = self._slots.popitem(last=False)
            del self.last_ms[gone]

    def forget(self, now_ms: int) -> None:
        """Forget slots that are over for long."""
        oldest = now_ms // SLOT_MS - SLOTS
        for slots in self._slots.values():
            for number in [number for number in slots if number < oldest]:
                del slots[number]

    @property
    def targets(self) -> list[str]:
        """The targets to which something was delivered."""
        return sorted(self._slots)

    def figures(self, target: str, now_ms: int) -> Figures:
        """Return the figures of the last whole minute."""
        last = now_ms // SLOT_MS
        slots = [slot for at, slot in self._slots.get(target, {}).items() if last - MINUTE_SLOTS <= at < last + 1]
        count = sum(slot.count for slot in slots)
        if not count:
            return NOTHING
        classes: defaultdict[int, float] = defaultdict(float)
        for slot in slots:
            for number, size in slot.classes.items():
                classes[number] += size
        worst_ms = max(slot.worst_ms for slot in slots)
        return Figures(
            count / (MINUTE_SLOTS * SLOT_MS / 1_000),
            min(_quantile(classes, count * 0.5), worst_ms),
            min(_quantile(classes, count * 0.99), worst_ms),
            worst_ms,
        )

    def series(self, now_ms: int) -> dict[str, list[tuple[int, float, int]]]:
        """Return for each target when a slot began, messages a second, and the worst lateness; also empty slots.

        It begins with the first slot that is known whole, ten minutes ago at most.
        """
        last = now_ms // SLOT_MS
        first = max(last - SLOTS + 1, -(-(self.since_ms or 0) // SLOT_MS))
        found = {}
        for target, slots in self._slots.items():
            points = ((at, slots.get(at, Slot())) for at in range(first, last))
            found[target] = [(at * SLOT_MS, one.count * 1_000 / SLOT_MS, one.worst_ms) for at, one in points]
        return found


def _quantile(classes: Mapping[int, float], wanted: float) -> int:
    """Return the bound of the class in which a number of deliveries is reached."""
    reached = 0.0
    for number in sorted(classes):
        reached += classes[number]
        if reached >= wanted:
            return BOUNDS_MS[number]
    return BOUNDS_MS[-1]


class Follower:
    """Reads the results of an intake as they come. One thread at a time.

    Args:
        intake: the intake.
    """

    def __init__(self, intake: str) -> None:
        self._topic = intake + RESULTS
        self._positions: dict[Place, int] = {}
        self.recent = Recent()

    def look(self, inspector: Inspector, partitions: int, now_ms: int) -> Recent:
        """Read what is new.

        Raises:
            BrokerError: Kafka does not answer.
        """
        logs = [(self._topic, number) for number in range(partitions)]
        ends = inspector.offsets.ends(logs, committed=True)
        new = [log for log in logs if log not in self._positions]
        if new:
            since = inspector.offsets.since(dict.fromkeys(new, now_ms - LOOK_BACK_MS))
            if self.recent.since_ms is None:
                self.recent.since_ms = now_ms - LOOK_BACK_MS
            self._positions |= {log: ends[log] if at < 0 else at for log, at in since.items()}
        starts = {log: max(self._positions[log], ends[log] - MOST) for log in logs}
        weights = {log: _weight(self._positions[log], starts[log], ends[log]) for log in logs}
        for log, record in inspector.records(starts, ends):
            self.recent.take(_fired(record.value()), weights[log])
        self._positions |= ends
        self.recent.forget(now_ms)
        return self.recent


def _weight(known: int, start: int, end: int) -> float:
    return (end - known) / (end - start) if start > known else 1.0


def _fired(value: bytes | None) -> Iterator[Fired]:
    try:
        found: Any = json.loads(value or b"null")
    except ValueError:  # not the service's
        return
    match found:
        case {"outcome": Outcome.FIRED.value, "target": str(target), "due_ms": int(due_ms), "at_ms": int(at_ms)}:
            yield Fired(target, due_ms, at_ms)
