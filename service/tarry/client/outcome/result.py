"""Results as the service writes them, and which of them is the answer for whom.

Several results can have one id: a second message may have brought it, a cancel of it may be filed, another come too
late. A receipt names the record that is meant, so its answer is the definite result of that very record. A handle
names a message by its id and due time only: a `duplicate` of that is somebody else's, and is passed over.
"""

import json
from dataclasses import dataclass
from typing import Any

from tarry.client.receipt import CancelReceipt, Receipt
from tarry.handle import Handle
from tarry.headers import Outcome, derived_id

Result = dict[str, Any]
Key = tuple[int, bytes]
"""A partition of the results, and a record's key there: a message's id."""

_OF_A_HANDLE = (Outcome.FIRED, Outcome.CANCELLED, Outcome.DEAD)
_DEFINITE = (*_OF_A_HANDLE, Outcome.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for.

    Attributes:
        subject: a receipt, a cancel's receipt, or the handle of a message whose receipt is elsewhere.
        interim: whether `cancel-filed` is an answer, too.
    """

    subject: Receipt | CancelReceipt | Handle
    interim: bool = False

    @property
    def handle(self) -> Handle:
        """Of the message."""
        return self.subject if isinstance(self.subject, Handle) else self.subject.handle

    @property
    def offset(self) -> int | None:
        """Where its record is in the intake, where that is known: no result of it was written before it was there."""
        return None if isinstance(self.subject, Handle) else self.subject.offset

    def result_keys(self) -> tuple[Key, ...]:
        """What its results can have as key: a cancel that is dead is a message of its own, which brought no id."""
        handle = self.handle
        key = (handle.partition, handle.id.encode())
        if not isinstance(self.subject, CancelReceipt):
            return (key,)
        return key, (handle.partition, derived_id(handle.topic, handle.partition, self.subject.offset))

    def answer(self, value: bytes | None) -> Result | None:
        """A record's result, if it is what is waited for."""
        subject = self.subject
        if isinstance(subject, CancelReceipt):
            result = cancel_result_of(value, subject.source)
            return result if result is None or self.interim or result["outcome"] != Outcome.CANCEL_FILED else None
        if isinstance(subject, Receipt):
            handle = subject.handle
            return _result_of(value, f"{handle.topic}/{handle.partition}/{subject.offset}")
        result = parsed_result(value)
        is_ours = result.get("due_ms") == subject.due_ms and result.get("outcome") in _OF_A_HANDLE
        return result if is_ours else None


def parsed_result(value: bytes | None) -> Result:
    """A result's fields; none where it is no result."""
    try:
        result = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}


def cancel_result_of(value: bytes | None, source: str) -> Result | None:
    """A record's result, if it is one of the cancel from `source`; one that is dead is its own source."""
    if value is None or source.encode() not in value:
        return None
    result = parsed_result(value)
    is_dead = result.get("source") == source and result.get("outcome") == Outcome.DEAD
    return result if result.get("cancel_source") == source or is_dead else None


def _result_of(value: bytes | None, source: str) -> Result | None:
    """A record's result, if it is the definite one of the message from `source`."""
    result = parsed_result(value)
    return result if result.get("source") == source and result.get("outcome") in _DEFINITE else None
