"""Checks named messages and cancels by name: at most one message of a key and a name waits at any time.

The records of a name are looked at in the order of the intake, with the message that waits according to the results so
far. Each result must be true of it:

- each record has one final outcome, and `scheduled` once if it has a condition and waits
- `replaced` and `cancelled` speak of the message that waits, and it is neither delivered nor dead
- `skipped`, `cancel-too-late`, and a message that waits now, are right about whether one of its name waited: results
  are in the order of events, and a message that was not due when its owner read the record had not left
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tarry.headers import Outcome
from tarry.kafka.types import Place
from tarry.testing.simulation.duplicates import SeenResult
from tarry.testing.simulation.sent import Sent

_FINAL = frozenset(
    {Outcome.FIRED, Outcome.DEAD, Outcome.CANCELLED, Outcome.REPLACED, Outcome.SKIPPED, Outcome.DUPLICATE}
)
_LEFT = frozenset({Outcome.FIRED, Outcome.DEAD, Outcome.DUPLICATE})
"""The outcomes of messages that were scheduled: a duplicate of one that has left is scheduled, and noticed later."""


@dataclass(slots=True)
class SentNamed:
    """A named record in the intake.

    Attributes:
        place: its partition.
        offset: its offset there.
        key: its key.
        name: its name.
        condition: the value of `tarry-if`; empty if it has none.
        message: the message; None for a cancel by name.
        is_rejected: whether it can never be delivered, so that it changes no name.
        read_ms: the latest wall time when its owner had read it first; None: not yet.
    """

    place: Place
    offset: int
    key: bytes
    name: bytes
    condition: bytes = b""
    message: Sent | None = None
    is_rejected: bool = False
    read_ms: int | None = None

    @property
    def source(self) -> str:
        """Its position in the intake, as results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"


class NameJudge:
    """Judges the results of named records.

    Args:
        records: all named records, in the order of their partitions.
        results: all results.
    """

    def __init__(self, records: Iterable[SentNamed], results: Sequence[SeenResult]) -> None:
        self._names: dict[tuple[Place, bytes, bytes], list[SentNamed]] = defaultdict(list)
        for record in records:
            self._names[record.place, record.key, record.name].append(record)
        self._results: dict[str, list[SeenResult]] = defaultdict(list)
        for one in results:
            self._results[one.source].append(one)

    def faults(self) -> Iterator[tuple[str, str]]:
        """Return the faults: kind and text."""
        for records in self._names.values():
            yield from self._faults_of(records)

    def _final(self, record: SentNamed) -> SeenResult | None:
        """Return the final outcome of a record."""
        if record.message is None:
            outcomes: frozenset[str] = frozenset({Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE})
        else:
            outcomes = _FINAL
        outcomes = frozenset({Outcome.DEAD}) if record.is_rejected else outcomes
        found = [one for one in self._results[record.source] if one.outcome in outcomes]
        return found[0] if len(found) == 1 else None

    def _faults_of(self, records: Sequence[SentNamed]) -> Iterator[tuple[str, str]]:
        waits: SentNamed | None = None
        taken: set[str] = set()
        for record in records:
            final = self._final(record)
            if final is None:
                yield "indefinite", f"{[one.fields for one in self._results[record.source]]} of {record}"
            if final is None or record.is_rejected:
                continue
            told = sum(one.outcome == Outcome.SCHEDULED for one in self._results[record.source])
            changes = record.message is not None and not _is_done_at_once(final)
            if told != (changes and bool(record.condition)):
                yield "indefinite", f"{told} times scheduled: {record}"
            takes = waits is not None and self._is_taken(waits, record)
            if takes and waits is not None:
                taken.add(waits.source)
            yield from self._untrue(record, final, waits, takes=takes)
            if record.message is None:
                waits = None if takes else waits
            elif changes:
                waits = record
        for record in records:
            final = self._final(record)
            is_taken = final is not None and final.outcome in {Outcome.REPLACED, Outcome.CANCELLED}
            if record.message is not None and is_taken != (record.source in taken):
                yield "not replaced", f"{final} of {record}, by a record before which it did not wait"

    def _is_taken(self, waits: SentNamed, by: SentNamed) -> bool:
        """Whether the result of a message says that a record replaced or cancelled it."""
        final = self._final(waits)
        if final is None:
            return False
        field = {Outcome.REPLACED: "replaced_by", Outcome.CANCELLED: "cancel_source"}.get(Outcome(final.outcome))
        return field is not None and final.fields.get(field) == by.source

    def _untrue(
        self, record: SentNamed, final: SeenResult, waits: SentNamed | None, *, takes: bool
    ) -> Iterator[tuple[str, str]]:
        """Return why the outcome of a record is not true; `takes`: it replaced or cancelled the message that waits."""
        outcome = final.outcome
        if record.message is None:
            may_take, meets_none = True, outcome == Outcome.CANCEL_TOO_LATE
        elif _is_done_at_once(final):
            may_take, meets_none = False, final.fields.get("reason") == "not-waiting"
            if not (meets_none or _repeats(final)):
                yield from self._untrue_of_waiting(record, final, waits)
        else:
            may_take, meets_none = record.condition != b"absent", not takes
        needs = {b"absent": not meets_none, b"present": meets_none}.get(record.condition, False)
        if outcome != Outcome.DUPLICATE and needs != (outcome == Outcome.SKIPPED):
            yield "not replaced", f"{outcome}, with what it met: {record}"
        if takes and (meets_none or not may_take):
            yield "not replaced", f"{final.fields}, and took {waits}: {record}"
        if meets_none and waits is not None and waits.message is not None and not takes:
            yield from self._untrue_of_none(record, final, waits, waits.message.due_ms)

    def _untrue_of_waiting(
        self, record: SentNamed, final: SeenResult, waits: SentNamed | None
    ) -> Iterator[tuple[str, str]]:
        """Return why a result is wrong that says which message waits."""
        if waits is None or final.fields.get("waiting") != waits.source:
            yield "not replaced", f"{final.fields} is not about {waits}: {record}"
        elif self._left_before(waits, final):
            yield "not replaced", f"{waits} had left: {final.fields}"

    def _untrue_of_none(
        self, record: SentNamed, final: SeenResult, waits: SentNamed, due_ms: int
    ) -> Iterator[tuple[str, str]]:
        """Return why a result is wrong that says that none waits."""
        if record.read_ms is not None and record.read_ms < due_ms:
            yield "not replaced", f"{waits} was not due when {record} was read"
        is_answer = record.message is None or final.outcome == Outcome.SKIPPED
        if is_answer and not self._left_before(waits, final):
            yield "not replaced", f"{waits} had not left: {final.fields}"

    def _left_before(self, waits: SentNamed, answer: SeenResult) -> bool:
        """Whether a message was delivered or dead before a result was written."""
        final = self._final(waits)
        return final is not None and final.outcome in _LEFT and final.offset < answer.offset


def _is_done_at_once(final: SeenResult) -> bool:
    """Whether a message was skipped, or was a duplicate of the one that waited, or of one that was delivered."""
    is_duplicate = final.outcome == Outcome.DUPLICATE and ("waiting" in final.fields or _repeats(final))
    return final.outcome == Outcome.SKIPPED or is_duplicate


def _repeats(final: SeenResult) -> bool:
    """Whether a message was a duplicate of one that was delivered before it was decided."""
    return final.outcome == Outcome.DUPLICATE and final.fields.get("reason") == "delivered"
