"""Throughput through one level of the overflow wheel, and through three levels, compared with the bare relay.

There are two phases. Each starts the service once, and all its work waits when it starts.

1. *File*: N messages wait in the intake, all due within two seconds that are far enough ahead. Time from when the
   service has taken over its partitions until the last filing transaction is committed. Then the service ends.
2. *Bring down*: when all messages are overdue, the service starts again. It closes and drains every bucket, level by
   level, places each message again, and fires it. Time from when the service has taken over its partitions until the
   last message can be read; this includes closing empty buckets.

The rate is N divided by the sum of both times: the rate that one process sustains if it has to do both for each
message. Both phases are as after an outage, so the service never waits for a due time or for its even pace. A message
of one level is read twice and written twice, a message of three levels four times. The relay reads and writes each
message once. Both write a result.

The service counts how often a message is filed, and the benchmark prints it beside the rate. The level of a message
depends on the time when it is read, so on a much slower machine messages could go through other levels than planned.
"""

import time
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from benches.support_kafka import PARTITIONS, Progress, preload
from benches.support_process import Running, Service, Shape, now_ms, running
from benches.support_run import Backlog, Run
from tarry.kafka.topics import wheel_topic

FILED: Final = "tarry_filed_messages_total"
WITHIN_MS: Final = 2_000  # milliseconds between the first due time and the last
PRELOAD_PER_S: Final = 50_000
FILE_PER_S: Final = 15_000
START_MS: Final = 4_000
QUIET_S: Final = 3.0
PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Way:
    """The path of the messages through the overflow wheel.

    Args:
        levels: the number of levels that a message goes through.
        shape: the shape of the wheel.
        ahead_ms: how far ahead a message must be due when it is read.
        grid_ms: the width of a bucket of the highest level on the path.
        into_ms: when the two seconds begin, from the start of such a bucket.
    """

    levels: int
    shape: Shape
    ahead_ms: int
    grid_ms: int
    into_ms: int

    def first_due_ms(self, messages: int) -> int:
        """Return the first due time for this number of messages, none of which is produced yet."""
        read_ms = now_ms() + START_MS + messages * 1_000 // PRELOAD_PER_S + messages * 1_000 // FILE_PER_S
        earliest = read_ms + self.ahead_ms - self.into_ms
        return -(-earliest // self.grid_ms) * self.grid_ms + self.into_ms


def ways(messages: int) -> tuple[Way, Way]:
    """Paths through one level and three, on wheels that are wide enough for this number of messages."""
    width_s = -(-messages // 200_000)
    return _one(5 * width_s), _three(width_s)


def _one(width_s: int) -> Way:
    """The only level takes all that memory does not hold, which reaches less than two widths ahead."""
    overflow = {"from": f"{width_s}s", "width": f"{width_s}s", "size": 10}
    return Way(1, Shape(f"{19 * width_s}s", overflow), 2_000 * width_s + 4_000, 1_000 * width_s, 0)


def _three(width_s: int) -> Way:
    """Buckets of 1, 3 and 9 widths: level 2 reaches 13.5 widths ahead at most, and level 3 takes the rest.

    A bucket is closed half a width before its time, and level 2 reaches less far then than that bucket begins. So each
    message goes to level 2, and from there to level 1 in the same way.
    """
    overflow = {"from": f"{width_s}s", "width": f"{width_s}s", "size": 3}
    return Way(3, Shape(f"{54 * width_s}s", overflow), 16_000 * width_s, 9_000 * width_s, 7_000 * width_s)


@dataclass(frozen=True, slots=True)
class Passage:
    """The figures of one path.

    Attributes:
        file_per_s: messages per second in the first phase.
        down_per_s: messages per second in the second phase.
        cpu_us: CPU time per message in both phases, in microseconds.
        levels: how often a message was filed, on average.
    """

    file_per_s: float
    down_per_s: float
    cpu_us: float
    levels: float

    @property
    def per_s(self) -> float:
        """Messages per second over both phases."""
        return 1 / (1 / self.file_per_s + 1 / self.down_per_s)


@dataclass(slots=True)
class Figures:
    """The figures of one service, one value for each round.

    Args:
        messages: how many messages go through the levels.
    """

    messages: int
    relay: list[Backlog] = field(default_factory=list)
    passages: dict[int, list[Passage]] = field(default_factory=dict)

    def measure(self, run: Run, name: Service) -> None:
        """Measure both paths once, and the relay before each."""
        for way in ways(self.messages):
            relay = run.relay_backlog(self.messages)
            self.relay.append(relay)
            run.say(f"relay, backlog of {self.messages:,}: {relay.per_s:,.0f} msg/s, {relay.cpu_us:.1f} us/msg")
            passage = _pass(run, name, way, self.messages)
            self.passages.setdefault(way.levels, []).append(passage)
            run.say(
                f"{name}, through {way.levels}: {passage.per_s:,.0f} msg/s ({passage.file_per_s:,.0f} filed, "
                f"{passage.down_per_s:,.0f} down), {passage.cpu_us:.1f} us/msg, filed {passage.levels:.2f} times"
            )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rows of the table: figure, value, the value that it is compared with, and the ratio."""
        relay_per_s = median(each.per_s for each in self.relay)
        relay_us = median(each.cpu_us for each in self.relay)
        made = [("bare relay, msg/s", f"{relay_per_s:,.0f}", f"{relay_us:.1f} us/msg", "")]
        for levels, passages in self.passages.items():
            per_s = median(each.per_s for each in passages)
            cpu_us = median(each.cpu_us for each in passages)
            filed = median(each.levels for each in passages)
            name = f"through {levels} level{'s' if levels > 1 else ''}"
            made += [
                (f"{name}, msg/s (filed {filed:.2f} times)", f"{per_s:,.0f}", "relay", f"{per_s / relay_per_s:.2f}"),
                (f"{name}: filing alone", *_against(median(each.file_per_s for each in passages), relay_per_s)),
                (f"{name}: bringing down alone", *_against(median(each.down_per_s for each in passages), relay_per_s)),
                (f"{name}: CPU us/msg", f"{cpu_us:.1f}", f"relay {relay_us:.1f}", f"{cpu_us / relay_us:.2f}"),
            ]
        return made

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {
            "relay": [{"per_s": each.per_s, "cpu_us": each.cpu_us} for each in self.relay],
            "levels": {
                str(levels): [
                    {
                        "per_s": each.per_s,
                        "file_per_s": each.file_per_s,
                        "down_per_s": each.down_per_s,
                        "cpu_us": each.cpu_us,
                        "filed_times": each.levels,
                    }
                    for each in passages
                ]
                for levels, passages in self.passages.items()
            },
        }


def _against(per_s: float, relay_per_s: float) -> tuple[str, str, str]:
    return f"{per_s:,.0f}", "relay", f"{per_s / relay_per_s:.2f}"


def _pass(run: Run, name: Service, way: Way, messages: int) -> Passage:
    with run.topics(name) as (topics, progress):
        with running(name, run.bootstrap, topics, run.directory, way.shape) as service:
            start_cpu_s = service.cpu_s()  # the time of a start, in which the service creates its topics
        first_due_ms = way.first_due_ms(messages)
        dues = (first_due_ms + number * WITHIN_MS // messages for number in range(messages))
        preload(run.bootstrap, topics, dues)
        buckets = Progress(run.bootstrap, wheel_topic(topics.intake, way.levels), PARTITIONS)
        before = buckets.stable()
        with running(name, run.bootstrap, topics, run.directory, way.shape) as service:
            file_s = _time(service, buckets, before)
            cpu_s = service.cpu_s()
            filed = wait_filed(service, messages, 2.0)
        while now_ms() < first_due_ms + WITHIN_MS:
            time.sleep(0.05)
        before = progress.stable()
        with running(name, run.bootstrap, topics, run.directory, way.shape) as service:
            down_s = _time(service, progress, before)
            cpu_s += service.cpu_s()
            filed += filed_by(service)
        run.all_arrived(topics, messages)
    return Passage(messages / file_s, messages / down_s, (cpu_s - 2 * start_cpu_s) / messages * 1e6, filed / messages)


def _time(service: Running, progress: Progress, before: int) -> float:
    """Return the seconds from the take-over until the last record of a topic; wait until the topic does not grow."""
    moves = progress.settled(QUIET_S, PATIENCE_S, since=before)
    if len(moves) < 2:
        raise SystemExit(f"no record has come within {PATIENCE_S:g} s")
    return max(1, moves[-1][0] - service.taken_over_ms()) / 1_000


def wait_filed(service: Running, messages: int, patience_s: float = PATIENCE_S) -> int:
    """Wait until this run of the service has filed a number of messages; return the number that it has filed.

    Raises:
        SystemExit: it has not done so within `patience_s` seconds.
    """
    ends = time.monotonic() + patience_s
    while (filed := filed_by(service)) < messages:
        if time.monotonic() > ends:
            raise SystemExit(f"{filed:,} of {messages:,} messages are filed after {patience_s:g} s")
        time.sleep(0.1)
    return filed


def filed_by(service: Running) -> int:
    """Return how many messages this run of the service has filed, by its metrics, which are a second or two old."""
    if service.serve is None:
        raise TypeError("only the service files")
    return round(service.serve.metric(FILED))
