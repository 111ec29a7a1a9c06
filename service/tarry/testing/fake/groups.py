"""The group coordinator: groups, the sessions of their members, and their offsets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from confluent_kafka import KafkaError

from tarry.testing.fake.classic_group import ClassicGroup
from tarry.testing.fake.consumer_group import ConsumerGroup
from tarry.testing.fake.membership import GroupMembers, MemberRecord
from tarry.testing.fake.offsets import GroupOffsets
from tarry.testing.fake.process import ClientProcess
from tarry.testing.fake.refusals import RefusedRequest
from tarry.testing.manual_clock import ManualClock

HEARTBEATS_A_SESSION = 3

Kind = TypeVar("Kind", ClassicGroup, ConsumerGroup)


@dataclass(slots=True)
class Group:
    """One group.

    Attributes:
        membership: its members, by the classic or the KIP-848 protocol.
        offsets: its committed offsets.
        away_until_ms: the monotonic time until which its coordinator does not answer.
    """

    membership: GroupMembers
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    away_until_ms: int = 0


class Groups:
    """All groups.

    Args:
        clock: for sessions.
        random: draws how long ago the last heartbeat of a session was.
        count: returns the number of partitions of a topic.
        running: whether the cluster runs; while it does not, no session expires.
    """

    def __init__(
        self, clock: ManualClock, random: Random, count: Callable[[str], int], running: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._random = random
        self._count = count
        self._running = running
        self._began_ms = clock.monotonic_ms()
        self._groups: dict[str, Group] = {}
        self._members = 0

    def of(self, name: str) -> Group:
        """Return the group with this name; create it if it does not exist."""
        if name not in self._groups:
            self._groups[name] = Group(self._new(ClassicGroup))
        return self._groups[name]

    def of_kind(self, name: str, kind: type[Kind]) -> Kind:
        """Return a group's membership for the protocol of a client.

        Raises:
            Refused: the group has members of the other protocol.
        """
        group = self.of(name)
        if not isinstance(group.membership, kind):
            if not group.membership.is_empty:
                raise RefusedRequest(KafkaError.INCONSISTENT_GROUP_PROTOCOL)
            group.membership = self._new(kind)
        return group.membership

    def fall_silent(self, process: ClientProcess) -> None:
        """Stop the heartbeats of a process: the sessions of its members expire, unless it continues before."""
        for group in self._groups.values():
            for seat in group.membership.seats():
                if seat.application.process is process:
                    session_ms = seat.application.session_ms
                    ends = partial(self._end_session, group.membership, seat, process, process.freezes)
                    since_ms = self._random.randint(0, session_ms // HEARTBEATS_A_SESSION)
                    self._clock.call_at(self._clock.monotonic_ms() + session_ms - since_ms, ends)

    def expire(self, name: str, member: str, session_ms: int, lives: Callable[[], bool] = lambda: False) -> None:
        """Remove an unused member id when its session expires. While `lives` is true, the session is renewed."""

        def ends() -> None:
            if lives():
                self.expire(name, member, session_ms, lives)
            else:
                self.of(name).membership.remove(member)

        self._clock.call_at(self._clock.monotonic_ms() + session_ms, partial(self._end, session_ms, ends))

    def begin_sessions(self) -> None:
        """Restart all sessions, because the cluster was down."""
        self._began_ms = self._clock.monotonic_ms()

    def look_again(self) -> None:
        """Let all groups react to changed topics or to processes that respond again."""
        for group in self._groups.values():
            group.membership.look_again()

    def forget_topic(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for group in self._groups.values():
            group.offsets.forget(topic)

    def _end_session(self, membership: GroupMembers, seat: MemberRecord, process: ClientProcess, freezes: int) -> None:
        if not process.alive or (process.frozen and process.freezes == freezes):
            self._end(seat.application.session_ms, partial(membership.remove, seat.id))

    def _end(self, session_ms: int, ends: Callable[[], None]) -> None:
        """End a session, unless it was restarted because the cluster was down."""
        now_ms = self._clock.monotonic_ms()
        over_ms = self._began_ms + session_ms if self._running() else now_ms + session_ms
        if now_ms >= over_ms:
            ends()
        else:
            self._clock.call_at(over_ms, partial(self._end, session_ms, ends))

    def _new(self, kind: type[Kind]) -> Kind:
        return kind(self._clock, self._count, self._new_id)

    def _new_id(self) -> str:
        self._members += 1
        return f"member-{self._members:06}"
