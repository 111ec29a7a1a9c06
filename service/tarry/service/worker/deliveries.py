"""What the process has delivered, by intake and target, for the figures that it publishes.

Counting is done for each batch. Of a batch, at most `SAMPLED` messages of each target are looked at for the quantiles,
at even distances, and always the first, which has been due for longest.
"""

from collections import Counter, defaultdict

from tarry.core.message import HeldMessage
from tarry.core.request.figures import MOST_TARGETS, DeliveredFigures, quantile
from tarry.service.worker.batches import Batches

SAMPLED = 16
MOST_SAMPLES = 4_096
"""The most samples of a target in a period."""

_Way = tuple[str, str]
"""An intake and a target."""


class Deliveries:
    """Counts deliveries; for one thread."""

    def __init__(self) -> None:
        self.total = 0
        """How many messages were delivered since the start."""
        self._counts: Counter[_Way] = Counter()
        self._samples: defaultdict[_Way, list[int]] = defaultdict(list)
        self._worst: dict[_Way, int] = {}

    def note(self, batches: Batches, now_ms: int) -> None:
        """Count the messages of a transaction that has committed.

        Args:
            batches: the batches that it completed.
            now_ms: when it had committed; wall time.
        """
        for state, batch in batches:
            if not (due := batch.due):
                continue
            self.total += len(due)
            first = due[0].target
            if all(message.target == first for message in due):
                self._note((state.intake, first), due, now_ms)
                continue
            by_target: defaultdict[str, list[HeldMessage]] = defaultdict(list)
            for message in due:
                by_target[message.target].append(message)
            for target, messages in by_target.items():
                self._note((state.intake, target), messages, now_ms)

    def _note(self, way: _Way, messages: list[HeldMessage], now_ms: int) -> None:
        self._counts[way] += len(messages)
        worst_ms = max(0, now_ms - messages[0].due_ms)
        self._worst[way] = max(worst_ms, self._worst.get(way, 0))
        samples = self._samples[way]
        if len(samples) < MOST_SAMPLES:
            step = -(-len(messages) // SAMPLED)
            samples += [max(0, now_ms - message.due_ms) for message in messages[::step]]

    def period(self) -> dict[str, tuple[DeliveredFigures, ...]]:
        """Return the deliveries since the last call, by intake: of each target, those with the most messages first."""
        counts, samples, worst = self._counts, self._samples, self._worst
        self._counts, self._samples, self._worst = Counter(), defaultdict(list), {}
        found: defaultdict[str, list[DeliveredFigures]] = defaultdict(list)
        for way, messages in counts.most_common():
            intake, target = way
            if len(found[intake]) < MOST_TARGETS:
                ordered = sorted(samples[way])
                p50_ms, p99_ms = quantile(ordered, 0.5), quantile(ordered, 0.99)
                found[intake].append(DeliveredFigures(target, messages, p50_ms, p99_ms, worst[way]))
        return {intake: tuple(of_intake) for intake, of_intake in found.items()}
