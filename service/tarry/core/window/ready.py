"""The content of a partition's next transactions: due messages, dead letters, and records that need no delivery."""

from collections import deque
from collections.abc import Container
from typing import TYPE_CHECKING

from tarry.core.batch import Batch, Resolution, fitting
from tarry.core.message import DeadMessage, HeldPurge
from tarry.core.window.letters import LARGE_BYTES, Letters
from tarry.core.window.parked import Parked
from tarry.headers import Outcome

if TYPE_CHECKING:
    from tarry.core.message import HeldMessage


class Ready:
    """All that is ready in one partition.

    Args:
        letters: takes large dead letters.
    """

    __slots__ = ("_letters", "dead", "due", "resolutions")

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self.due: deque[HeldMessage] = deque()
        """The messages that are due, and purges, in order."""
        self.dead: list[DeadMessage] = []
        self.resolutions: list[Resolution] = []

    def __len__(self) -> int:
        return len(self.due) + len(self.dead) + sum(len(resolution.records) for resolution in self.resolutions)

    def __bool__(self) -> bool:
        return bool(self.due or self.dead or self.resolutions)

    def bury(self, dead: DeadMessage) -> None:
        """Add a dead letter: to the next batch, or to `letters` if it is large."""
        if dead.size_bytes > LARGE_BYTES:
            self._letters.put([dead])
        else:
            self.dead.append(dead)

    def take(self, limit: int, limit_bytes: int, now_ms: int, away: Container[str], parked: Parked) -> Batch:
        """Take a batch, in order.

        Args:
            limit: the most messages to take.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
            now_ms: wall time; a message that is no longer due because the clock stepped back is not taken.
            away: targets whose messages are parked instead; so are those of targets that have parked messages.
            parked: takes those messages.
        """
        batch = Batch()
        if self.dead or self.resolutions:
            self._take_undelivered(batch, limit, limit_bytes)
            limit_bytes -= batch.size_bytes
        room = limit - len(batch)
        ready, due, parks = self.due, batch.due, bool(away) or bool(parked)
        while room > 0 and ready and ready[0].due_ms <= now_ms:
            message = ready[0]
            if type(message) is HeldPurge:
                if any(one.target == message.target for one in due):
                    break  # if their transaction aborts, they are parked, and belong to the purge
                ready.popleft()
                if not parked.purge(message):
                    batch.resolutions.append(Resolution(Outcome.PURGED, message))
                    room -= 1
                continue
            if parks and (message.target in away or message.target in parked):
                ready.popleft()
                parked.park(message)
                continue
            limit_bytes -= message.size_bytes
            if limit_bytes < 0 and len(batch):
                break
            ready.popleft()
            due.append(message)
            room -= 1
        return batch

    def _take_undelivered(self, batch: Batch, limit: int, limit_bytes: int) -> None:
        count = fitting([dead.size_bytes for dead in self.dead[:limit]], limit_bytes)
        batch.dead, self.dead = self.dead[:count], self.dead[count:]
        room = limit - count
        sizes = [sum(record.size_bytes for record in resolution.records) for resolution in self.resolutions[:room]]
        room_bytes = limit_bytes - batch.size_bytes
        count = fitting(sizes, room_bytes) if room_bytes > 0 or not batch.dead else 0
        batch.resolutions, self.resolutions = self.resolutions[:count], self.resolutions[count:]

    def put_back(self, batch: Batch) -> None:
        """Put a batch back, in front of the others."""
        self.dead[:0] = batch.dead
        self.resolutions[:0] = batch.resolutions
        self.due.extendleft(reversed(batch.due))
