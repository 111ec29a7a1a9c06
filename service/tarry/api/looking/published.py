"""What the owners of an intake's partitions publish in `I.status`, as it comes: who they are, and how they do.

A look reads the records that were written since the last one; the first one reads the last records of the log. So rates
and lateness are known for ten minutes back, also if nobody looked. Nobody looks: nothing is read. The memory is that of
some targets and minutes.

    period of owner a    12:00:00 to 12:00:05    orders 40 messages, p99 3 ms    mail 2 messages, p99 9 ms
    period of owner b    12:00:01 to 12:00:06    orders 38 messages, p99 5 ms
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from confluent_kafka import Message

from tarry.core.request.figures import DeliveredFigures, Figures, ParkedFigures
from tarry.core.request.status import Status, parsed_status
from tarry.kafka.broker_time import ComparedClock
from tarry.kafka.inspector import Inspector
from tarry.kafka.topics import STATUS

SLOT_MS: Final = 5_000
SLOTS: Final = 120
KEPT_MS: Final = SLOT_MS * SLOTS
"""How far back deliveries are known: ten minutes."""

MINUTE_MS: Final = 60_000
STALE_MS: Final = 60_000
"""From which age on figures are old: an owner to which nothing happens publishes them every half minute."""

MOST: Final = 20_000
"""How many records a look reads at most: the last ones. All owners publish all their partitions again and again."""


class Period(NamedTuple):
    """What a process has delivered in a period of some seconds.

    Attributes:
        from_ms: when it began.
        until_ms: when it ended.
        targets: the deliveries.
    """

    from_ms: int
    until_ms: int
    targets: tuple[DeliveredFigures, ...]

    def share(self, from_ms: int, until_ms: int) -> float:
        """Return which part of it lies in a range of time, from 0 to 1."""
        inside = min(until_ms, self.until_ms) - max(from_ms, self.from_ms)
        return max(0, inside) / (self.until_ms - self.from_ms)


class Lately(NamedTuple):
    """The deliveries to a target in the last known minute.

    Attributes:
        per_s: messages a second.
        p50_ms: half were at most this late.
        p99_ms: 99 of 100 were at most this late.
        worst_ms: how late the latest one was.
    """

    per_s: float = 0.0
    p50_ms: int | None = None
    p99_ms: int | None = None
    worst_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """What the owners of an intake's partitions have published; pure.

    Attributes:
        statuses: the last status of each partition.
        figures: the last figures of each partition, whoever published them.
        periods: of the last ten minutes, by their ends.
    """

    statuses: Mapping[int, Status] = field(default_factory=dict)
    figures: Mapping[int, Figures] = field(default_factory=dict)
    periods: Sequence[Period] = ()

    @property
    def as_of_ms(self) -> int | None:
        """When the last figures were published; None: never."""
        return max((one.at_ms for one in self.figures.values()), default=None)

    @property
    def targets(self) -> list[str]:
        """The targets to which something was delivered."""
        return sorted({one.target for period in self.periods for one in period.targets})

    def last_ms(self, target: str) -> int | None:
        """Return when the last period ended in which something was delivered to a target."""
        ends = (one.until_ms for one in reversed(self.periods) if any(each.target == target for each in one.targets))
        return next(ends, None)

    def lately(self, target: str) -> Lately:
        """Return the figures of the last known minute.

        Of several processes and periods the largest p50 and p99 count: so many of all messages were at most so late.
        """
        until_ms = self.as_of_ms or 0
        count, found = 0.0, []
        for period in self.periods:
            if share := period.share(until_ms - MINUTE_MS, until_ms):
                mine = [one for one in period.targets if one.target == target]
                count += share * sum(one.messages for one in mine)
                found += mine
        if not found:
            return Lately()
        return Lately(
            count * 1_000 / MINUTE_MS,
            max(one.p50_ms for one in found),
            max(one.p99_ms for one in found),
            max(one.worst_ms for one in found),
        )

    def series(self) -> dict[str, list[tuple[int, float, int]]]:
        """Return for each target when a slot began, messages a second, and the worst lateness; also empty slots.

        It ends with the last slot that is known whole, and begins a minute before at least.
        """
        if (as_of_ms := self.as_of_ms) is None:
            return {}
        last = as_of_ms // SLOT_MS
        earliest = min((one.from_ms for one in self.periods), default=as_of_ms) // SLOT_MS
        first = max(last - SLOTS, min(last - MINUTE_MS // SLOT_MS, earliest))
        counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
        worst: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for period in self.periods:
            for at in range(max(first, period.from_ms // SLOT_MS), min(last, -(-period.until_ms // SLOT_MS))):
                share = period.share(at * SLOT_MS, (at + 1) * SLOT_MS)
                for one in period.targets:
                    counts[one.target][at] += share * one.messages  # type: ignore[assignment]
                    worst[one.target][at] = max(worst[one.target][at], one.worst_ms)
        return {
            target: [
                (at * SLOT_MS, counts[target][at] * 1_000 / SLOT_MS, worst[target][at]) for at in range(first, last)
            ]
            for target in self.targets
        }

    def parked(self) -> Iterator[ParkedFigures]:
        """Return what is parked in each partition: in memory, and in the parked log."""
        for one in self.figures.values():
            yield from one.parked

    def standing_by(self, place: str) -> list[str]:
        """Return the processes that keep the state of a partition, as `topic/partition`."""
        return sorted({one.owner for one in self.statuses.values() if place in _standby(one)})

    def clocks(self, now_ms: int) -> list[ComparedClock]:
        """Return the clocks of the owners' machines, as far as their figures are not old."""
        found = []
        for number, status in self.statuses.items():
            figures = self.figures.get(number)
            if figures is None or is_stale(figures.at_ms, now_ms) or figures.process.clock_skew_ms is None:
                continue
            host = figures.process.host or status.owner
            found.append(ComparedClock(host, figures.process.clock_skew_ms, figures.at_ms))
        return last_of_hosts(found)


def last_of_hosts(clocks: Iterable[ComparedClock]) -> list[ComparedClock]:
    """Return the last one of each host, by its name."""
    last: dict[str, ComparedClock] = {}
    for one in clocks:
        if one.host not in last or last[one.host].at_ms < one.at_ms:
            last[one.host] = one
    return sorted(last.values())


def is_stale(at_ms: int | None, now_ms: int) -> bool:
    """Whether figures are so old that their owner may be gone."""
    return at_ms is not None and now_ms - at_ms > STALE_MS


def _standby(status: Status) -> tuple[str, ...]:
    return () if status.figures is None else status.figures.process.standby


class Follower:
    """Reads what owners publish as it comes. One thread at a time.

    Args:
        intake: the intake.
        on_warning: takes the text of a record that cannot be read.
    """

    def __init__(self, intake: str, on_warning: Callable[[str], None]) -> None:
        self._log = (intake + STATUS, 0)
        self._on_warning = on_warning
        self._position: int | None = None
        self._statuses: dict[int, Status] = {}
        self._figures: dict[int, Figures] = {}
        self._periods: dict[tuple[str, int], Period] = {}
        """By the owner, and when it published them: the records of all its partitions say the same."""

    def look(self, inspector: Inspector, partitions: int, now_ms: int) -> Published:
        """Read what is new; return what is known of an intake with a number of partitions.

        Raises:
            BrokerError: Kafka does not answer.
        """
        log = self._log
        if partitions and inspector.offsets.existing([log]):
            start, end = inspector.offsets.starts([log])[log], inspector.offsets.ends([log], committed=True)[log]
            known = self._position
            if known is None or known > end:  # not read yet, or made again
                known = start
            at = max(known, start, end - MOST)
            for _, record in inspector.records({log: at}, {log: end}) if at < end else ():
                self.take(record)
            self._position = end
        return self.published(partitions, now_ms)

    def take(self, record: Message) -> None:
        """Take a record, in the order of the log."""
        if (value := record.value()) is None:  # such as those of `broker_time`
            return
        try:
            status = parsed_status(value)
        except ValueError as error:
            self._on_warning(f"{self._log[0]}: key {record.key()!r}: {error}")
            return
        self._statuses[status.partition] = status
        figures = status.figures
        if figures is not None:
            self._figures[status.partition] = figures
            process = figures.process
            from_ms = figures.at_ms - max(1, process.period_ms)
            self._periods[status.owner, figures.at_ms] = Period(from_ms, figures.at_ms, process.targets)

    def published(self, partitions: int, now_ms: int) -> Published:
        """Return what is known now; forget what is over for long."""
        oldest_ms = now_ms - KEPT_MS
        self._periods = {key: one for key, one in self._periods.items() if one.until_ms > oldest_ms}
        return Published(
            {number: one for number, one in self._statuses.items() if number < partitions},
            {number: one for number, one in self._figures.items() if number < partitions},
            tuple(sorted(self._periods.values(), key=lambda one: one.until_ms)),
        )
