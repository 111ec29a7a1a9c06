"""When a consumer with ordered retry rejoins because the group has assigned only one of its two topics."""

import pytest

from tarry.client.retry.core.names import Names
from tarry.client.retry.halves import WHOLE_WITHIN_MOST_MS, WHOLE_WITHIN_MS, Halves
from tarry.errors import RejoinError
from tarry.testing.manual_clock import ManualClock

NAMES = Names("tasks", "group", "intake")
OURS = {(NAMES.topic, 0), (NAMES.topic, 1)}
RETRIES = {(NAMES.retry, 0), (NAMES.retry, 1)}


def rejoins_after(halves: Halves, clock: ManualClock) -> int:
    """Assign one half, and return after how many milliseconds it asks to rejoin."""
    halves.assigned()
    begun_ms = clock.monotonic_ms()
    while True:
        try:
            assert halves.whole(OURS) == set()
        except RejoinError:
            return clock.monotonic_ms() - begun_ms
        clock.advance(1_000)


@pytest.mark.parametrize(
    ("assigned", "missing"),
    [
        (OURS, f"{NAMES.retry}/0"),
        (RETRIES, f"{NAMES.topic}/0"),
        (OURS | {(NAMES.retry, 0)}, f"{NAMES.retry}/1"),
        ({(NAMES.topic, 1), (NAMES.retry, 2)}, f"{NAMES.retry}/1"),
    ],
)
def test_a_member_with_one_half_waits_for_the_other_and_then_rejoins(
    assigned: set[tuple[str, int]], missing: str
) -> None:
    clock = ManualClock()
    halves = Halves(NAMES, clock, at_once=True)
    halves.assigned()
    clock.advance(WHOLE_WITHIN_MS - 1)
    assert halves.whole(assigned) == ({0} if len(assigned) == 3 else set())
    clock.advance(1)
    with pytest.raises(RejoinError, match=missing):
        halves.whole(assigned)


def test_each_rejoin_doubles_the_wait_up_to_a_limit_until_all_is_whole() -> None:
    clock = ManualClock()
    halves = Halves(NAMES, clock, at_once=True)
    waits = [rejoins_after(halves, clock) for _ in range(7)]
    assert waits == [min(WHOLE_WITHIN_MS << doubled, WHOLE_WITHIN_MOST_MS) for doubled in range(7)]
    halves.assigned()
    assert halves.whole(set()) == set(), "another member may have all of them"
    assert halves.whole(OURS | RETRIES) == {0, 1}
    assert rejoins_after(halves, clock) == WHOLE_WITHIN_MS


@pytest.mark.parametrize("assigned", [set(), OURS | RETRIES])
def test_a_member_whose_partitions_are_whole_never_rejoins(assigned: set[tuple[str, int]]) -> None:
    clock = ManualClock()
    halves = Halves(NAMES, clock, at_once=True)
    halves.assigned()
    clock.advance(10 * WHOLE_WITHIN_MOST_MS)
    assert halves.whole(assigned) == {number for _, number in assigned}


def test_under_kip_848_a_half_waits_for_the_broker_to_assign_the_other() -> None:
    clock = ManualClock()
    halves = Halves(NAMES, clock, at_once=False)
    halves.assigned()
    clock.advance(10 * WHOLE_WITHIN_MOST_MS)
    assert halves.whole(OURS | {(NAMES.retry, 1)}) == {1}
