"""Named records that wait to be decided, until a side transaction is aborted.

Records are decided in the order of the intake, so all named records after the first one wait, too. None of them is
decided, so none is lost by a crash. A message among them may be due before others that are held: nothing fires that is
due after it.
"""

from collections import deque
from typing import NamedTuple

from tarry.core.message import NEVER_MS, Headers, OrderKey
from tarry.core.request.naming import Planned
from tarry.core.request.request import NameCancelRequest, Rejection, Request

_NEVER: OrderKey = (NEVER_MS, -1)


class NamedRecord(NamedTuple):
    """A named record of the intake, as it was read.

    Attributes:
        request: what it asks for, or why it can never be delivered.
        offset: its offset in the intake.
        timestamp_ms: its timestamp.
        key: its key.
        value: its value.
        headers: its headers.
        read_ms: the time at which its request was judged.
    """

    request: Request | NameCancelRequest | Rejection
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    read_ms: int

    @property
    def planned(self) -> Planned | None:
        """Its place in its schedule; None if it has none."""
        request = self.request
        if type(request) is Request:
            return None if request.naming is None else request.naming.planned
        return request.planned if type(request) is Rejection else None

    @property
    def due_ms(self) -> int:
        """The due time of a message; a cancel by name, or a rejection, holds nothing back."""
        return self.request.due_ms if isinstance(self.request, Request) else _NEVER[0]

    @property
    def size_bytes(self) -> int:
        """The approximate memory that it takes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + headers


class Deferred:
    """The named records of one partition that wait to be decided."""

    __slots__ = ("_earliest_ms", "_records")

    def __init__(self) -> None:
        self._records: deque[NamedRecord] = deque()
        self._earliest_ms: deque[int] = deque()
        """The due times of records that are due before, or with, all that are behind them: ascending."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def first(self) -> NamedRecord:
        """The first record."""
        return self._records[0]

    @property
    def gate(self) -> OrderKey:
        """The key from which on no message may fire."""
        return (self._earliest_ms[0], -1) if self._earliest_ms else _NEVER

    def add(self, record: NamedRecord) -> None:
        """Let a record wait."""
        self._records.append(record)
        while self._earliest_ms and self._earliest_ms[-1] > record.due_ms:
            self._earliest_ms.pop()
        self._earliest_ms.append(record.due_ms)

    def pop(self) -> NamedRecord:
        """Remove the first record, which is decided."""
        record = self._records.popleft()
        if self._earliest_ms[0] == record.due_ms:
            self._earliest_ms.popleft()
        return record
