"""What is read, unread and done of a range of due times that is closed."""

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.source import Source
from tarry.core.wheel.closed_range import ClosedRange, Span
from tarry.core.wheel.passes import Passes

SOURCE = Source(1, 4)
RUNS = [(5, 10), (20, 30)]


def closed(count: int | None) -> ClosedRange:
    return ClosedRange(Span(1, 4_000, 5_000), RUNS, count, 0, {})


def test_where_the_number_of_records_is_not_known_all_offsets_that_are_not_read_may_be_some() -> None:
    one = closed(None)
    assert one.unread == 15
    one.read(SOURCE, 7)
    assert one.unread == 12
    one.read(SOURCE, 9)
    assert one.unread == 10
    one.read(SOURCE, 24)
    assert one.unread == 5


def test_where_the_number_of_records_is_known_it_counts() -> None:
    one = closed(4)
    one.read(SOURCE, 7)
    assert one.unread == 3


def test_a_record_outside_is_none_of_its_own() -> None:
    one = closed(4)
    assert [one.read(SOURCE, offset) for offset in (4, 5, 29, 30)] == [False, True, True, False]
    assert one.read_count == 2
    assert one.ledger.position == 30


def test_it_is_not_done_while_a_pass_reads_it_although_all_of_it_is() -> None:
    one = closed(2)
    one.passes = Passes(4_000, 1_000)
    one.read(SOURCE, 5)
    one.read(SOURCE, 29)
    one.ledger.mark([5, 29])
    assert one.low == one.end
    assert not one.is_done
    one.reach_end()
    assert one.is_done


def test_a_retired_range_tells_from_the_first_to_the_last_record_of_each_bucket_and_takes_in_the_next_one() -> None:
    found = {Source(1, 4): DoneSet([(3, 5), (18, 20)]), Source(1, 5): DoneSet([(40, 42), (45, 47)])}
    one = ClosedRange(Span(1, 4_000, 6_000), [(10, 20)], None, 9, found)
    assert [one.read(Source(1, bucket), offset) for bucket, offset in ((4, 10), (5, 11), (6, 12))] == [True] * 3
    one.reach_end()
    one.retire()
    told = {Source(1, 4): [(3, 20)], Source(1, 5): [(11, 47)], Source(1, 6): [(12, 13)]}
    assert dict(one.done_ranges()) == told
    following = ClosedRange(Span(1, 7_000, 8_000), [(60, 62)], 0, 5, {Source(1, 7): DoneSet([(60, 62)])})
    following.retire()
    one.absorb(following)
    assert (one.span, one.pointer) == (Span(1, 4_000, 8_000), 5)
    assert dict(one.done_ranges()) == {**told, Source(1, 7): [(60, 62)]}
