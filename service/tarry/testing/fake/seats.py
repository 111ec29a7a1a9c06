"""The members of a group of either kind, by their ids."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tarry.testing.fake.membership import Seat
from tarry.testing.manual_clock import ManualClock

SeatT = TypeVar("SeatT", bound=Seat)


class Seats(Generic[SeatT]):
    """What both kinds of groups are made of.

    Args:
        clock: for the time that members have to do what the group asks of them.
        count: how many partitions a topic has.
        new_id: makes ids of members.
    """

    def __init__(self, clock: ManualClock, count: Callable[[str], int], new_id: Callable[[], str]) -> None:
        self._clock = clock
        self._count = count
        self._new_id = new_id
        self._seats: dict[str, SeatT] = {}

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self._seats

    def seats(self) -> Iterable[SeatT]:
        """The members."""
        return list(self._seats.values())

    def find(self, member: str) -> SeatT | None:
        """A member, or None."""
        return self._seats.get(member)

    def _holder(self, instance: str | None) -> SeatT | None:
        """The member that has a static instance; None where that is None, or no member has it."""
        if instance is None:
            return None
        return next((seat for seat in self._seats.values() if seat.application.instance == instance), None)
