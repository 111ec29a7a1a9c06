"""The tables of the life of a partition and of a membership: the ways through them, and what is refused."""

from itertools import product

import pytest

from tarry.core.lifecycle import (
    MEMBER,
    PARTITION,
    Event,
    IllegalMoveError,
    Lives,
    MemberEvent,
    MemberLife,
    MemberPhase,
    Phase,
)

A, B = ("in", 0), ("in", 1)

WAYS = {
    "assigned, taken over, given up": [
        (Event.ASSIGNED, Phase.WAITING),
        (Event.BEGUN, Phase.TAKING_OVER),
        (Event.TAKEN_OVER, Phase.SERVED),
        (Event.GIVEN_UP, None),
    ],
    "a take-over that is refused begins again": [
        (Event.ASSIGNED, Phase.WAITING),
        (Event.BEGUN, Phase.TAKING_OVER),
        (Event.STOPPED, Phase.WAITING),
        (Event.BEGUN, Phase.TAKING_OVER),
        (Event.GIVEN_UP, None),
    ],
    "a rebalance takes it away and gives it back": [
        (Event.ASSIGNED, Phase.WAITING),
        (Event.BEGUN, Phase.TAKING_OVER),
        (Event.TAKEN_OVER, Phase.SERVED),
        (Event.KEPT, Phase.STANDING_BY),
        (Event.ASSIGNED, Phase.WAITING),
        (Event.RESUMED, Phase.SERVED),
        (Event.RESTARTED, Phase.WAITING),
    ],
    "set aside, and tried again": [
        (Event.ASSIGNED, Phase.WAITING),
        (Event.LEADERLESS, Phase.AWAY),
        (Event.FAULTY, Phase.QUARANTINED),
        (Event.DUE, Phase.WAITING),
        (Event.BEGUN, Phase.TAKING_OVER),
        (Event.FAULTY, Phase.QUARANTINED),
        (Event.GIVEN_UP, None),
    ],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_the_moves_of_a_partition_do_not_change_another_partition(way: list[tuple[Event, Phase | None]]) -> None:
    lives = Lives()
    lives.move(Event.ASSIGNED, [B])
    for event, following in way:
        lives.move(event, [A])
        assert lives.phase(A) == following
        assert (A in lives) == (following is not None)
        assert lives.phase(B) == Phase.WAITING
    assert lives.having(*Phase) == ({A, B} if A in lives else {B})
    for phase in Phase:
        assert lives.having(phase) == {place for place in (A, B) if lives.phase(place) == phase}


def at(phase: Phase | None) -> Lives:
    """A partition that was brought to a phase by the shortest way."""
    ways: dict[Phase | None, list[Event]] = {None: []}
    while phase not in ways:
        for known, events in list(ways.items()):
            for event, following in PARTITION[known].items():
                ways.setdefault(following, [*events, event])
    lives = Lives()
    for event in ways[phase]:
        lives.move(event, [A])
    return lives


@pytest.mark.parametrize(("phase", "event"), list(product([None, *Phase], Event)))
def test_an_event_that_the_table_does_not_list_is_refused_and_changes_nothing(
    phase: Phase | None, event: Event
) -> None:
    lives = at(phase)
    if event in PARTITION[phase]:
        lives.move(event, [A])
        assert lives.phase(A) == PARTITION[phase][event]
    else:
        with pytest.raises(IllegalMoveError, match=f"in/0: {event.name} in phase {phase.name if phase else None}"):
            lives.move(event, [A])
        assert lives.phase(A) == phase


def test_only_what_was_served_may_stand_by_and_only_what_was_taken_over_or_resumed_is_served() -> None:
    into = {
        phase: {(before, event) for before, row in PARTITION.items() for event, after in row.items() if after == phase}
        for phase in Phase
    }
    # The second one: what was assigned again, and is revoked before it is resumed.
    assert into[Phase.STANDING_BY] == {(Phase.SERVED, Event.KEPT), (Phase.WAITING, Event.KEPT)}
    assert into[Phase.SERVED] == {(Phase.TAKING_OVER, Event.TAKEN_OVER), (Phase.WAITING, Event.RESUMED)}
    assert into[Phase.TAKING_OVER] == {(Phase.WAITING, Event.BEGUN)}
    ours = set(Phase) - {Phase.STANDING_BY}
    for phase in ours:
        assert PARTITION[phase][Event.GIVEN_UP] is None


def test_a_member_that_lost_its_partitions_waits_joins_again_and_waits_once_more() -> None:
    life = MemberLife()
    life.move(MemberEvent.ASSIGNED, 1_000)
    assert not life.has_waited(0, 9_000)
    life.move(MemberEvent.LOST, 2_000)
    assert not life.has_waited(500, 2_499)
    assert life.has_waited(500, 2_500)
    life.move(MemberEvent.WAITED, 2_500)
    assert (life.phase, life.has_waited(500, 2_999), life.has_waited(500, 3_000)) == (
        MemberPhase.REJOINED,
        False,
        True,
    )
    life.move(MemberEvent.CONFIRMED, 3_000)
    assert life.phase == MemberPhase.MEMBER
    assert not life.has_waited(0, 9_000)


def test_a_member_that_was_shut_out_can_only_join_again() -> None:
    for event in MemberEvent:
        life = MemberLife()
        life.move(MemberEvent.ENDED, 0)
        if event == MemberEvent.REJOINED:
            life.move(event, 1)
            assert life.phase == MemberPhase.JOINING
        else:
            with pytest.raises(IllegalMoveError, match="in phase SHUT_OUT"):
                life.move(event, 1)
            assert life.phase == MemberPhase.SHUT_OUT


def test_every_phase_of_a_member_is_reached_and_left() -> None:
    assert set(MEMBER) == set(MemberPhase)
    assert {phase for row in MEMBER.values() for phase in row.values()} == set(MemberPhase)
    assert all(MEMBER[phase] for phase in MemberPhase)
