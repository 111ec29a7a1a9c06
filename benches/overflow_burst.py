"""Messages that are due in 2 s, sent within and behind a burst of messages for next month, to the same intake.

One producer sends as fast as it can; every thousandth message is due in 2 s. The lateness of these is compared with
that of a bare reader of the intake, which reads the same records in the same run: no service can have them earlier.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from benches.support_kafka import Topics, load_producer, produce
from benches.support_process import Shape, now_ms, running
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
class Figures:
    """The figures.

    Attributes:
        messages: the size of the burst.
        sent_per_s: how many messages the producer sent in a second.
        reader: when the bare reader had those that are due soon, as lateness; negative if before their due time.
        service: their lateness at the target.
    """

    messages: int
    sent_per_s: float
    reader: Kind
    service: Kind

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the difference."""
        later_ms = self.service["p99_ms"] - max(0, self.reader["p99_ms"])
        burst = f"burst of {self.messages:,} for next month, {self.sent_per_s:,.0f}/s"
        return [
            (
                f"due in 2 s, in a {burst}, ms: p50, p99, worst",
                f"{self.service['p50_ms']}, {self.service['p99_ms']}, {self.service['max_ms']}",
                f"bare reader {self.reader['p50_ms']}, {self.reader['p99_ms']}, {self.reader['max_ms']}",
                f"p99 {later_ms:+d}",
            )
        ]

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "messages": self.messages,
            "sent_per_s": self.sent_per_s,
            "reader": self.reader,
            "service": self.service,
        }


def measure(run: Run, messages: int) -> Figures:
    """Measure.

    Args:
        run: the run.
        messages: the size of the burst.
    """
    with run.topics("service") as (topics, progress):
        with running("service", run.bootstrap, topics, run.directory, SHAPE) as service:
            service.taken_over_ms()
            bare, reader = (run.child("support_reader", topic) for topic in (topics.intake, topics.target))
            began_s = time.monotonic()
            soon = _burst(run.bootstrap, topics, messages)
            per_s = messages / (time.monotonic() - began_s)
            progress.settled(QUIET_S, PATIENCE_S, every_s=0.1)
            found, seen = (run.ask_lateness(each)["marked"][SOON] for each in (reader, bare))
        run.all_arrived(topics, soon)
    if seen["judged"] != soon:
        raise SystemExit(f"the bare reader had {seen['judged']:,} of {soon:,} messages that are due soon")
    figures = Figures(messages, per_s, seen, found)
    run.say(f"burst: {per_s:,.0f} msg/s sent; due soon: {found}; bare reader: {seen}")
    return figures


def _burst(bootstrap: str, topics: Topics, messages: int) -> int:
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
