"""What was produced against what arrived: lost, twice, early, out of order, damaged, unexpected.

A pure function over two lists, so that the judge of all other tests can be tested itself, by planting one
fault of each kind. It trusts nothing that the service says of itself except the headers that the contract
promises, and those are compared with what the producer knows.

Arrivals are joined to what was produced by `tarry-id`, and where that is missing or wrong by
`tarry-source`.

Order. Messages of one key and one target that came through one intake partition form a sequence, ranked by
`(due_ms, intake offset)`. A message that was accepted before it was due must not be overtaken by one ranked
behind it. One that was accepted too late is not promised a place; when it is overtaken this is counted
apart, in `overtaken_unaccepted`, so that a report shows how much of its order was judged. Messages without
a key have no order. Across keys, if it is told so, all messages from one intake partition to one partition of
a target are one sequence, those without a key among them.

Cost: linear, but for sorting each key's arrivals; 500,000 messages take a few seconds and, with keys and
header sets shared (see `Interned`), some hundred bytes each.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

Headers = tuple[tuple[str, bytes | None], ...]
Kind = Literal["lost", "twice", "early", "out of order", "damaged", "unexpected"]

KINDS: Final[tuple[Kind, ...]] = ("lost", "twice", "early", "out of order", "damaged", "unexpected")
ID_HEADER: Final = "tarry-id"
DUE_HEADER: Final = "tarry-due-ms"
SOURCE_HEADER: Final = "tarry-source"
EXAMPLES: Final = 5
LEAST_JUDGED: Final = 0.3
"""Of all that was produced: what is accepted only after it is due, because of a fault, has no place in an order."""
LEAST_JUDGED_OF_FAULTS: Final = 0.1
"""The same where nobody serves for most of the time."""
ALL_WITH_A_KEY: Final = 0.9
"""Where all was accepted before it was due: a workload sends 5 % without a key, which have no order."""


@dataclass(frozen=True, slots=True)
class Produced:
    """A message that the broker acknowledged and that must arrive once.

    Args:
        id: the 36 characters that `tarry-id` must have at the target.
        key: the key, or None.
        target: the topic where it must arrive.
        due_ms: when it is due, epoch milliseconds.
        value: `digest` of the value.
        headers: what the target must see besides the service's own three, in order.
        intake, partition, offset: where the broker stored it.
        accepted_ms: by when the partition's owner is known to have read it, epoch milliseconds.
        target_partition: where in the target it must stand; None where any partition will do.
    """

    id: str
    key: bytes | None
    target: str
    due_ms: int
    value: bytes | None
    headers: Headers
    intake: str
    partition: int
    offset: int
    accepted_ms: int
    target_partition: int | None = None

    @property
    def source(self) -> str:
        """What `tarry-source` must say."""
        return f"{self.intake}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that a read_committed reader of a target got.

    Args:
        id, due_ms, source: text of the service's own headers; empty if missing, joined by commas if repeated.
        key: the key, or None.
        target, partition, offset: where it stands.
        timestamp_ms: the record's timestamp, epoch milliseconds.
        value: `digest` of the value.
        headers: all other headers, in order.
        seen_ms: the reader's wall time when it had the message.
    """

    id: str
    key: bytes | None
    target: str
    partition: int
    offset: int
    timestamp_ms: int
    due_ms: str
    source: str
    value: bytes | None
    headers: Headers
    seen_ms: int

    @property
    def where(self) -> str:
        """Topic, partition and offset, for people."""
        return f"{self.target}/{self.partition}/{self.offset}"


@dataclass(slots=True)
class Finding:
    """How many faults of one kind there are, and the first few in words."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late messages were seen, in milliseconds after their due time; None without a single message."""

    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """What the comparison found.

    Args:
        produced, arrived: how many records each side has.
        findings: a `Finding` for every kind.
        judged: how many messages had a promised place in the order of their key.
        overtaken_unaccepted: messages overtaken that were accepted too late to be promised a place.
        lateness: of first arrivals.
    """

    produced: int
    arrived: int
    findings: dict[Kind, Finding]
    judged: int
    overtaken_unaccepted: int
    lateness: Lateness

    def count(self, kind: Kind) -> int:
        """How many faults of `kind` there are."""
        return self.findings[kind].count

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.count for finding in self.findings.values())

    def assert_clean(self) -> None:
        """Do nothing if nothing is wrong.

        Raises:
            AssertionError: something is; the text is the report, with the first examples.
        """
        if not self.is_clean:
            raise AssertionError(f"promises broken\n{self}")

    def assert_kept(self, least_judged: float = LEAST_JUDGED) -> None:
        """Do nothing if nothing is wrong, and enough of the order was judged to say so.

        Args:
            least_judged: which part of what was produced had a promised place, at least.

        Raises:
            AssertionError: something is wrong, or fewer messages had a promised place; the text is the report.
        """
        self.assert_clean()
        if self.judged < max(1, least_judged * self.produced):
            raise AssertionError(f"the order was judged for fewer than {least_judged:.0%}\n{self}")

    def __str__(self) -> str:
        late = f"late p50 {self.lateness.p50_ms} p99 {self.lateness.p99_ms} max {self.lateness.max_ms} ms"
        lines = [
            f"produced {self.produced:,}, arrived {self.arrived:,}, {late}",
            ", ".join(f"{kind} {self.count(kind):,}" for kind in KINDS),
            f"order judged for {self.judged:,}; overtaken, accepted too late {self.overtaken_unaccepted:,}",
        ]
        for kind in KINDS:
            finding = self.findings[kind]
            lines += [f"  {kind}: {text}" for text in finding.examples]
            if finding.count > len(finding.examples):
                lines.append(f"  {kind}: and {finding.count - len(finding.examples):,} more")
        return "\n".join(lines)


class Interned:
    """Shares equal keys and header sets, so that a million records hold a few hundred of them."""

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes] = {}
        self._headers: dict[Headers, Headers] = {}

    def key(self, key: bytes | None) -> bytes | None:
        return None if key is None else self._keys.setdefault(key, key)

    def headers(self, headers: Headers) -> Headers:
        return self._headers.setdefault(headers, headers)


def digest(value: bytes | None) -> bytes | None:
    """Eight bytes that stand for a value; None, which Kafka keeps apart from empty, stays None."""
    return None if value is None else hashlib.blake2b(value, digest_size=8).digest()


def check(produced: Sequence[Produced], arrived: Sequence[Arrived], *, across_keys: bool = False) -> Report:
    """Compare what was produced with what arrived.

    Args:
        produced: what must arrive, once each, in any order of the list; what should not arrive is left out.
        arrived: everything that read_committed readers of the targets got, in any order.
        across_keys: judge one order over all messages of a partition, not one for each key.

    Returns:
        The report; see `Report.assert_clean`.

    Raises:
        ValueError: two records of `produced` have the same id or source, so that nothing could be judged.
    """
    by_id = {record.id: record for record in produced}
    by_source = {record.source: record for record in produced}
    if len(by_id) != len(produced) or len(by_source) != len(produced):
        raise ValueError("two produced records share an id or a place in the intake")
    findings: dict[Kind, Finding] = {kind: Finding() for kind in KINDS}
    first: dict[str, Arrived] = {}
    for arrival in sorted(arrived, key=_place):
        record = by_id.get(arrival.id) or by_source.get(arrival.source)
        if record is None:
            findings["unexpected"].add(f"{arrival.where} has id {arrival.id!r}, source {arrival.source!r}")
            continue
        _check_one(record, arrival, findings)
        earlier = first.setdefault(record.id, arrival)
        if earlier is not arrival:
            findings["twice"].add(f"{record.id} at {earlier.where} and {arrival.where}")
    for record in produced:
        if record.id not in first:
            findings["lost"].add(f"{record.id} from {record.source}, due {record.due_ms} at {record.target}")
    judged, overtaken = _check_order(by_id, first, findings["out of order"], across_keys=across_keys)
    late = sorted(arrival.seen_ms - by_id[name].due_ms for name, arrival in first.items())
    return Report(
        produced=len(produced),
        arrived=len(arrived),
        findings=findings,
        judged=judged,
        overtaken_unaccepted=overtaken,
        lateness=Lateness(percentile(late, 50), percentile(late, 99), late[-1] if late else None),
    )


def all_accepted(produced: Sequence[Produced]) -> list[Produced]:
    """The same records, each with a promised place in its key's order: for what was all read before any was sent on."""
    return [replace(record, accepted_ms=record.due_ms) for record in produced]


def percentile(ordered: Sequence[int], percent: float) -> int | None:
    """The nearest-rank percentile of values in ascending order; None if there are none."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _place(arrival: Arrived) -> tuple[str, int, int]:
    return arrival.target, arrival.partition, arrival.offset


def _check_one(record: Produced, arrival: Arrived, findings: dict[Kind, Finding]) -> None:
    """Judge one arrival by itself: is it early, is it the message that was sent."""
    if arrival.timestamp_ms < record.due_ms or arrival.seen_ms < record.due_ms:
        findings["early"].add(
            f"{record.id} at {arrival.where}: due {record.due_ms}, stamped "
            f"{arrival.timestamp_ms - record.due_ms:+d} ms, seen {arrival.seen_ms - record.due_ms:+d} ms"
        )
    wrong = [
        f"{what} {got!r}, not {expected!r}"
        for what, got, expected in (
            ("target", arrival.target, record.target),
            ("key", arrival.key, record.key),
            ("value digest", arrival.value, record.value),
            ("headers", arrival.headers, record.headers),
            (ID_HEADER, arrival.id, record.id),
            (DUE_HEADER, arrival.due_ms, str(record.due_ms)),
            (SOURCE_HEADER, arrival.source, record.source),
            ("partition", arrival.partition, _partition(record, arrival)),
        )
        if got != expected
    ]
    if wrong:
        findings["damaged"].add(f"{record.id} at {arrival.where}: {'; '.join(wrong)}")


def _partition(record: Produced, arrival: Arrived) -> int:
    return arrival.partition if record.target_partition is None else record.target_partition


def _check_order(
    by_id: dict[str, Produced], first: dict[str, Arrived], finding: Finding, *, across_keys: bool
) -> tuple[int, int]:
    """Judge the order of every key, or of every partition.

    Returns:
        How many were judged, and how many unpromised ones overtaken.
    """
    sequences: dict[tuple[object, ...], list[tuple[int, Produced]]] = defaultdict(list)
    for name, arrival in first.items():
        record = by_id[name]
        if across_keys or record.key is not None:
            key = None if across_keys else record.key
            sequence = (arrival.target, arrival.partition, key, record.intake, record.partition)
            sequences[sequence].append((arrival.offset, record))
    judged = overtaken = 0
    for ranked in sequences.values():
        ranked.sort(key=lambda pair: pair[0])
        ahead = ranked[0][1]
        for _, record in ranked:
            promised = record.accepted_ms <= record.due_ms
            judged += promised
            if _rank(record) >= _rank(ahead):
                ahead = record
            elif promised:
                finding.add(
                    f"key {record.key!r} at {record.target}: {record.id} (due {record.due_ms}, "
                    f"{record.source}) arrived behind {ahead.id} (due {ahead.due_ms}, {ahead.source})"
                )
            else:
                overtaken += 1
    return judged, overtaken


def _rank(record: Produced) -> tuple[int, int]:
    return record.due_ms, record.offset
