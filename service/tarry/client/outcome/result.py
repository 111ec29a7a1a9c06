"""Results as the service writes them, and the rules that match a result to a waiting caller.

Several results can have the same id: a second message may have the id, one cancel of it may be filed, another may come
too late. A receipt identifies one intake record, so its answer is the definite result of that record. A handle
identifies a message by its id and due time only; a result `duplicate` with that id belongs to another record, and is
skipped.

A schedule has one end, under its own id. The source of that result is the record that waited then: the sender's, or a
next one, at a higher offset. An earlier schedule of the same id ended at a lower one. Occurrences have their own ids.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tarry.client.receipt import CancelReceipt, NameCancelReceipt, Receipt, ScheduleReceipt
from tarry.handle import Handle
from tarry.headers import Outcome, derived_id

Result = dict[str, Any]
OutcomeKey = tuple[int, bytes]
"""A partition of the results topic, and the key of a result: a message's id."""

_OF_A_HANDLE = (Outcome.FIRED, Outcome.CANCELLED, Outcome.REPLACED, Outcome.SKIPPED, Outcome.DEAD)
_DEFINITE = (*_OF_A_HANDLE, Outcome.DUPLICATE, Outcome.PURGED)
_OF_A_DECISION = (Outcome.SCHEDULED, *_DEFINITE)
_ENDS_OF_A_SCHEDULE = (Outcome.CANCELLED, Outcome.REPLACED, Outcome.DEAD)
_DECISIONS_OF_A_SCHEDULE = (Outcome.SKIPPED, Outcome.DUPLICATE)
_OF_A_NAME_CANCEL = (Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE, Outcome.DEAD)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The message or cancel whose result a caller waits for.

    Attributes:
        subject: the receipt of a message, a schedule, a cancel, or a cancel by name; or a message's handle.
        interim: whether `cancel-filed` counts as an answer, or `scheduled`.
    """

    subject: Receipt | ScheduleReceipt | CancelReceipt | NameCancelReceipt | Handle
    interim: bool = False

    @property
    def handle(self) -> Handle:
        """The message's handle."""
        return self.subject if isinstance(self.subject, Handle) else self.subject.handle

    @property
    def offset(self) -> int | None:
        """The offset of its record in the intake, if known; its result was written after that record."""
        return None if isinstance(self.subject, Handle) else self.subject.offset

    def result_keys(self) -> tuple[OutcomeKey, ...]:
        """Return the keys that its results can have.

        A cancel that becomes a dead letter has a result under its own derived id: its record has no `tarry-id`.
        """
        handle = self.handle
        key = (handle.partition, handle.id.encode())
        if not isinstance(self.subject, CancelReceipt):
            return (key,)
        return key, (handle.partition, derived_id(handle.topic, handle.partition, self.subject.offset))

    def answer(self, value: bytes | None) -> Result | None:
        """Return the result in a record's value, if it is the awaited one; otherwise None."""
        subject = self.subject
        if isinstance(subject, CancelReceipt):
            result = cancel_result_of(value, subject.source)
            return result if result is None or self.interim or result["outcome"] != Outcome.CANCEL_FILED else None
        if isinstance(subject, ScheduleReceipt):
            return _result_of_schedule(value, subject, interim=self.interim)
        if isinstance(subject, Receipt | NameCancelReceipt):
            handle = subject.handle
            of_message = _OF_A_DECISION if self.interim else _DEFINITE
            outcomes = of_message if isinstance(subject, Receipt) else _OF_A_NAME_CANCEL
            return _result_of(value, f"{handle.topic}/{handle.partition}/{subject.offset}", outcomes)
        result = parsed_result(value)
        # The handle of a schedule has no due time, and only the end of the schedule has its id.
        is_due_then = not subject.due_ms or result.get("due_ms") == subject.due_ms
        is_ours = is_due_then and result.get("outcome") in _OF_A_HANDLE
        return result if is_ours else None


def parsed_result(value: bytes | None) -> Result:
    """Return the fields of a result; empty if the value is not a JSON object."""
    try:
        result = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def cancel_result_of(value: bytes | None, source: str) -> Result | None:
    """Return the result in a record's value if it belongs to the cancel at `source`, dead cancels included."""
    if value is None or source.encode() not in value:
        return None
    result = parsed_result(value)
    is_dead = result.get("source") == source and result.get("outcome") == Outcome.DEAD
    return result if result.get("cancel_source") == source or is_dead else None


def _result_of(value: bytes | None, source: str, outcomes: Sequence[Outcome]) -> Result | None:
    """Return the result in a record's value if it is one of the message or name cancel at `source` with an outcome."""
    result = parsed_result(value)
    return result if result.get("source") == source and result.get("outcome") in outcomes else None


def _result_of_schedule(value: bytes | None, receipt: ScheduleReceipt, *, interim: bool) -> Result | None:
    """Return the result in a record's value if it ends a schedule, or says that its record began none."""
    result = parsed_result(value)
    outcome, source = result.get("outcome"), result.get("source")
    if source == receipt.source:
        is_ours = outcome in _ENDS_OF_A_SCHEDULE + _DECISIONS_OF_A_SCHEDULE
        return result if is_ours or (interim and outcome == Outcome.SCHEDULED) else None
    before, _, offset = str(source).rpartition("/")
    is_of_next = (
        before == f"{receipt.intake}/{receipt.partition}" and offset.isdecimal() and int(offset) > receipt.offset
    )
    return result if is_of_next and outcome in _ENDS_OF_A_SCHEDULE else None
