"""The life of a partition in a process, and of the process's membership in its group, as transition tables: pure.

Each table lists, for each phase, the events that may happen in it and the phase that follows. An event that a phase
does not list raises `IllegalMoveError`: a process does not go on from a state that nobody has thought of.

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


class IllegalMoveError(AssertionError):
    """An event that cannot happen in this phase: a bug in the caller."""


class Phase(Enum):
    """Where a partition is in its life."""

    WAITING = auto()
    """Assigned; its take-over has not begun, or begins again."""
    TAKING_OVER = auto()
    """Membership is proved; earlier owners are fenced and its logs are read."""
    SERVED = auto()
    """It has a state. It fires once its replay is through, which the state knows."""
    AWAY = auto()
    """One of its logs has no leader. It waits until all have one."""
    QUARANTINED = auto()
    """Only an operator can mend it. It is tried again now and then."""
    STANDING_BY = auto()
    """Revoked in a classic rebalance, which may give it back: its state is kept, and nothing happens to it."""


class Event(Enum):
    """What happens to a partition."""

    ASSIGNED = auto()
    BEGUN = auto()
    """Its take-over has begun."""
    STOPPED = auto()
    """Its take-over was refused for now, or given up: it is to begin again."""
    TAKEN_OVER = auto()
    RESUMED = auto()
    """It stood by, and nobody else had it."""
    RESTARTED = auto()
    """The fate of its last transaction is not known: it is to be taken over again."""
    LEADERLESS = auto()
    CONDEMNED = auto()
    DUE = auto()
    """It is time to try it again."""
    KEPT = auto()
    """Revoked, with its state kept."""
    GIVEN_UP = auto()
    """Revoked or lost."""


_SET_ASIDE: Final = {Event.LEADERLESS: Phase.AWAY, Event.CONDEMNED: Phase.QUARANTINED, Event.GIVEN_UP: None}
"""May happen in any phase in which a partition is ours."""

PARTITION: Final[Mapping[Phase | None, Mapping[Event, Phase | None]]] = MappingProxyType(
    {
        None: {Event.ASSIGNED: Phase.WAITING},
        Phase.WAITING: {**_SET_ASIDE, Event.BEGUN: Phase.TAKING_OVER, Event.RESUMED: Phase.SERVED},
        Phase.TAKING_OVER: {**_SET_ASIDE, Event.TAKEN_OVER: Phase.SERVED, Event.STOPPED: Phase.WAITING},
        Phase.SERVED: {**_SET_ASIDE, Event.RESTARTED: Phase.WAITING, Event.KEPT: Phase.STANDING_BY},
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
    """Where a process is in its membership of the group."""

    JOINING = auto()
    """The group has not said yet which partitions are its own."""
    MEMBER = auto()
    """It has said so, be it none."""
    INSTANCE_IN_USE = auto()
    """KIP-848: a member of the same instance lives, or its session has not ended. It asks again and again."""
    LOST = auto()
    """KIP-848: its partitions were lost. It waits for new ones, which mostly come without its doing."""
    REJOINED = auto()
    """It has waited, joined anew, and waits again."""
    SHUT_OUT = auto()
    """A fatal error ended the membership. A static member finds out who has its instance."""


class MemberEvent(Enum):
    """What happens to a membership."""

    ASSIGNED = auto()
    INSTANCE_TAKEN = auto()
    """The group refuses the instance: it is in use."""
    LOST = auto()
    """Partitions were lost (KIP-848)."""
    WAITED = auto()
    """It has waited in vain, and joins anew."""
    CONFIRMED = auto()
    """It has waited, but the client library says that it is a member: there are no partitions for it."""
    GROUP_GONE = auto()
    """The coordinator does not know the group, or the member: it joins anew."""
    ENDED = auto()
    """A fatal error has ended it."""
    REJOINED = auto()
    """After it was shut out: nobody else has the instance, and it joins anew."""


_ANY_TIME: Final = {
    MemberEvent.ASSIGNED: MemberPhase.MEMBER,
    MemberEvent.INSTANCE_TAKEN: MemberPhase.INSTANCE_IN_USE,
    MemberEvent.LOST: MemberPhase.LOST,
    MemberEvent.GROUP_GONE: MemberPhase.JOINING,
    MemberEvent.ENDED: MemberPhase.SHUT_OUT,
}
"""May happen in any phase in which the process polls its group."""

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
        """Whether it has waited so long for partitions, in its phase.

        Args:
            for_ms: how long.
            now_ms: monotonic time.
        """
        return self.phase in WAITING_FOR_PARTITIONS and now_ms - self._since_ms >= for_ms
