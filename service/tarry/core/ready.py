"""What the next transactions take of a partition: what is due, what is dead, and what needs no delivery."""

from collections import deque
from collections.abc import Container
from typing import TYPE_CHECKING

from tarry.core.batch import Batch, Outcome
from tarry.core.parked import Parked

if TYPE_CHECKING:
    from tarry.core.message import DeadMessage, HeldMessage


class Ready:
    """What is ready in one partition."""

    __slots__ = ("dead", "due", "outcomes")

    def __init__(self) -> None:
        self.due: deque[HeldMessage] = deque()
        """What is due, in order."""
        self.dead: list[DeadMessage] = []
        self.outcomes: list[Outcome] = []

    def __len__(self) -> int:
        return len(self.due) + len(self.dead) + sum(len(outcome.records) for outcome in self.outcomes)

    def __bool__(self) -> bool:
        return bool(self.due or self.dead or self.outcomes)

    def take(self, limit: int, now_ms: int, away: Container[str], parked: Parked) -> Batch:
        """Take up to `limit`, in order.

        Args:
            limit: messages.
            now_ms: wall time; nothing whose time the clock has gone back from is taken.
            away: targets whose messages are parked instead.
            parked: takes those.
        """
        batch = Batch(dead=self.dead[:limit])
        del self.dead[:limit]
        room = limit - len(batch.dead)
        batch.outcomes = self.outcomes[:room]
        del self.outcomes[:room]
        room -= len(batch.outcomes)
        ready, due = self.due, batch.due
        while room > 0 and ready and ready[0].due_ms <= now_ms:
            message = ready.popleft()
            if away and message.target in away:
                parked.park(message)
            else:
                due.append(message)
                room -= 1
        return batch

    def put_back(self, batch: Batch) -> None:
        """Put back what was taken, in front of the rest."""
        self.dead[:0] = batch.dead
        self.outcomes[:0] = batch.outcomes
        self.due.extendleft(reversed(batch.due))
