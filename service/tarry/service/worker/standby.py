"""Partitions that a rebalance has revoked and may give back: their states stand by, so that nothing is replayed.

A classic group revokes all partitions from all members whenever a member joins or leaves, and gives most of them back
at once. A partition that no other process owned in between is unchanged. Two checks tell whether one did:

- The group's committed offset is still that of our release, to the byte, unless another process has taken the
  partition over since: a take-over commits the other process's transactional ids before anything else.
- A process with our own transactional ids registers all of them before it takes anything over. So a transaction of the
  firing producer that committed the release, not registered again since, succeeds only if there was no such process.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import CheckpointError, decode_checkpoint
from tarry.errors import RetriableError
from tarry.kafka.offsets import NOT_STABLE
from tarry.kafka.types import OffsetMetadata, Place
from tarry.service.worker.connections import Connections


class _Standing(NamedTuple):
    """A partition that stands by.

    Args:
        state: its state.
        released: the offset and metadata committed at its release.
        registrations: the firing producer's number of registrations at the release.
    """

    state: PartitionState
    released: OffsetMetadata
    registrations: int


class Standby:
    """The partitions of one process that stand by.

    Args:
        connections: its clients.
        commit_checkpoints: commits checkpoints of partitions in a transaction of the firing producer.
    """

    def __init__(
        self, connections: Connections, commit_checkpoints: Callable[[Sequence[PartitionState]], object]
    ) -> None:
        self._connections = connections
        self._commit_checkpoints = commit_checkpoints
        self._standing: dict[Place, _Standing] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._standing

    def put(self, state: PartitionState, released: OffsetMetadata) -> None:
        """Keep a partition's state.

        Args:
            state: it does not change any more: none of its transactions can still commit, and nothing reads for it.
            released: the offset and metadata committed at its release.
        """
        self._standing[state.place] = _Standing(state, released, self._connections.firing.registrations)

    def keep(self, places: Collection[Place]) -> None:
        """Keep only these partitions, which the group has assigned to us; the others belong to other members."""
        self._close(self._standing.keys() - set(places))

    def drop(self, places: Collection[Place]) -> None:
        """Drop these partitions: their logs may change before they are served again."""
        self._close(self._standing.keys() & set(places))

    def clear(self) -> None:
        """Drop all: none of them is ours any more, or their state is unknown."""
        self._close(list(self._standing))

    def resume(self, places: Sequence[Place]) -> dict[Place, PartitionState]:
        """Resume the partitions that no other process has taken over; drop the others of `places`.

        Args:
            places: partitions for which membership was just proved.

        Returns:
            The states of the resumed partitions. Their checkpoints are signed, so the next owner must fence us first.

        Raises:
            RetriableError: a rebalance is going on, or there is no answer; try again.
            AbortableError: the same.
            FatalError: a process with our own transactional ids owned them, and has fenced our producers.
        """
        states = {place: self._standing[place].state for place in self._untouched(places)}
        if not states:
            return {}
        # As in any take-over, a transaction may touch the partitions only after this commit.
        self._connections.membership.commit({place: state.plain_checkpoint() for place, state in states.items()})
        self._commit_checkpoints(list(states.values()))
        for place in states:
            del self._standing[place]
        return states

    def _untouched(self, places: Sequence[Place]) -> list[Place]:
        """Return those that stand by and that no process with other ids has taken over; drop the others."""
        registrations = self._connections.firing.registrations
        here = [place for place in places if place in self._standing]
        here = self._keep_if(here, lambda place: self._standing[place].registrations == registrations)
        if here:
            # Do not wait for open transactions: only a take-over ends those of another owner that has died.
            last = self._connections.offsets.committed(here)
            here = self._keep_if(here, lambda place: self._is_signed_by_us(last.get(place)))
        if here:
            stable = self._stable_offsets(here)
            here = self._keep_if(here, lambda place: stable.get(place) == self._standing[place].released)
        return here

    def _stable_offsets(self, places: Sequence[Place]) -> dict[Place, OffsetMetadata]:
        try:
            return self._connections.membership.committed(places)
        except RetriableError as error:
            if error.code != NOT_STABLE:
                raise
            return {}  # something stays pending, which only a take-over ends

    def _keep_if(self, places: Sequence[Place], holds: Callable[[Place], bool]) -> list[Place]:
        kept = [place for place in places if holds(place)]
        self._close(set(places).difference(kept))
        return kept

    def _is_signed_by_us(self, committed: OffsetMetadata | None) -> bool:
        """Return whether the committed checkpoint has our transactional ids, ignoring pending transactional offsets."""
        try:
            return committed is not None and decode_checkpoint(committed[1]).writer == self._connections.writer
        except CheckpointError:
            return False

    def _close(self, places: Collection[Place]) -> None:
        for place in places:
            self._standing.pop(place).state.close()
