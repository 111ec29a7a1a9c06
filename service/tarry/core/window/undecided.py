"""Cancels and second messages with a known id, which wait until all records before them are read.

A cancel takes all messages with its id and due time that are before it in the intake; a message after it is new.
But two messages with the same id and due time, and their cancel, may come from several logs, in several passes, and in
any order. So a cancel, and a second message, wait here until the gate has passed them. By then all records with their
due time that are before them are read. Until then the cancel **withholds** the messages that it will take. Then
the waiting records are decided in the order of the intake:

    read     A4   C3        A1          A2          the gate is after all of them
    wheel    A4   A4        A4          A4          A4
    here          C3        C3 | A1     C3 | A1 A2
    decided                                         C3: A1 is cancelled, A2 is its duplicate

A cancel and the messages that it takes are done in one transaction, or the messages in an earlier one. If the cancel
were done first, a take-over would find the cancelled message without its cancel, and deliver it.
"""

from bisect import bisect_right, insort
from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter

from tarry.core.message import HeldCancel, HeldMessage, OrderKey, order_key

_Name = tuple[bytes, int]
"""Id and due time."""

_by_sequence = attrgetter("sequence")


class Undecided:
    """The undecided records of one partition's hot window."""

    __slots__ = ("_cancels", "_order", "_waiting", "_withheld")

    def __init__(self) -> None:
        self._waiting: dict[int, HeldMessage] = {}
        """The records that wait for the gate, by offset in the intake."""
        self._order: list[OrderKey] = []
        """A heap of their keys; it may hold keys of records that were taken back."""
        self._cancels: dict[_Name, list[int]] = {}
        """Offsets of the waiting cancels, in order."""
        self._withheld: dict[_Name, list[HeldMessage]] = {}
        """The messages that the waiting cancels will take."""

    def __len__(self) -> int:
        return len(self._waiting) + sum(map(len, self._withheld.values()))

    def has(self, id_: bytes, due_ms: int, sequence: int) -> bool:
        """Whether a message waits here, by itself or for its cancel."""
        withheld = self._withheld.get((id_, due_ms), ())
        return sequence in self._waiting or any(message.sequence == sequence for message in withheld)

    def add(self, record: HeldMessage) -> None:
        """Let a cancel, or a message whose id and due time are known, wait for the gate."""
        self._waiting[record.sequence] = record
        heappush(self._order, order_key(record))
        if type(record) is HeldCancel:
            insort(self._cancels.setdefault((record.id, record.due_ms), []), record.sequence)

    def first(self) -> OrderKey | None:
        """Return the key of the first waiting record; None if there is none."""
        while self._order and self._order[0][1] not in self._waiting:
            heappop(self._order)
        return self._order[0] if self._order else None

    def pop(self) -> HeldMessage:
        """Remove the first waiting record, which is decided now. A cancel does not withhold messages any more."""
        record = self._waiting.pop(heappop(self._order)[1])
        if type(record) is HeldCancel:
            name = (record.id, record.due_ms)
            self._cancels[name].remove(record.sequence)
            if not self._cancels[name]:
                del self._cancels[name]
        return record

    # -- withheld messages ------------------------------------------------------------------------------------------

    def is_cancelled(self, message: HeldMessage) -> bool:
        """Whether a waiting cancel will take a message: the message is before it in the intake."""
        cancels = self._cancels.get((message.id, message.due_ms)) if self._cancels else None
        return cancels is not None and cancels[-1] > message.sequence

    def withhold(self, message: HeldMessage) -> None:
        """Keep a message for its cancel."""
        self._withheld.setdefault((message.id, message.due_ms), []).append(message)

    def withholds_another(self, message: HeldMessage, is_superseded: Callable[[HeldMessage], bool]) -> bool:
        """Whether the cancel that takes a message has another one already, which it will take.

        Args:
            message: the message.
            is_superseded: whether a message was replaced or cancelled by name.
        """
        name = (message.id, message.due_ms)
        cancels = self._cancels[name]
        turn = bisect_right(cancels, message.sequence)
        withheld = self._withheld.get(name, ())
        return any(bisect_right(cancels, one.sequence) == turn and not is_superseded(one) for one in withheld)

    def taken_by(self, cancel: HeldMessage) -> list[HeldMessage]:
        """Remove and return the messages that a cancel takes, in the order of the intake. The cancel is decided now."""
        name = (cancel.id, cancel.due_ms)
        withheld = sorted(self._withheld.pop(name, ()), key=_by_sequence)
        taken = [message for message in withheld if message.sequence < cancel.sequence]
        if len(taken) < len(withheld):
            self._withheld[name] = withheld[len(taken) :]
        return taken

    def take_back(self, message: HeldMessage) -> bool:
        """Forget a message as if it had not arrived; return False if it does not wait here."""
        if self._waiting.pop(message.sequence, None) is not None:
            return True
        name = (message.id, message.due_ms)
        withheld = self._withheld.get(name, [])
        if message not in withheld:
            return False
        withheld.remove(message)
        if not withheld:
            del self._withheld[name]
        return True
