"""A group of the KIP-848 protocol: the group assigns, and each member reconciles at its own pace."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError

from tarry.kafka.types import Place
from tarry.testing.fake.assigning import ASSIGNORS, chosen
from tarry.testing.fake.membership import Application, GroupMetadata
from tarry.testing.fake.refusals import RefusedRequest
from tarry.testing.fake.seats import Seats
from tarry.testing.manual_clock import ManualClock


@dataclass(slots=True)
class ConsumerSeat:
    """A member.

    Attributes:
        id: the member id, which the client has chosen.
        application: its request to join.
        epoch: the member epoch: that of the last target assignment that it has reconciled with.
        owned: its current partitions, including those that it must still give up.
        target: its target assignment.
        away: whether it is a static member that has left; its assignment is kept until its session expires.
    """

    id: str
    application: Application
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    target: set[Place] = field(default_factory=set)
    away: bool = False


class ConsumerGroup(Seats[ConsumerSeat]):
    """One group of the KIP-848 protocol. Its members must give up partitions within their rebalance timeout.

    Args:
        clock: see `Seats`.
        count: see `Seats`.
        new_id: see `Seats`.
    """

    def __init__(self, clock: ManualClock, count: Callable[[str], int], new_id: Callable[[], str]) -> None:
        super().__init__(clock, count, new_id)
        self._epoch = 0

    def join(self, application: Application) -> str:
        """Add a member.

        Returns:
            The member id.

        Raises:
            Refused: another member still has its instance.
        """
        member = application.member or self._new_id()
        held = self._holder(application.instance)
        if held is not None and not held.away and held.id != member:
            raise RefusedRequest(KafkaError.UNRELEASED_INSTANCE_ID)
        seat = ConsumerSeat(member, application)
        if held is not None:
            del self._seats[held.id]
            seat.owned, seat.target = held.owned & held.target, held.target
            self._seats[member] = seat
            self._reconcile()
        else:
            self._seats[member] = seat
            self._retarget()
        return member

    def release(self, member: str, places: Iterable[Place]) -> None:
        """Take back partitions that a member has given up."""
        if (seat := self._seats.get(member)) is not None:
            seat.owned.difference_update(places)
            self._reconcile()

    def leave(self, member: str) -> None:
        """Remove a dynamic member; keep a static one until its session expires, because it may return."""
        seat = self._seats.get(member)
        if seat is None:
            return
        if seat.application.instance is None:
            self.remove(member)
            return
        seat.away = True
        self._clock.call_at(self._clock.monotonic_ms() + seat.application.session_ms, partial(self.remove, member))

    def check(self, shown: GroupMetadata, *, transactional: bool) -> None:
        """Check whether a commit is allowed.

        Raises:
            Refused: it is not from a member, or has an old epoch.
        """
        if shown.generation < 0 and self.is_empty:
            return
        seat = self._seats.get(shown.member)
        if seat is None:
            raise RefusedRequest(KafkaError.UNKNOWN_MEMBER_ID)
        if shown.generation != seat.epoch:
            raise RefusedRequest(KafkaError.ILLEGAL_GENERATION if transactional else KafkaError.STALE_MEMBER_EPOCH)

    def remove(self, member: str) -> None:
        """Remove a member, if there is one with this id."""
        if self._seats.pop(member, None) is not None:
            self._retarget()

    def look_again(self) -> None:
        """Assign again if topics have changed; let members that respond again reconcile."""
        if self._assignment() != {seat.id: seat.target for seat in self._seats.values()}:
            self._retarget()
        else:
            self._reconcile()

    def _assignment(self) -> dict[str, set[Place]]:
        ranked = sorted(self._seats.values(), key=lambda seat: seat.application.instance or seat.id)
        if not ranked:
            return {}
        assign = ASSIGNORS[chosen(seat.application.assignors for seat in ranked)]
        owned = {seat.id: seat.target for seat in ranked}
        given = assign({seat.id: seat.application.topics for seat in ranked}, self._count, owned)
        return {member: set(places) for member, places in given.items()}

    def _retarget(self) -> None:
        """Start a new group epoch with a new target assignment."""
        self._epoch += 1
        for member, places in self._assignment().items():
            seat = self._seats[member]
            seat.target = places
            if seat.owned - places:
                late_ms = self._clock.monotonic_ms() + seat.application.rebalance_ms
                self._clock.call_at(late_ms, partial(self._remove_if_late, seat, self._epoch))
        self._reconcile()

    def _remove_if_late(self, seat: ConsumerSeat, epoch: int) -> None:
        if self._seats.get(seat.id) is seat and seat.epoch < epoch:
            self.remove(seat.id)

    def _reconcile(self) -> None:
        """Let each member reconcile as far as it can: it cannot get partitions that another member still owns."""
        for seat in self._seats.values():
            if seat.away or not seat.application.process.responds or seat.owned - seat.target:
                continue
            seat.epoch = self._epoch
            others = {place for other in self._seats.values() if other is not seat for place in other.owned}
            seat.owned |= seat.target - others
