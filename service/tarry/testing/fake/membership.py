"""What the two kinds of groups have in common: members, and the proof that somebody is one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tarry.testing.fake.process import Process


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What a transaction or a commit shows to prove membership.

    Attributes:
        group: its id.
        member: id of the member; empty for who is none.
        generation: or the member's epoch; -1 for who is no member.
        instance: of static membership, or None.
    """

    group: str
    member: str = ""
    generation: int = -1
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """A request to be a member.

    Attributes:
        process: whose client asks.
        member: id from before; empty for a first time.
        instance: of static membership, or None.
        topics: subscribed to.
        session_ms: after so long without a heartbeat the member is out.
        rebalance_ms: after so long the group goes on without a member that does not answer.
    """

    process: Process
    member: str
    instance: str | None
    topics: Sequence[str]
    session_ms: int
    rebalance_ms: int


class Seat(Protocol):
    """A member, as its group knows it."""

    id: str
    application: Application


class Membership(Protocol):
    """Who is a member of a group, and of what kind that is."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def seats(self) -> Iterable[Seat]:
        """The members."""
        ...

    def check(self, shown: GroupMetadata, *, transactional: bool) -> None:
        """Let a commit through.

        Raises:
            Refused: not by a member, or with an old generation or epoch.
        """
        ...

    def remove(self, member: str) -> None:
        """Put a member out, if it is one."""
        ...

    def look_again(self) -> None:
        """Topics have changed, or processes woken up."""
        ...
