"""The content of a partition's next transactions: due messages, dead letters, and records that need no delivery."""

from collections import deque
from collections.abc import Container
from typing import TYPE_CHECKING

from tarry.core.batch import UNBOUNDED, Batch, Resolution, fitting
from tarry.core.message import DeadMessage, HeldPurge
from tarry.core.request.occurrence import Occurrence
from tarry.core.window.letters import LARGE_BYTES, Letters
from tarry.core.window.names import Names
from tarry.core.window.parked import Parked
from tarry.headers import Outcome

if TYPE_CHECKING:
    from tarry.core.message import HeldMessage


class Ready:
    """All that is ready in one partition.

    Args:
        letters: takes large dead letters.
        names: has decisions to commit, and knows which messages are superseded.
    """

    __slots__ = ("_letters", "_names", "dead", "due", "most_occurrences", "resolutions")

    def __init__(self, letters: Letters, names: Names) -> None:
        self._letters = letters
        self._names = names
        self.due: deque[HeldMessage] = deque()
        """The messages that are due, and purges, in order."""
        self.most_occurrences = UNBOUNDED
        """The most occurrences of schedules in a batch: an intake with small batches takes one next record in each."""
        self.dead: list[DeadMessage] = []
        self.resolutions: list[Resolution] = []

    def __len__(self) -> int:
        undelivered = sum(len(resolution.records) for resolution in self.resolutions)
        return len(self.due) + len(self.dead) + undelivered + self._names.held

    def __bool__(self) -> bool:
        return bool(self.due or self.dead or self.resolutions or self._names)

    @property
    def has_undelivered(self) -> bool:
        """Whether there is anything that needs no delivery."""
        return bool(self.dead or self.resolutions or self._names)

    def bury(self, dead: DeadMessage) -> None:
        """Add a dead letter: to the next batch, or to `letters` if it is large."""
        if dead.size_bytes > LARGE_BYTES:
            self._letters.put([dead])
        else:
            self.dead.append(dead)

    def take(self, limit: int, limit_bytes: int, now_ms: int, apart: Container[str], parked: Parked) -> Batch:
        """Take a batch, in order.

        Args:
            limit: the most messages to take.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
            now_ms: wall time; a message that is no longer due because the clock stepped back is not taken.
            apart: targets whose messages are parked instead; so are those of targets that have parked messages.
            parked: takes those messages.
        """
        batch, names = Batch(), self._names
        # Decisions leave room for what is due: a burst of named records must not stop all else.
        share = 2 if self.due or self.dead or self.resolutions else 1
        below = names.take(batch, -(-limit // share), limit_bytes // share)
        if self.dead or self.resolutions:
            self._take_undelivered(batch, below, limit - len(batch), limit_bytes - batch.size_bytes)
        self._take_due(batch, below, limit - len(batch), limit_bytes - batch.size_bytes, now_ms, apart, parked)
        return batch

    def _take_due(
        self,
        batch: Batch,
        below: int,
        room: int,
        limit_bytes: int,
        now_ms: int,
        apart: Container[str],
        parked: Parked,
    ) -> None:
        """Take messages that are due: those with names only below an offset; begin purges."""
        ready, due, parks = self.due, batch.due, bool(apart) or bool(parked)
        occurrences = self.most_occurrences - len(batch.occurrences)
        # A message must not leave before what is its duplicate: after a take-over, nobody would know that it is one.
        last_ms = min(now_ms, self.resolutions[0].message.due_ms - 1) if self.resolutions else now_ms
        while room > 0 and ready and ready[0].due_ms <= last_ms:
            message = ready[0]
            if type(message) is HeldPurge:
                if any(one.target == message.target for one in due):
                    break  # if their transaction aborts, they are parked, and belong to the purge
                ready.popleft()
                room -= self._begin_purge(message, batch, parked)
                continue
            if message.name is not None:
                repeats = type(message) is Occurrence
                if message.sequence >= below or (repeats and occurrences <= 0):
                    break  # the decision on it is not committed, nor in this batch
                if self._names.drop_first_if_superseded(ready):
                    continue
                occurrences -= repeats
            if parks and (message.target in apart or message.target in parked):
                ready.popleft()
                parked.park(message)
                continue
            limit_bytes -= message.size_bytes
            if limit_bytes < 0 and len(batch):
                break
            ready.popleft()
            due.append(message)
            room -= 1

    @staticmethod
    def _begin_purge(purge: HeldPurge, batch: Batch, parked: Parked) -> int:
        """Hand over a purge; return 1 if it is done at once, because nothing is parked for its target."""
        if parked.purge(purge):
            return 0
        batch.resolutions.append(Resolution(Outcome.PURGED, purge))
        return 1

    def _take_undelivered(self, batch: Batch, below: int, limit: int, limit_bytes: int) -> None:
        """Take dead letters and resolutions of records that are admitted below an offset."""
        first, rest = self._admitted_letters(below, limit)
        count = fitting([dead.size_bytes for dead in first], limit_bytes)
        batch.dead, self.dead = first[:count], [*first[count:], *rest]
        room = max(0, limit - count)
        resolutions = self._admitted_resolutions(below, room)
        sizes = [sum(record.size_bytes for record in resolution.records) for resolution in resolutions]
        room_bytes = limit_bytes - sum(dead.size_bytes for dead in batch.dead)
        count = fitting(sizes, room_bytes) if room_bytes > 0 or not batch.dead else 0
        batch.resolutions = resolutions[:count]
        del self.resolutions[:count]

    def _admitted_letters(self, below: int, limit: int) -> tuple[list[DeadMessage], list[DeadMessage]]:
        """Return the letters that may be taken, and the rest; drop those that were superseded since they were added."""
        names, first, rest = self._names, list[DeadMessage](), list[DeadMessage]()
        for dead in self.dead[: max(0, limit)]:
            if names.is_superseded(dead):
                names.drop(dead)
            elif dead.name is None or dead.sequence < below:
                first.append(dead)
            else:
                rest.append(dead)
        return first, rest + self.dead[max(0, limit) :]

    def _admitted_resolutions(self, below: int, limit: int) -> list[Resolution]:
        """Return the first resolutions that may be taken. A cancel by handle is too late for a superseded message."""
        names, found, seen = self._names, list[Resolution](), 0
        for message, cancel, resolution in ((one.message, one.cancel, one) for one in self.resolutions[:limit]):
            if names.is_superseded(message):
                names.drop(message)
                if cancel is not None:
                    found.append(Resolution(Outcome.CANCEL_TOO_LATE, cancel))
            elif isinstance(message, Occurrence) and found and self.most_occurrences == 1:
                break  # it may be a duplicate, which is followed, too
            elif message.name is None or message.sequence < below:
                found.append(resolution)
            else:
                break
            seen += 1
        self.resolutions[:seen] = found
        return found

    def put_back(self, batch: Batch) -> None:
        """Put a batch back, in front of the others."""
        self._names.put_back(batch)
        self.dead[:0] = batch.dead
        self.resolutions[:0] = batch.resolutions
        self.due.extendleft(reversed(batch.due))
