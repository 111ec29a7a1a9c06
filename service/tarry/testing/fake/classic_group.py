"""A group of the classic protocol: all members rejoin, the leader assigns, and all members get their assignment."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from confluent_kafka import KafkaError

from tarry.kafka.types import Place
from tarry.testing.fake.assigning import ASSIGNORS, chosen
from tarry.testing.fake.membership import Application, GroupMetadata
from tarry.testing.fake.refusals import RefusedRequest
from tarry.testing.fake.seats import Seats
from tarry.testing.manual_clock import ManualClock


class RebalancePhase(Enum):
    """The state of a group in a rebalance."""

    EMPTY = auto()
    PREPARING = auto()
    """The group waits for its members to rejoin."""
    COMPLETING = auto()
    """The group waits for the leader's assignment."""
    STABLE = auto()


@dataclass(slots=True)
class ClassicSeat:
    """A member.

    Attributes:
        id: the member id, which the group has chosen.
        application: its last request to join.
        joined: whether it belongs to the generation that is being formed, or that was formed last.
        assignment: its partitions in that generation.
    """

    id: str
    application: Application
    joined: bool = False
    assignment: tuple[Place, ...] = ()


class ClassicGroup(Seats[ClassicSeat]):
    """One group of the classic protocol. In a rebalance, its members must rejoin within their rebalance timeout.

    Args:
        clock: see `Seats`.
        count: see `Seats`.
        new_id: see `Seats`.
    """

    def __init__(self, clock: ManualClock, count: Callable[[str], int], new_id: Callable[[], str]) -> None:
        super().__init__(clock, count, new_id)
        self._leader = ""
        self._rebalances = 0
        self._counts: dict[str, int] = {}
        self.phase = RebalancePhase.EMPTY
        self.generation = 0

    def join(self, application: Application) -> str:
        """Add a new member, or an existing one to the next generation.

        Returns:
            The member id.

        Raises:
            Refused: the group does not know the member id, or another member has its instance now.
        """
        member = application.member
        held = self._holder(application.instance)
        if held is not None and held.id != member:
            if member:
                raise RefusedRequest(KafkaError.FENCED_INSTANCE_ID)
            return self._replace(held, application)
        if member and member not in self._seats:
            raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
        if not member:
            member = self._new_id()
            self._seats[member] = ClassicSeat(member, application)
        if self.phase is not RebalancePhase.PREPARING:
            self._prepare()
        seat = self._seats[member]
        seat.application, seat.joined = application, True
        self._complete_if_all_rejoined()
        return member

    def beat(self, member: str, instance: str | None) -> bool:
        """Process a heartbeat; return whether the member must rejoin.

        Raises:
            Refused: the group does not know the member id, or another member has its instance now.
        """
        held = self._holder(instance)
        if held is not None and held.id != member:
            raise RefusedRequest(KafkaError.FENCED_INSTANCE_ID)
        if member not in self._seats:
            raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
        return self.phase is RebalancePhase.PREPARING and not self._seats[member].joined

    def check(self, shown: GroupMetadata, *, transactional: bool) -> None:
        """Check whether a commit is allowed.

        Raises:
            Refused: it is not from a member, or has an old generation.
        """
        if shown.generation < 0 and self.is_empty:
            return
        if shown.generation < 0 and not shown.member and shown.instance is None:
            if transactional:
                return
            raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
        held = self._holder(shown.instance)
        if held is not None and held.id != shown.member:
            raise RefusedRequest(KafkaError.FENCED_INSTANCE_ID)
        if shown.member not in self._seats:
            raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
        if shown.generation != self.generation:
            raise RefusedRequest(KafkaError.ILLEGAL_GENERATION)
        if self.phase is RebalancePhase.COMPLETING and not transactional:
            raise RefusedRequest(KafkaError.REBALANCE_IN_PROGRESS)

    def remove(self, member: str) -> None:
        """Remove a member, if there is one with this id: it has left, or its session has expired."""
        if self._seats.pop(member, None) is None:
            return
        if not self._seats:
            self.phase = RebalancePhase.EMPTY
            self.generation += 1
        elif self.phase is RebalancePhase.PREPARING:
            self._complete_if_all_rejoined()
        else:
            self._prepare()

    def look_again(self) -> None:
        """Rebalance if topics have changed; complete the assignment if the leader responds again."""
        if self.phase is RebalancePhase.COMPLETING:
            self._let_the_leader_assign()
        elif self.phase is RebalancePhase.STABLE and self._counts != self._count_all():
            self._prepare()

    def _replace(self, held: ClassicSeat, application: Application) -> str:
        """Replace a static member by a new process. In a stable group this causes no rebalance."""
        member = self._new_id()
        seat = ClassicSeat(member, application, joined=True, assignment=held.assignment)
        self._seats = {
            (member if one is held else one.id): (seat if one is held else one) for one in self._seats.values()
        }
        if self._leader == held.id:
            self._leader = member
        if self.phase is RebalancePhase.COMPLETING:
            self._prepare()
            seat.joined = True
        self._complete_if_all_rejoined()
        return member

    def _prepare(self) -> None:
        self.phase = RebalancePhase.PREPARING
        self._rebalances += 1
        for seat in self._seats.values():
            seat.joined = False
        longest_ms = max(seat.application.rebalance_ms for seat in self._seats.values())
        self._clock.call_at(
            self._clock.monotonic_ms() + longest_ms, partial(self._remove_absent_members, self._rebalances)
        )

    def _remove_absent_members(self, rebalance: int) -> None:
        if self.phase is RebalancePhase.PREPARING and rebalance == self._rebalances:
            for seat in [seat for seat in self._seats.values() if not seat.joined]:
                self.remove(seat.id)

    def _complete_if_all_rejoined(self) -> None:
        if self.phase is not RebalancePhase.PREPARING or not all(seat.joined for seat in self._seats.values()):
            return
        self.generation += 1
        self.phase = RebalancePhase.COMPLETING
        if self._leader not in self._seats:
            self._leader = next(iter(self._seats))
        self._let_the_leader_assign()

    def _let_the_leader_assign(self) -> None:
        if not self._seats[self._leader].application.process.responds:
            return
        ranked = sorted(self._seats.values(), key=lambda seat: seat.application.instance or seat.id)
        assign = ASSIGNORS[chosen(seat.application.assignors for seat in ranked)]
        given = assign({seat.id: seat.application.topics for seat in ranked}, self._count, {})
        for seat in ranked:
            seat.assignment = tuple(given[seat.id])
        self._counts = self._count_all()
        self.phase = RebalancePhase.STABLE

    def _count_all(self) -> dict[str, int]:
        return {topic: self._count(topic) for seat in self._seats.values() for topic in seat.application.topics}
