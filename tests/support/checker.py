"""Compares produced messages with arrivals: lost, twice, early, out of order, damaged, unexpected.

A pure function over two lists, which uses the judge of the promises (`tarry.testing.judge`). Of the service's own
statements it uses only the headers that the contract promises, and compares them with the producer's data.

An arrival is matched with its produced message by `tarry-id` or, if that is missing or wrong, by `tarry-source`.

Order. Messages of one key that came through one intake partition to one partition of a target form a line. Messages
without a key have no order. With `across_keys`, all messages from one intake partition to one partition of a target are
one line, including those without a key.

Cost: linear, except for sorting; 500,000 messages take a few seconds and, with keys and header sets shared (see
`Interned`), some hundred bytes each.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tarry.testing.judge import Judge, Report

Headers = tuple[tuple[str, bytes | None], ...]

ID_HEADER: Final = "tarry-id"
DUE_HEADER: Final = "tarry-due-ms"
SOURCE_HEADER: Final = "tarry-source"
LEAST_JUDGED_OF_FAULTS: Final = 0.1
"""The least judged part of the produced messages, if no service runs for most of the time."""
ALL_WITH_A_KEY: Final = 0.9
"""The least judged part if all messages were accepted before they were due: 5 % have no key, and so no order."""


@dataclass(frozen=True, slots=True)
class Produced:
    """A message that the broker acknowledged and that must arrive once.

    Args:
        id: the 36 characters that `tarry-id` must have at the target.
        key: the key, or None.
        target: the topic where it must arrive.
        due_ms: when it is due, epoch milliseconds.
        value: `digest` of the value.
        headers: the headers that the target must see besides the service's own three, in order.
        intake, partition, offset: where the broker stored it.
        accepted_ms: a time at which the partition's owner had certainly read it, epoch milliseconds.
        target_partition: the target partition in which it must arrive; None: any.
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
        """The expected value of `tarry-source`."""
        return f"{self.intake}/{self.partition}/{self.offset}"

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of its line."""
        return self.due_ms, self.offset

    def __str__(self) -> str:
        return f"{self.id} (due {self.due_ms}, {self.source}, key {self.key!r}, to {self.target})"


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that a read_committed reader of a target got.

    Args:
        id, due_ms, source: text of the service's own headers; empty if missing, joined by commas if repeated.
        key: the key, or None.
        target, partition, offset: its place in the target.
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
    """Return eight bytes that represent a value; None stays None, because Kafka distinguishes null from empty."""
    return None if value is None else hashlib.blake2b(value, digest_size=8).digest()


def check(produced: Sequence[Produced], arrived: Sequence[Arrived], *, across_keys: bool = False) -> Report:
    """Compare produced messages with arrivals.

    Args:
        produced: the messages that must arrive once each, in any order; messages that must not arrive are left out.
        arrived: all records that read_committed readers of the targets got, in any order.
        across_keys: whether to judge one order over all messages of a partition, instead of one for each key.

    Returns:
        The report; see `Report.assert_clean`.

    Raises:
        ValueError: two records of `produced` have the same id or source, so that nothing could be judged.
    """
    by_id = {record.id: record for record in produced}
    by_source = {record.source: record for record in produced}
    if len(by_id) != len(produced) or len(by_source) != len(produced):
        raise ValueError("two produced records share an id or a place in the intake")
    report = Report(sent=len(produced))
    judge = Judge[Produced](report)
    copies: dict[str, list[Arrived]] = {record.id: [] for record in produced}
    for arrival in sorted(arrived, key=_place):
        record = by_id.get(arrival.id) or by_source.get(arrival.source)
        if record is None:
            report.add("unexpected", f"{arrival.where} has id {arrival.id!r}, source {arrival.source!r}")
            continue
        judge.never_early(record, arrival.timestamp_ms, arrival.seen_ms)
        if wrong := _differences(record, arrival):
            report.add("damaged", f"{record} at {arrival.where}: {'; '.join(wrong)}")
        copies[record.id].append(arrival)
        if len(copies[record.id]) == 1 and (across_keys or record.key is not None):
            key = None if across_keys else record.key
            line = (arrival.target, arrival.partition, key, record.intake, record.partition)
            accepted_at = 0 if record.accepted_ms <= record.due_ms else None
            judge.in_order(line, record, arrival.offset, accepted_at)
    for record in produced:
        found = copies[record.id]
        judge.once(record, len(found), "".join(f" at {arrival.where}" for arrival in found))
    return report


def all_accepted(produced: Sequence[Produced]) -> list[Produced]:
    """Return the same records, each with a promised place in its order: all were read before any fired."""
    return [replace(record, accepted_ms=record.due_ms) for record in produced]


def _place(arrival: Arrived) -> tuple[str, int, int]:
    return arrival.target, arrival.partition, arrival.offset


def _differences(record: Produced, arrival: Arrived) -> list[str]:
    """Return the differences between a record and the message that was sent."""
    partition = arrival.partition if record.target_partition is None else record.target_partition
    return [
        f"{what} {got!r}, not {expected!r}"
        for what, got, expected in (
            ("target", arrival.target, record.target),
            ("key", arrival.key, record.key),
            ("value digest", arrival.value, record.value),
            ("headers", arrival.headers, record.headers),
            (ID_HEADER, arrival.id, record.id),
            (DUE_HEADER, arrival.due_ms, str(record.due_ms)),
            (SOURCE_HEADER, arrival.source, record.source),
            ("partition", arrival.partition, partition),
        )
        if got != expected
    ]
