"""The judge of the promises: never early, once, and in order. The tests, the simulation and the demo share it.

It is pure, and takes one message or record at a time, so that it can judge complete lists as well as a stream. Its
callers know what was sent, what arrived, and which messages were accepted, that is, read by their partition's owner,
before they were due. The simulation knows this exactly; who watches a real cluster can only prove it (`Acceptance`).

A *line* is a sequence of records with one order, such as all records of one key in one partition of a target. If a
message was accepted before it was due, then no message of its line with a higher rank may precede it, except those that
were written to the target before it was accepted. A message that was accepted later has no promised place; if it is
overtaken, it is counted apart, so that a report shows how much of the order was judged.

Judging costs O(log n) for each record.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

KINDS: Final = ("lost", "twice", "early", "out of order", "damaged", "unexpected")
"""The faults that every report names, even if there are none."""
EXAMPLES: Final = 5
LEAST_JUDGED: Final = 0.3
"""The usual part of the messages that must have had a promised place in the order."""
NEVER_MS: Final = 1 << 62


class Expected(Protocol):
    """A message that must arrive; its `str` goes into reports."""

    @property
    def due_ms(self) -> int:
        """When it is due, in epoch milliseconds."""
        ...

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of its line: due time and offset in the intake."""
        ...


@dataclass(frozen=True, slots=True)
class Lateness:
    """Percentiles (nearest rank) of the time from due to seen, in milliseconds; None without a single message."""

    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None

    def __str__(self) -> str:
        shown = ("-" if value is None else value for value in (self.p50_ms, self.p99_ms, self.max_ms))
        return "late p50 {} p99 {} max {} ms".format(*shown)


@dataclass(slots=True)
class Report:
    """The findings of a comparison.

    Attributes:
        sent: the number of messages that had to arrive.
        judged: how many messages had a promised place in an order.
        overtaken: how many others were overtaken.
        faults: the faults of each kind, in words.
        late_ms: how many records arrived how many milliseconds late.
    """

    sent: int = 0
    judged: int = 0
    overtaken: int = 0
    faults: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    late_ms: Counter[int] = field(default_factory=Counter)

    def add(self, kind: str, text: str) -> None:
        """Add a fault."""
        self.faults[kind].append(text)

    def count(self, kind: str) -> int:
        """Return the number of faults of a kind."""
        return len(self.faults.get(kind, ()))

    @property
    def is_clean(self) -> bool:
        """Whether there are no faults."""
        return not any(self.faults.values())

    @property
    def lateness(self) -> Lateness:
        """How late the records arrived."""
        return Lateness(*(percentile(self.late_ms, percent) for percent in (50, 99, 100)))

    def assert_clean(self) -> None:
        """Do nothing if there are no faults.

        Raises:
            AssertionError: there are faults; the text is the report, with the first examples.
        """
        if not self.is_clean:
            raise AssertionError(f"promises broken\n{self}")

    def assert_kept(self, least_judged: float = LEAST_JUDGED) -> None:
        """Do nothing if there are no faults, and enough of the order was judged to say so.

        Args:
            least_judged: the part of the sent messages that must have had a promised place, 0 to 1.

        Raises:
            AssertionError: there are faults, or fewer messages (or none) had a promised place; the text is the report.
        """
        self.assert_clean()
        if self.judged < max(1, least_judged * self.sent):
            raise AssertionError(f"the order was judged for fewer than {least_judged:.0%}\n{self}")

    def __str__(self) -> str:
        lines = [
            f"sent {self.sent:,}, arrived {self.late_ms.total():,}, {self.lateness}",
            ", ".join(f"{kind} {self.count(kind):,}" for kind in dict.fromkeys((*KINDS, *sorted(self.faults)))),
            f"order judged for {self.judged:,}; overtaken, accepted too late {self.overtaken:,}",
        ]
        for kind, texts in sorted(self.faults.items()):
            lines += [f"  {kind}: {text}" for text in texts[:EXAMPLES]]
            if len(texts) > EXAMPLES:
                lines.append(f"  {kind}: and {len(texts) - EXAMPLES:,} more")
        return "\n".join(lines)


M = TypeVar("M", bound=Expected)


class Judge(Generic[M]):
    """Checks each promise by itself, and adds what it finds to a report.

    Args:
        report: gets the faults and the numbers.
        rank: returns the place of a message in the order of its line.
    """

    def __init__(self, report: Report, rank: Callable[[M], tuple[int, int]] = attrgetter("rank")) -> None:
        self._report = report
        self._lines: defaultdict[Hashable, _Line[M]] = defaultdict(lambda: _Line(rank))

    def never_early(self, message: M, stamp_ms: int, seen_ms: int) -> None:
        """Check a record of a message: by both clocks it came at or after its due time.

        Args:
            message: the message.
            stamp_ms: the record's timestamp.
            seen_ms: the wall time of the reader that received it.
        """
        self._report.late_ms[seen_ms - message.due_ms] += 1
        early_ms = message.due_ms - min(stamp_ms, seen_ms)
        if early_ms > 0:
            self._report.add("early", f"{early_ms} ms: {message}")

    def once(self, message: M, times: int, what: str = "") -> None:
        """Check how often a message arrived.

        Args:
            message: the message.
            times: how often it arrived.
            what: more about the records, for the report.
        """
        if times == 0:
            self._report.add("lost", f"{message}{what}")
        elif times > 1:
            self._report.add("twice", f"{times} times{what}: {message}")

    def in_order(
        self, line: Hashable, message: M, offset: int, accepted_at: int | None, kind: str = "out of order"
    ) -> None:
        """Check that a message was not overtaken. Call it once for each message, line by line in the order of offsets.

        Args:
            line: identifies the line.
            message: the message.
            offset: the offset of its record at the target.
            accepted_at: where the target's log ended when the message was accepted, or an earlier offset; None if it
                was not accepted before it was due.
            kind: the kind of fault.
        """
        ahead = self._lines[line].add(message, offset, accepted_at or 0)
        self._report.judged += accepted_at is not None
        if ahead is None:
            return
        if accepted_at is None:
            self._report.overtaken += 1
        else:
            self._report.add(kind, f"{message} behind {ahead}")


class Acceptance:
    """By when the messages of one intake partition were accepted, as far as that is proven.

    The owner of a partition reads in order. So when a message is delivered, all messages before it have been read.
    """

    def __init__(self) -> None:
        self._proofs: list[tuple[int, int]] = []
        """Offsets and times of deliveries, both ascending; those that prove no more than another one are left out."""

    def add(self, offset: int, delivered_ms: int) -> None:
        """Add a delivery.

        Args:
            offset: the offset of its message in the intake partition.
            delivered_ms: when it was delivered, or later.
        """
        if self.by(offset) > delivered_ms:
            first = end = bisect_left(self._proofs, (offset + 1,))
            while first and self._proofs[first - 1][1] >= delivered_ms:
                first -= 1
            self._proofs[first:end] = [(offset, delivered_ms)]

    def by(self, offset: int) -> int:
        """Return by when the message at an offset was accepted; `NEVER_MS` if nothing proves that it was."""
        first = bisect_left(self._proofs, (offset,))
        return self._proofs[first][1] if first < len(self._proofs) else NEVER_MS


class _Line(Generic[M]):
    """The messages of a line that may still overtake others: each one ranks below the one before it."""

    def __init__(self, rank: Callable[[M], tuple[int, int]]) -> None:
        self._rank = rank
        self._messages: list[M] = []
        self._offsets: list[int] = []

    def add(self, message: M, offset: int, accepted_at: int) -> M | None:
        """Append a message; return the highest of those at or after `accepted_at` that overtook it, if any did."""
        first = bisect_left(self._offsets, accepted_at)
        ahead = self._messages[first] if first < len(self._messages) else None
        rank = self._rank(message)
        while self._messages and self._rank(self._messages[-1]) <= rank:
            self._messages.pop()
            self._offsets.pop()
        self._messages.append(message)
        self._offsets.append(offset)
        return ahead if ahead is not None and self._rank(ahead) > rank else None


def percentile(counts: Counter[int], percent: float) -> int | None:
    """Return the nearest-rank percentile of values.

    Args:
        counts: how often there is each value.
        percent: 0 to 100.

    Returns:
        The value; None if there are none.
    """
    values = sorted(counts)
    up_to = list(accumulate(counts[value] for value in values))
    return values[bisect_left(up_to, max(1, math.ceil(up_to[-1] * percent / 100)))] if values else None
