"""The lateness of messages in memory while other messages are filed, moved down and drained.

The same load runs twice on the same wheel: 10,000 messages a second with delays of 100 to 450 ms. These messages stay
in memory, because this wheel closes a bucket half a second before its time. The second time, other messages go through
buckets of all levels. Their delays are 3 to 40 s; the levels have buckets of 2, 4 and 8 s and reach about 12, 28 and 50
s ahead. The load lasts until the last of these messages is due.

A read_committed reader in a separate process measures for each kind: p50, p99, maximum, and how many were early. With
several rounds, the medians of these count.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from benches.support_process import Service, Shape, running
from benches.support_run import Run

HOT_RATE: Final = 10_000
HOT_DELAYS_MS: Final = (100, 450)
FAR_RATE: Final = 2_000
FAR_DELAYS_MS: Final = (3_000, 40_000)
FAR_FIRST: Final = 1 << 28
SHAPE: Final = Shape("40s", {"from": "2s", "width": "2s", "size": 2})
HOT, FAR = "hot", "far"

Kind = dict[str, Any]
"""p50_ms, p99_ms, max_ms, early, judged."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """The figures of one round.

    Attributes:
        alone: messages in memory, without other messages.
        beside: messages in memory, with other messages in buckets.
        far: the messages that went through buckets.
    """

    alone: Kind
    beside: Kind
    far: Kind


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one service.

    Args:
        seconds: how long the load lasts in the first run, and how long messages for buckets are sent in the second.
    """

    seconds: float
    rounds: list[Lateness] = field(default_factory=list)

    def measure(self, run: Run, name: Service) -> None:
        """Measure both loads once."""
        alone = _late(run, name, self.seconds, 0.0)
        beside = _late(run, name, self.seconds + FAR_DELAYS_MS[1] / 1_000, self.seconds)
        self.rounds.append(Lateness(alone[HOT], beside[HOT], beside[FAR]))

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the ratio of p50 and p99."""
        late = f"lateness at {HOT_RATE:,} msg/s, ms: "
        alone, beside, far = ([getattr(each, kind) for each in self.rounds] for kind in ("alone", "beside", "far"))
        made = [(f"{late}p50, p99, worst", _three(alone), "nothing in buckets", "")]
        for name, kinds in ((f"{late}{FAR_RATE:,} msg/s in buckets", beside), (f"{late}those of buckets", far)):
            if all(kind["judged"] for kind in kinds):
                ratios = (
                    median(kind[each] / max(1, one[each]) for kind, one in zip(kinds, alone, strict=True))
                    for each in ("p50_ms", "p99_ms")
                )
                made.append((name, _three(kinds), _three(alone), ", ".join(f"{ratio:.2f}" for ratio in ratios)))
        early, judged = (sum(kind[each] for kind in (*alone, *beside, *far)) for each in ("early", "judged"))
        return [*made, ("early", str(early), f"of {judged:,}", "")]

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {"rounds": [asdict(each) for each in self.rounds]}


def _three(kinds: Sequence[Kind]) -> str:
    """The medians of p50, p99 and the worst."""
    return ", ".join(f"{median(kind[each] for kind in kinds):g}" for each in ("p50_ms", "p99_ms", "max_ms"))


def _late(run: Run, name: Service, hot_s: float, far_s: float) -> dict[str, Kind]:
    with run.topics(name) as (topics, progress):
        with running(name, run.bootstrap, topics, run.directory, SHAPE):
            reader = run.read_lateness(topics)
            loads = [run.load(topics, HOT_RATE, hot_s, HOT_DELAYS_MS, "--mark", HOT)]
            if far_s:
                far = ("--mark", FAR, "--first", str(FAR_FIRST))
                loads.append(run.load(topics, FAR_RATE, far_s, FAR_DELAYS_MS, *far))
            progress.settled(3.0, hot_s + 120, every_s=0.1)
            sent = sum(run.told(load)["sent"] for load in loads)
            figures: dict[str, Kind] = run.ask_lateness(reader)["marked"]
        run.all_arrived(topics, sent)
    for mark, kind in figures.items():
        run.say(f"{name}, {mark}, with {FAR_RATE if far_s else 0:,} msg/s in buckets: {kind}")
    return figures
