"""What leaves the service for a message: its delivery's headers, and its result.

Results are JSON, written by hand here because one goes with every message: the fixed names are ASCII, ids and numbers
need no quoting, and topic names come quoted from `quoted`.
"""

import json
from functools import lru_cache

from tarry.core.batch import Resolution
from tarry.core.message import DeadMessage, HeldCancel, HeldMessage
from tarry.headers import DUE_MS, ERROR, ERROR_DETAIL, ID, SOURCE, STUB, Outcome

OutHeaders = list[tuple[str, str | bytes | None]]


def source_prefix(intake: str, partition: int) -> bytes:
    """The part of `tarry-source` that all records of an intake partition share."""
    return f"{intake}/{partition}/".encode()


def delivery_headers(message: HeldMessage, source: bytes) -> OutHeaders:
    """The headers that the target receives: the message's own, then ours."""
    ours: OutHeaders = [(ID, message.id), (DUE_MS, b"%d" % message.due_ms), (SOURCE, source)]
    return [*message.headers, *ours] if message.carries else ours


def fired_result(message: HeldMessage, source: bytes, at_ms: int) -> bytes:
    """The result of a message that is delivered in the same transaction."""
    return b'{"v":1,"outcome":"fired","id":"%b","source":"%b","due_ms":%d,"at_ms":%d,"target":%b}' % (
        message.id,
        source,
        message.due_ms,
        at_ms,
        quoted(message.target),
    )


def dead_headers(message: DeadMessage) -> OutHeaders:
    """The headers of a dead letter: the original ones, then the reason."""
    return [*message.headers, (ERROR, message.code.encode()), (ERROR_DETAIL, message.detail.encode())]


def stub_headers(message: DeadMessage, source: bytes, place: str) -> OutHeaders:
    """The headers of what is written in place of a dead letter that its topic does not take.

    Args:
        message: the stub.
        source: its place in the intake.
        place: where its record stands, which may be a bucket.
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
    """The result of a message that goes to the dead letters in the same transaction."""
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


def resolution_result(resolution: Resolution, prefix: bytes, at_ms: int) -> bytes:
    """The result of what is settled without a delivery.

    Args:
        resolution: what became of it.
        prefix: from `source_prefix`.
        at_ms: now.
    """
    return _result(resolution.outcome, resolution.message, resolution.cancel, prefix, at_ms)


def filed_cancel_result(cancel: HeldCancel, prefix: bytes, at_ms: int) -> bytes:
    """The result of a cancel whose message is still beyond the hot window: the definite one comes later."""
    return _result(Outcome.CANCEL_FILED, cancel, None, prefix, at_ms)


def _result(kind: Outcome, message: HeldMessage, cancel: HeldMessage | None, prefix: bytes, at_ms: int) -> bytes:
    result = {
        "v": 1,
        "outcome": kind.value,
        "id": message.id.decode(),
        "source": (prefix + b"%d" % message.sequence).decode(),
        "due_ms": message.due_ms,
        "at_ms": at_ms,
        "target": message.target or None,
    }
    if isinstance(message, HeldCancel):
        cancel = message
    if cancel is not None:
        result["cancel_source"] = (prefix + b"%d" % cancel.sequence).decode()
    return json.dumps(result, separators=(",", ":")).encode()


@lru_cache(maxsize=4096)
def quoted(topic: str) -> bytes:
    """A topic's name as JSON."""
    return json.dumps(topic).encode()
