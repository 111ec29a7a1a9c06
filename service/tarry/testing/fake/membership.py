"""The parts that groups of both protocols share: members, and the metadata that proves membership."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tarry.testing.fake.process import ClientProcess


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The group metadata that a transaction or a commit shows to prove membership.

    Attributes:
        group: the group's id.
        member: the member id; empty for a client that is not a member.
        generation: the generation, or the member epoch with KIP-848; -1 for a client that is not a member.
        instance: the instance id of static membership, or None.
    """

    group: str
    member: str = ""
    generation: int = -1
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """A request to join a group.

    Attributes:
        process: the process of the client.
        member: the member id of an earlier join; empty the first time.
        instance: the instance id of static membership, or None.
        topics: the subscribed topics.
        session_ms: the time without a heartbeat after which the group removes the member.
        rebalance_ms: the time after which the group removes a member that does not respond in a rebalance.
        assignors: the names of the assignors that it accepts, the preferred one first.
    """

    process: ClientProcess
    member: str
    instance: str | None
    topics: Sequence[str]
    session_ms: int
    rebalance_ms: int
    assignors: Sequence[str]


class MemberRecord(Protocol):
    """The group's record of a member."""

    id: str
    application: Application


class GroupMembers(Protocol):
    """The members of a group, by one of the two protocols."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    def seats(self) -> Iterable[MemberRecord]:
        """Return the members."""
        ...

    def check(self, shown: GroupMetadata, *, transactional: bool) -> None:
        """Check whether a commit is allowed.

        Raises:
            Refused: it is not from a member, or has an old generation or epoch.
        """
        ...

    def remove(self, member: str) -> None:
        """Remove a member, if there is one with this id."""
        ...

    def look_again(self) -> None:
        """React to changed topics or to processes that respond again."""
        ...
