"""The headers of a delivery or a dead letter, and the results.

Results are JSON. The result of a delivery is formatted by hand, because every message has one: the fixed names are
ASCII, ids and numbers need no quoting, and `quoted` quotes topic names.
"""

import json
from functools import lru_cache

from tarry.core.batch import Answer, Resolution
from tarry.core.message import DeadMessage, HeldCancel, HeldMessage
from tarry.core.request.occurrence import Occurrence
from tarry.headers import DUE_MS, ERROR, ERROR_DETAIL, ID, OCCURRENCE, SCHEDULE, SOURCE, STUB, Outcome

OutHeaders = list[tuple[str, str | bytes | None]]


def source_prefix(intake: str, partition: int) -> bytes:
    """Return the part of `tarry-source` that all records of an intake partition share."""
    return f"{intake}/{partition}/".encode()


def delivery_headers(message: HeldMessage, source: bytes) -> OutHeaders:
    """Return the headers that the target receives: the message's own, then those of the service."""
    ours: OutHeaders = [(ID, message.id), (DUE_MS, b"%d" % message.due_ms), (SOURCE, source)]
    if isinstance(message, Occurrence):
        ours += [(SCHEDULE, message.schedule), (OCCURRENCE, b"%d" % message.number)]
    return [*message.headers, *ours] if message.carries else ours


def fired_result(message: HeldMessage, source: bytes, at_ms: int) -> bytes:
    """Return the result of a message that the same transaction delivers."""
    more = b""
    if isinstance(message, Occurrence):
        more = b',"schedule":"%b","occurrence":%d' % (message.schedule, message.number)
    return b'{"v":1,"outcome":"fired","id":"%b","source":"%b","due_ms":%d,"at_ms":%d,"target":%b%b}' % (
        message.id,
        source,
        message.due_ms,
        at_ms,
        quoted(message.target),
        more,
    )


def dead_headers(message: DeadMessage) -> OutHeaders:
    """Return the headers of a dead letter: the original headers, then error code and detail."""
    return [*message.headers, (ERROR, message.code.encode()), (ERROR_DETAIL, message.detail.encode())]


def stub_headers(message: DeadMessage, source: bytes, place: str) -> OutHeaders:
    """Return the headers of a stub, which is written in place of a dead letter that its topic refuses.

    Args:
        message: the stub.
        source: `topic/partition/offset` of the record in the intake.
        place: where the whole record is, which may be a bucket.
    """
    detail = f"{message.detail} (too large for this topic: the whole record is {place})"
    return [
        (ID, message.id),
        (SOURCE, source),
        (STUB, place.encode()),
        (ERROR, message.code.encode()),
        (ERROR_DETAIL, detail.encode()),
    ]


def dead_result(message: DeadMessage, source: bytes, at_ms: int) -> bytes:
    """Return the result of a message whose dead letter is written by the same transaction."""
    result = {
        "v": 1,
        "outcome": "dead",
        "id": message.id.decode(),
        "source": source.decode(),
        "due_ms": message.due_ms,
        "at_ms": at_ms,
        "target": message.target,
        "reason": message.code,
    }
    return json.dumps(result, separators=(",", ":")).encode()


def resolution_results(resolution: Resolution, prefix: bytes, at_ms: int) -> list[tuple[bytes, bytes]]:
    """Return the results of a message or cancel that is done without a delivery, each with its key.

    There is one, but two for an occurrence that is cancelled: it ends its schedule, which has a result of its own.

    Args:
        resolution: the message or cancel, and its outcome.
        prefix: from `source_prefix`.
        at_ms: now.
    """
    outcome, message, cancel, _ = resolution
    results = [(message.id, _result(outcome, message, message.id, cancel, prefix, at_ms))]
    if outcome is Outcome.CANCELLED and message.asker != message.id:
        results.append((message.asker, _result(outcome, message, message.asker, cancel, prefix, at_ms)))
    return results


def filed_cancel_result(cancel: HeldCancel, prefix: bytes, at_ms: int) -> bytes:
    """Return the first result of a cancel that is filed because its due time is beyond the hot window.

    The definite result follows when the cancel is decided.
    """
    return _result(Outcome.CANCEL_FILED, cancel, cancel.id, None, prefix, at_ms)


def answer_result(answer: Answer, prefix: bytes, at_ms: int) -> bytes:
    """Return the result of a decision on a named record.

    Args:
        answer: what was decided.
        prefix: from `source_prefix`.
        at_ms: now.
    """
    result: dict[str, object] = {
        "v": 1,
        "outcome": answer.outcome.value,
        "id": answer.id.decode(),
        "source": (prefix + b"%d" % answer.offset).decode(),
        "due_ms": answer.due_ms,
        "at_ms": at_ms,
        "target": answer.target,
    }
    if answer.reason:
        result["reason"] = answer.reason
    if answer.other is not None:
        field, offset = answer.other
        result[field] = (prefix + b"%d" % offset).decode()
    return json.dumps(result, separators=(",", ":")).encode()


def _result(
    kind: Outcome, message: HeldMessage, id_: bytes, cancel: HeldMessage | None, prefix: bytes, at_ms: int
) -> bytes:
    result: dict[str, object] = {
        "v": 1,
        "outcome": kind.value,
        "id": id_.decode(),
        "source": (prefix + b"%d" % message.sequence).decode(),
        "due_ms": message.due_ms,
        "at_ms": at_ms,
        "target": message.target or None,
    }
    if isinstance(message, HeldCancel):
        cancel = message
    if cancel is not None:
        result["cancel_source"] = (prefix + b"%d" % cancel.sequence).decode()
    if isinstance(message, Occurrence) and id_ != message.schedule:
        result |= {"schedule": message.schedule.decode(), "occurrence": message.number}
    return json.dumps(result, separators=(",", ":")).encode()


@lru_cache(maxsize=4096)
def quoted(topic: str) -> bytes:
    """Return a topic's name as a JSON string."""
    return json.dumps(topic).encode()
