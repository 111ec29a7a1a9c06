"""Messages with an expiry and with a window: what the world sends, and when they must be delivered or dead.

- A message is delivered at its expiry at the latest, by the time that its result has.
- It is dead as `expired` only if its result is later than its expiry, or if it expires before it is due.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from uuid import UUID

from tarry.headers import EXPIRES_AT, WINDOW_MS, ErrorCode, Outcome
from tarry.testing.simulation.duplicates import SeenResult
from tarry.testing.simulation.sent import Sent

_WINDOWS_MS = (1, 50, 800, 3_000)
_SPARE_MS = (-5, 0, 1, 20, 300, 2_000, 8_000)
"""How long after its due time a message expires. Those that expire before it are dead when they are read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The window and the expiry of a message.

    Attributes:
        due_ms: when it is due, with its window, in wall time.
        expires_ms: its expiry, in wall time; None: it has none.
        headers: its headers.
    """

    due_ms: int
    expires_ms: int | None
    headers: list[tuple[str, bytes | None]]


def drawn(
    choose: Random,
    id_: bytes,
    asked_ms: int,
    tick_ms: int,
    *,
    windows: float,
    expiring: float,
    is_dead_on_reading: bool = True,
) -> Limits:
    """Draw the limits of a message.

    Args:
        choose: where no message has limits, nothing is drawn, so that recorded seeds keep their worlds.
        id_: the message's id.
        asked_ms: when it is due without a window.
        tick_ms: the tick of the wheel.
        windows: the share of messages that have a window.
        expiring: the share of messages that expire.
        is_dead_on_reading: whether some expire before they are due.
    """
    headers: list[tuple[str, bytes | None]] = []
    due_ms, expires_ms = asked_ms, None
    if windows and choose.random() < windows:
        window_ms = choose.choice(_WINDOWS_MS)
        headers.append((WINDOW_MS, b"%d" % window_ms))
        # As the documentation says, and not by the function of the service.
        digest = blake2b(UUID(id_.decode()).bytes, digest_size=16).digest()
        due_ms += int.from_bytes(digest[:8], "big") % window_ms
    due_ms = -(-due_ms // tick_ms) * tick_ms
    if expiring and choose.random() < expiring:
        expires_ms = due_ms + choose.choice(_SPARE_MS[0 if is_dead_on_reading else 1 :])
        headers.append(expiry(expires_ms))
    return Limits(due_ms, expires_ms, headers)


def expiry(expires_ms: int) -> tuple[str, bytes | None]:
    """Return the header of an expiry."""
    return EXPIRES_AT, b"%d" % expires_ms


def expired(results: Iterable[SeenResult]) -> set[str]:
    """Return the positions in the intake of the messages that expired, by their results."""
    return {one.source for one in results if one.fields.get("reason") == ErrorCode.EXPIRED}


def faults_of_expiry(sent: Mapping[str, Sent], results: Iterable[SeenResult]) -> Iterator[tuple[str, str]]:
    """Return the faults of messages that expire, and of those that died as expired: kind and text.

    Args:
        sent: all messages, by their positions in the intake.
        results: all results.
    """
    for one in results:
        if (message := sent.get(one.source)) is None:
            continue
        expires_ms, at_ms = message.expires_ms, int(one.fields["at_ms"])
        if one.outcome == Outcome.FIRED and expires_ms is not None and at_ms > expires_ms:
            yield "after its expiry", f"{at_ms - expires_ms} ms: {message}"
        if one.fields.get("reason") == ErrorCode.EXPIRED:
            is_late = expires_ms is not None and (at_ms > expires_ms or message.due_ms > expires_ms)
            if not is_late:
                yield "expired in time", f"at {at_ms}: {message}"
