"""Partitions that a rebalance took away and may give back: their state stands by, so that nothing is replayed.

A classic group takes all partitions from all members whenever one comes or goes, and gives most of them back at once.
What nobody else has had in between is as we left it. Whether anybody had it, the group's committed offset tells: it is
the one of our release, unless somebody has taken the partition over since, who wrote another name there before anything
else. Only a process with our own transactional ids would write the same name; by registering them it has shut out our
producers, and our next transaction is refused.
"""

from collections.abc import Collection, Sequence

from tarry.core.partition import PartitionState
from tarry.kafka.membership import Membership
from tarry.kafka.place import OffsetMetadata, Place


class Standby:
    """What stands by of one process.

    Args:
        membership: tells what is committed, and commits.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._states: dict[Place, tuple[PartitionState, OffsetMetadata]] = {}

    def put(self, state: PartitionState, released: OffsetMetadata) -> None:
        """Keep a partition's state.

        Args:
            state: as it is now; nothing of it is in an open transaction, and nothing reads for it.
            released: what was committed when it was given up.
        """
        self._states[state.place] = state, released

    def keep(self, places: Collection[Place]) -> None:
        """The group has given us these: all else is somebody else's."""
        self._close(self._states.keys() - set(places))

    def clear(self) -> None:
        """Nothing of it is ours, or its state is not known."""
        self._close(list(self._states))

    def untouched(self, places: Sequence[Place]) -> list[Place]:
        """Which of these stand by and were not taken over by anybody; the others stand by no more.

        Args:
            places: partitions that membership was just proved of.

        Raises:
            RetriableError: there is no answer.
        """
        here = [place for place in places if place in self._states]
        if not here:
            return []
        committed = self._membership.committed(here)
        self._close([place for place in here if committed.get(place) != self._states[place][1]])
        return [place for place in here if place in self._states]

    def resume(self, places: Sequence[Place]) -> dict[Place, PartitionState]:
        """Go on with partitions that are untouched: from now on whoever takes one over shuts us out first.

        Raises:
            RetriableError: the group moves on; ask again what is untouched.
        """
        if not places:
            return {}
        states = {place: self._states[place][0] for place in places}
        rests = {place: state.rest() for place, state in states.items()}
        self._membership.commit({place: (rest.low, rest.metadata) for place, rest in rests.items()})
        for place, state in states.items():
            state.confirm_rest()
            del self._states[place]
        return states

    def _close(self, places: Collection[Place]) -> None:
        for place in places:
            self._states.pop(place)[0].close()
