"""Messages that are due in 2 s, sent within and behind a burst of messages for next month, to the same intake.

One producer sends as fast as it can; every thousandth message is due in 2 s. The lateness of these is compared with
that of a bare reader of the intake, which reads the same records in the same run: no service can have them earlier.
"""

import time
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from benches.support_kafka import Topics, load_producer, produce
from benches.support_process import Service, Shape, now_ms, running
from benches.support_run import Run

DAY_MS: Final = 86_400_000
FAR_MS: Final = 28 * DAY_MS
SOON_MS: Final = 2_000
ONE_OF: Final = 1_000
SOON: Final = "soon"
SHAPE: Final = Shape("30d", {})
PATIENCE_S: Final = 300.0
QUIET_S: Final = 5.0

Kind = dict[str, Any]
"""p50_ms, p99_ms, max_ms, early, judged."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The figures of one round.

    Attributes:
        sent_per_s: how many messages the producer sent in a second.
        reader: when the bare reader had those that are due soon, as lateness; negative if before their due time.
        service: their lateness at the target.
    """

    sent_per_s: float
    reader: Kind
    service: Kind

    @property
    def later_ms(self) -> int:
        """How much later the service's 99th percentile is than the bare reader's, of which none is before 0."""
        return int(self.service["p99_ms"]) - max(0, int(self.reader["p99_ms"]))


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one service.

    Args:
        messages: the size of the burst.
        rounds: those of each round.
    """

    messages: int
    rounds: list[Burst] = field(default_factory=list)

    def measure(self, run: Run, name: Service) -> None:
        """Send the burst once."""
        self.rounds.append(_measure(run, name, self.messages))

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the difference."""
        per_s = median(each.sent_per_s for each in self.rounds)
        service, reader = (
            ", ".join(str(round(median(kind[name] for kind in kinds))) for name in ("p50_ms", "p99_ms", "max_ms"))
            for kinds in ([each.service for each in self.rounds], [each.reader for each in self.rounds])
        )
        burst = f"burst of {self.messages:,} for next month, {per_s:,.0f}/s"
        return [
            (
                f"due in 2 s, in a {burst}, ms: p50, p99, worst",
                service,
                f"bare reader {reader}",
                f"p99 {median(each.later_ms for each in self.rounds):+.0f}",
            )
        ]

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {"messages": self.messages, "rounds": [asdict(each) for each in self.rounds]}


def _measure(run: Run, name: Service, messages: int) -> Burst:
    with run.topics(name) as (topics, progress):
        with running(name, run.bootstrap, topics, run.directory, SHAPE) as service:
            service.taken_over_ms()
            bare, reader = (run.child("support_reader", topic) for topic in (topics.intake, topics.target))
            began_s = time.monotonic()
            soon = _send(run.bootstrap, topics, messages)
            per_s = messages / (time.monotonic() - began_s)
            progress.settled(QUIET_S, PATIENCE_S, every_s=0.1)
            found, seen = (run.ask_lateness(each)["marked"][SOON] for each in (reader, bare))
        run.all_arrived(topics, soon)
    if seen["judged"] != soon:
        raise SystemExit(f"the bare reader had {seen['judged']:,} of {soon:,} messages that are due soon")
    burst = Burst(per_s, seen, found)
    run.say(
        f"{name}, burst: {per_s:,.0f} msg/s sent; due soon: {found}; bare reader: {seen}; p99 {burst.later_ms:+d} ms"
    )
    return burst


def _send(bootstrap: str, topics: Topics, messages: int) -> int:
    """Send the burst; return how many of its messages are due soon."""
    producer = load_producer(bootstrap)
    soon = 0
    for number in range(messages):
        if number % ONE_OF == ONE_OF - 1:
            produce(producer, topics, number, ("tarry-deliver-at", str(now_ms() + SOON_MS)), SOON)
            soon += 1
        else:
            produce(producer, topics, number, ("tarry-deliver-at", str(now_ms() + FAR_MS)))
    producer.flush()
    return soon
