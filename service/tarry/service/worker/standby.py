"""Partitions that a rebalance took away and may give back: their state stands by, so that nothing is replayed.

A classic group takes all partitions from all members whenever one comes or goes, and gives most of them back at once.
What nobody else has had in between is as we left it. Two things tell whether anybody had it:

- The group's committed offset is that of our release, to the byte, unless somebody has taken the partition over since:
  that writes another name there before anything else.
- A process of our own name has our transactional ids, and registers all of them before it takes anything over. So a
  transaction of the firing producer that is still the one of the release goes through only where there was none.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import CheckpointError, decode
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.worker.connections import Connections


class _Standing(NamedTuple):
    """A partition that stands by.

    Args:
        state: of it.
        released: what was committed when it was given up.
        registrations: of the firing producer then.
    """

    state: PartitionState
    released: OffsetMetadata
    registrations: int


class Standby:
    """What stands by of one process.

    Args:
        connections: its clients.
        commit_rest: commits checkpoints of partitions in a transaction of the firing producer.
    """

    def __init__(self, connections: Connections, commit_rest: Callable[[Sequence[PartitionState]], object]) -> None:
        self._connections = connections
        self._commit_rest = commit_rest
        self._standing: dict[Place, _Standing] = {}

    def put(self, state: PartitionState, released: OffsetMetadata) -> None:
        """Keep a partition's state.

        Args:
            state: as it is now: nothing of it can be committed any more, and nothing reads for it.
            released: what was committed when it was given up.
        """
        self._standing[state.place] = _Standing(state, released, self._connections.firing.registrations)

    def keep(self, places: Collection[Place]) -> None:
        """The group has given us these: all else is somebody else's."""
        self._close(self._standing.keys() - set(places))

    def clear(self) -> None:
        """Nothing of it is ours, or its state is not known."""
        self._close(list(self._standing))

    def resume(self, places: Sequence[Place]) -> dict[Place, PartitionState]:
        """Go on with what was not taken over by anybody; all else of it stands by no more.

        Args:
            places: partitions that membership was just proved of.

        Returns:
            The states of those that are ours now: from now on whoever takes one over shuts us out first.

        Raises:
            RetriableError: the group moves on, or there is no answer; try again.
            AbortableError: the same.
            FatalError: a process of our own name had them, and has shut out our producers.
        """
        states = {place: self._standing[place].state for place in self._untouched(places)}
        if not states:
            return {}
        rests = {place: state.rest() for place, state in states.items()}
        # As for any take-over: only now a transaction may touch them.
        self._connections.membership.commit({place: (rest.low, rest.metadata) for place, rest in rests.items()})
        self._commit_rest(list(states.values()))
        for place in states:
            del self._standing[place]
        return states

    def _untouched(self, places: Sequence[Place]) -> list[Place]:
        """Which of these stand by and were taken over by nobody of another name; the others are dropped."""
        registrations = self._connections.firing.registrations
        here = [place for place in places if place in self._standing]
        here = self._keep_of(here, lambda place: self._standing[place].registrations == registrations)
        if here:
            # Without waiting for open transactions: those of another owner, who is dead, are ended by a take-over.
            last = self._connections.offsets.committed(here)
            here = self._keep_of(here, lambda place: self._is_of_ours(last.get(place)))
        if here:
            stable = self._connections.membership.committed(here)
            here = self._keep_of(here, lambda place: stable.get(place) == self._standing[place].released)
        return here

    def _keep_of(self, places: Sequence[Place], holds: Callable[[Place], bool]) -> list[Place]:
        kept = [place for place in places if holds(place)]
        self._close(set(places).difference(kept))
        return kept

    def _is_of_ours(self, committed: OffsetMetadata | None) -> bool:
        """Whether what is committed, but for what a transaction may be about to, has our name."""
        try:
            return committed is not None and decode(committed[1]).writer == self._connections.writer
        except CheckpointError:
            return False

    def _close(self, places: Collection[Place]) -> None:
        for place in places:
            self._standing.pop(place).state.close()
