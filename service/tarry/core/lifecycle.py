"""The life of a partition in a process, and of the process's membership in its group, as transition tables: pure.

Each table lists, for each phase, the events that may happen in it and the phase that follows. An event that a phase
does not list raises `IllegalMoveError`: the process ends rather than continue in an unforeseen state.

A partition that the process does not hold has no phase (`None`):

    None → WAITING → TAKING_OVER → SERVED → None        assigned, taken over, served (after its replay), given up
    SERVED → STANDING_BY → WAITING → SERVED             a classic rebalance takes it away and gives it back: resumed
    SERVED → WAITING                                    a producer was lost: it is taken over again
    any of ours → AWAY, QUARANTINED → WAITING           set aside, and tried again
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from tarry.native import mypyc_attr


@mypyc_attr(native_class=False)
class IllegalMoveError(AssertionError):
    """An event that cannot happen in this phase: a bug in the caller."""


class Phase(Enum):
    """The phase of a partition's life."""

    WAITING = auto()
    """Assigned. Its take-over has not begun yet, or must begin again."""
    TAKING_OVER = auto()
    """Membership is proved; earlier owners are fenced and its logs are read."""
    SERVED = auto()
    """Taken over: the process holds its `PartitionState`. Its messages fire when its replay has ended."""
    AWAY = auto()
    """One of its logs has no leader. It waits until all have one."""
    QUARANTINED = auto()
    """Only an operator can repair it. The process tries periodically to take it over."""
    STANDING_BY = auto()
    """Revoked in a classic rebalance, which may assign it again: the process keeps its state unchanged."""


class Event(Enum):
    """An event in a partition's life."""

    ASSIGNED = auto()
    BEGUN = auto()
    """Its take-over has begun."""
    STOPPED = auto()
    """Its take-over was refused for now, or given up, and must begin again."""
    TAKEN_OVER = auto()
    RESUMED = auto()
    """It stood by, and no other process owned it meanwhile."""
    RESTARTED = auto()
    """The outcome of its last transaction is unknown: it must be taken over again."""
    LEADERLESS = auto()
    FAULTY = auto()
    DUE = auto()
    """It is time to try it again."""
    KEPT = auto()
    """Revoked, with its state kept."""
    GIVEN_UP = auto()
    """Revoked or lost."""


_SET_ASIDE: Final = {Event.LEADERLESS: Phase.AWAY, Event.FAULTY: Phase.QUARANTINED, Event.GIVEN_UP: None}
"""The events that may happen in every phase in which the partition is assigned to this process."""

_KEPT: Final = {Event.KEPT: Phase.STANDING_BY}
"""It may happen while the process has the partition's state: also before a partition that stood by is resumed."""

PARTITION: Final[Mapping[Phase | None, Mapping[Event, Phase | None]]] = MappingProxyType(
    {
        None: {Event.ASSIGNED: Phase.WAITING},
        Phase.WAITING: {**_SET_ASIDE, **_KEPT, Event.BEGUN: Phase.TAKING_OVER, Event.RESUMED: Phase.SERVED},
        Phase.TAKING_OVER: {**_SET_ASIDE, Event.TAKEN_OVER: Phase.SERVED, Event.STOPPED: Phase.WAITING},
        Phase.SERVED: {**_SET_ASIDE, **_KEPT, Event.RESTARTED: Phase.WAITING},
        Phase.AWAY: {**_SET_ASIDE, Event.DUE: Phase.WAITING},
        Phase.QUARANTINED: {**_SET_ASIDE, Event.DUE: Phase.WAITING},
        Phase.STANDING_BY: {Event.ASSIGNED: Phase.WAITING, Event.GIVEN_UP: None},
    }
)

Place = tuple[str, int]
"""A topic and a partition."""


class Lives:
    """The phases of all partitions of a process."""

    __slots__ = ("_phases",)

    def __init__(self) -> None:
        self._phases: dict[Place, Phase] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._phases

    def phase(self, place: Place) -> Phase | None:
        """The phase of a partition; None: the process does not hold it."""
        return self._phases.get(place)

    def having(self, *phases: Phase) -> set[Place]:
        """The partitions in one of these phases."""
        return {place for place, phase in self._phases.items() if phase in phases}

    def move(self, event: Event, places: Iterable[Place]) -> None:
        """Let an event happen to partitions.

        Raises:
            IllegalMoveError: it cannot happen to one of them; those before it have moved.
        """
        for place in places:
            phase = self._phases.get(place)
            allowed = PARTITION[phase]
            if event not in allowed:
                raise IllegalMoveError(f"{place[0]}/{place[1]}: {event.name} in phase {phase.name if phase else None}")
            if (following := allowed[event]) is None:
                del self._phases[place]
            else:
                self._phases[place] = following


class MemberPhase(Enum):
    """The phase of a process's membership of its group."""

    JOINING = auto()
    """The group has not assigned partitions to the process yet."""
    MEMBER = auto()
    """The group has assigned partitions to the process, possibly none."""
    INSTANCE_IN_USE = auto()
    """KIP-848: another member has the same instance id, or its session has not expired. The process retries."""
    LOST = auto()
    """KIP-848: the process lost its partitions. It waits for new ones; usually the library rejoins by itself."""
    REJOINED = auto()
    """KIP-848: the process got no partitions in time, has joined again, and waits once more."""
    SHUT_OUT = auto()
    """A fatal error ended the membership. A static member finds out who has its instance."""


class MemberEvent(Enum):
    """An event of a membership."""

    ASSIGNED = auto()
    INSTANCE_TAKEN = auto()
    """The group refuses the instance: it is in use."""
    LOST = auto()
    """Partitions were lost (KIP-848)."""
    WAITED = auto()
    """The process got no partitions in time, and joins again."""
    CONFIRMED = auto()
    """The process got no partitions in time, but the client library confirms that it is a member: there are none."""
    GROUP_GONE = auto()
    """The coordinator does not know the group or the member: the process joins again."""
    ENDED = auto()
    """A fatal error has ended the membership."""
    REJOINED = auto()
    """After a fatal error: no other member has the instance id, so the process joins again."""


_ANY_TIME: Final = {
    MemberEvent.ASSIGNED: MemberPhase.MEMBER,
    MemberEvent.INSTANCE_TAKEN: MemberPhase.INSTANCE_IN_USE,
    MemberEvent.LOST: MemberPhase.LOST,
    MemberEvent.GROUP_GONE: MemberPhase.JOINING,
    MemberEvent.ENDED: MemberPhase.SHUT_OUT,
}
"""The events that may happen in every phase in which the process polls its group."""

MEMBER: Final[Mapping[MemberPhase, Mapping[MemberEvent, MemberPhase]]] = MappingProxyType(
    {
        MemberPhase.JOINING: _ANY_TIME,
        MemberPhase.MEMBER: _ANY_TIME,
        MemberPhase.INSTANCE_IN_USE: _ANY_TIME,
        MemberPhase.LOST: {**_ANY_TIME, MemberEvent.WAITED: MemberPhase.REJOINED},
        MemberPhase.REJOINED: {
            **_ANY_TIME,
            MemberEvent.WAITED: MemberPhase.REJOINED,
            MemberEvent.CONFIRMED: MemberPhase.MEMBER,
        },
        MemberPhase.SHUT_OUT: {MemberEvent.REJOINED: MemberPhase.JOINING},
    }
)

WAITING_FOR_PARTITIONS: Final[Collection[MemberPhase]] = (MemberPhase.LOST, MemberPhase.REJOINED)


class MemberLife:
    """The phase of a process's membership, and since when it is in it."""

    __slots__ = ("_since_ms", "phase")

    def __init__(self) -> None:
        self.phase = MemberPhase.JOINING
        self._since_ms = 0

    def move(self, event: MemberEvent, now_ms: int) -> None:
        """Let an event happen.

        Args:
            event: the event.
            now_ms: monotonic time.

        Raises:
            IllegalMoveError: it cannot happen in this phase.
        """
        allowed = MEMBER[self.phase]
        if event not in allowed:
            raise IllegalMoveError(f"{event.name} in phase {self.phase.name}")
        self.phase, self._since_ms = allowed[event], now_ms

    def has_waited(self, for_ms: int, now_ms: int) -> bool:
        """Whether the process has waited for partitions, in its present phase, for at least `for_ms`.

        Args:
            for_ms: milliseconds.
            now_ms: monotonic time.
        """
        return self.phase in WAITING_FOR_PARTITIONS and now_ms - self._since_ms >= for_ms
