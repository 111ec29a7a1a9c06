"""The set of offsets that a recovery found done, against a plain set."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.done_set import DoneSet

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda r: (r[0], r[0] + r[1])), max_size=12)


@settings(max_examples=300, deadline=None)
@given(ranges, st.integers(0, 70))
def test_it_holds_what_a_plain_set_holds(found: list[tuple[int, int]], low: int) -> None:
    plain = {offset for start, end in found for offset in range(start, end) if offset >= low}
    done = DoneSet(found, low)
    assert [offset for offset in range(-1, 80) if offset in done] == sorted(plain)
    assert len(done) == len(plain)
    assert done.end == max(plain, default=-1) + 1
    assert [offset for start, end in done.ranges() for offset in range(start, end)] == sorted(plain)


def test_ranges_that_touch_become_one() -> None:
    done = DoneSet([(5, 8), (8, 9), (20, 21)], 6)
    assert (len(done), done.end, done.ranges()) == (4, 21, [(6, 9), (20, 21)])
    assert [offset for offset in range(30) if offset in done] == [6, 7, 8, 20]


def test_an_empty_set_ends_at_zero() -> None:
    assert (len(DoneSet([], 7)), DoneSet([], 7).end) == (0, 0)
    assert (len(DoneSet([(1, 7)], 7)), DoneSet([(1, 7)], 7).end) == (0, 0)
    assert 0 not in DoneSet([], 0)
