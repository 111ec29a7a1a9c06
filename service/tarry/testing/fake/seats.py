"""The members of a group of either protocol, by their ids."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tarry.testing.fake.membership import MemberRecord
from tarry.testing.manual_clock import ManualClock

SeatT = TypeVar("SeatT", bound=MemberRecord)


class Seats(Generic[SeatT]):
    """The base of both kinds of groups.

    Args:
        clock: for the timeouts of members.
        count: returns the number of partitions of a topic.
        new_id: creates member ids.
    """

    def __init__(self, clock: ManualClock, count: Callable[[str], int], new_id: Callable[[], str]) -> None:
        self._clock = clock
        self._count = count
        self._new_id = new_id
        self._seats: dict[str, SeatT] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self._seats

    def seats(self) -> Iterable[SeatT]:
        """Return the members."""
        return list(self._seats.values())

    def find(self, member: str) -> SeatT | None:
        """Return the member with this id, or None."""
        return self._seats.get(member)

    def _holder(self, instance: str | None) -> SeatT | None:
        """Return the static member with this instance; None if `instance` is None or no member has it."""
        if instance is None:
            return None
        return next((seat for seat in self._seats.values() if seat.application.instance == instance), None)
