"""Filing alone: messages whose delays are spread evenly over 30 days, compared with the bare relay.

N messages wait in the intake when the service starts, on the default wheel with `max_delay = "30d"`. Almost all of them
are filed, to buckets of all levels. Time from when the service has taken over its partitions until the last message is
filed. The relay forwards the same number of messages from its intake.
"""

import random
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from benches.overflow_levels import FILED, PATIENCE_S, QUIET_S, filed_by
from benches.support_kafka import PARTITIONS, Progress, preload
from benches.support_process import Service, Shape, now_ms, running
from benches.support_run import Backlog, Run
from tarry.kafka.topics import wheel_topic

SPREAD_MS: Final = 30 * 86_400_000 - 600_000
"""A little less than the longest delay: the messages are sent some minutes before the last one is read."""
SHAPE: Final = Shape("30d", {})
LEVELS: Final = 4
SEED: Final = 30


@dataclass(frozen=True, slots=True)
class Filing:
    """The figures of one round.

    Attributes:
        per_s: messages filed per second.
        cpu_us: CPU time per message, in microseconds.
    """

    per_s: float
    cpu_us: float


@dataclass(slots=True)
class Figures:
    """The figures of one service, one value for each round.

    Args:
        messages: how many messages are filed.
    """

    messages: int
    relay: list[Backlog] = field(default_factory=list)
    filing: list[Filing] = field(default_factory=list)

    def measure(self, run: Run, name: Service) -> None:
        """Measure the filing once, and the relay before it."""
        relay = run.relay_backlog(self.messages)
        filing = _file(run, name, self.messages, SEED + len(self.filing))
        self.relay.append(relay)
        self.filing.append(filing)
        run.say(
            f"{name}, spread over 30 days: {filing.per_s:,.0f} msg/s filed, {filing.cpu_us:.1f} us/msg; "
            f"relay {relay.per_s:,.0f} msg/s, {relay.cpu_us:.1f} us/msg"
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the ratio."""
        relay_per_s, per_s = (median(each.per_s for each in some) for some in (self.relay, self.filing))
        relay_us, cpu_us = (median(each.cpu_us for each in some) for some in (self.relay, self.filing))
        return [
            (
                "spread over 30 days: filing alone, msg/s",
                f"{per_s:,.0f}",
                f"relay {relay_per_s:,.0f}",
                f"{per_s / relay_per_s:.2f}",
            ),
            ("spread over 30 days: CPU us/msg", f"{cpu_us:.1f}", f"relay {relay_us:.1f}", f"{cpu_us / relay_us:.2f}"),
        ]

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "relay": [{"per_s": each.per_s, "cpu_us": each.cpu_us} for each in self.relay],
            "filing": [{"per_s": each.per_s, "cpu_us": each.cpu_us} for each in self.filing],
        }


def _file(run: Run, name: Service, messages: int, seed: int) -> Filing:
    choose = random.Random(seed)
    with run.topics(name) as (topics, _):
        with running(name, run.bootstrap, topics, run.directory, SHAPE) as service:
            start_cpu_s = service.cpu_s()  # the time of a start, in which the service creates its topics
        preload(run.bootstrap, topics, (now_ms() + choose.randrange(SPREAD_MS) for _ in range(messages)))
        levels = [
            Progress(run.bootstrap, wheel_topic(topics.intake, level), PARTITIONS) for level in range(1, LEVELS + 1)
        ]
        with running(name, run.bootstrap, topics, run.directory, SHAPE) as service:
            taken_over_ms, last_ms, last = service.taken_over_ms(), now_ms(), 0
            ends = time.monotonic() + PATIENCE_S
            while now_ms() - last_ms < QUIET_S * 1_000 or last == 0:
                if time.monotonic() > ends:
                    raise SystemExit(
                        f"nothing was filed within {PATIENCE_S:g} s" if not last else "filing does not end"
                    )
                if (found := sum(level.stable() for level in levels)) != last:
                    last_ms, last = now_ms(), found
                time.sleep(0.1)
            cpu_s = service.cpu_s() - start_cpu_s
            filed = filed_by(service)
        if filed < messages * 0.99:  # few are due so soon that they stay in memory
            raise SystemExit(f"{FILED}: {filed:,} of {messages:,}")
    return Filing(messages / (max(1, last_ms - taken_over_ms) / 1_000), cpu_s / messages * 1e6)
