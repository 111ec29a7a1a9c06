"""What an operation does in one transaction; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tarry.client.retry.core.message import OutgoingRecord


class Left(StrEnum):
    """Why a record was left as it is."""

    DONE_BY_OTHERS = "done-by-others"
    """Somebody else has redriven or dismissed the letter meanwhile."""
    EXPIRED = "expired"
    STUB = "stub"
    CANCEL_BY_NAME = "cancel-by-name"
    NOT_UTF8 = "header-not-utf8"
    OLDER_OF_ITS_NAME = "older-of-its-name"
    """There is a younger letter of its name, sent or not."""
    NOT_WAITING = "not-waiting"
    """The message was delivered, cancelled or replaced meanwhile."""
    CANCELLED = "cancelled"
    """A cancel of the message waits already: to move it would send it once more."""
    BEING_DELIVERED = "being-delivered"
    """It is due, or nearly so: if it were moved now, the old message might be delivered, too."""
    MOVES = "moves-just-now"
    SCHEDULE = "schedule"
    """An occurrence of a schedule, which only the schedule moves."""
    BEYOND_MAX_DELAY = "beyond-max-delay"
    BAD_TIME = "bad-time"
    GONE = "gone"
    """Kafka does not have the record any more."""


@dataclass(slots=True)
class Step:
    """Records to write in one transaction, and which records of the operation are handled with it.

    Attributes:
        writes: for each record that is handled its number, and what is written for it.
        left: the number of each record that is left as it is, and why.
        size_bytes: about how many bytes are written.
    """

    writes: list[tuple[int, Sequence[OutgoingRecord]]] = field(default_factory=list)
    left: list[tuple[int, str]] = field(default_factory=list)
    size_bytes: int = 0

    def __len__(self) -> int:
        return len(self.writes) + len(self.left)

    def do(self, number: int, records: Sequence[OutgoingRecord]) -> None:
        """Handle a record."""
        self.writes.append((number, records))
        self.size_bytes += sum(_size(one) for one in records)

    def leave(self, number: int, why: str) -> None:
        """Leave a record as it is."""
        self.left.append((number, why))


def _size(record: OutgoingRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
