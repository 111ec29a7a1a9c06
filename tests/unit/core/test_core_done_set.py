"""The set of offsets that a recovery found done, against a plain set."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.done_set import DoneSet, add_done
from tarry.core.progress.source import INTAKE, Source

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda r: (r[0], r[0] + r[1])), max_size=12)


@settings(max_examples=300)
@given(ranges, st.integers(0, 70))
def test_a_done_set_equals_a_plain_set(found: list[tuple[int, int]], low: int) -> None:
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
    assert 0 not in DoneSet()


def test_done_records_are_added_by_log_and_a_new_log_begins_at_offset_zero() -> None:
    done = {INTAKE: DoneSet((), 10)}
    bucket, other = Source(1, 3), Source(2, 3)
    add_done(done, {INTAKE: [(8, 12)], bucket: [(0, 2)]})
    add_done(done, {bucket: [(2, 3), (7, 8)], other: [(5, 6)]})
    assert {source: found.ranges() for source, found in done.items()} == {
        INTAKE: [(10, 12)],
        bucket: [(0, 3), (7, 8)],
        other: [(5, 6)],
    }
