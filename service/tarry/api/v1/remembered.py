"""The idempotency keys that this replica has seen lately, with what was asked and what was answered."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from tarry.client import Receipt, ScheduleReceipt

MOST: Final = 10_000


@dataclass(slots=True)
class Seen:
    """A request whose message was sent.

    Attributes:
        mark: stands for what was asked.
        receipt: of the message.
        fields: the receipt, as it was answered.
        outcome: the result with which it was answered; None: none yet.
    """

    mark: bytes
    receipt: Receipt | ScheduleReceipt
    fields: dict[str, Any]
    outcome: dict[str, Any] | None = None


class Remembered:
    """Requests by the ids of their messages; the oldest is forgotten first."""

    def __init__(self, most: int = MOST) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._most = most

    def find(self, id_: str) -> Seen | None:
        """Return the request of an id."""
        return self._seen.get(id_)

    def keep(self, id_: str, seen: Seen) -> None:
        """Remember a request."""
        self._seen[id_] = seen
        if len(self._seen) > self._most:
            self._seen.popitem(last=False)


def mark_of(text: str) -> bytes:
    """Return what stands for a request."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
