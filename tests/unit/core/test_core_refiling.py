"""What waits at the beginning of a level's log is filed again at its end, if little else waits there."""

from random import Random
from struct import pack

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.source import Source
from tarry.core.wheel.filed import FILED
from tarry.core.wheel.overflow import STRANGE, Upkeep
from tarry.core.wheel.refiling import Refiling
from tests.support.durable import Filed
from tests.support.owner import Owner

START_MS = 1_700_000_000_000
GEOMETRY = Geometry(1_000, 4, 2)
"""Buckets of 1 s and of 4 s; the last level takes all that is due later."""
FAR_MS, NEAR_MS = 100_000, 12_000


def owner(*, far: int = 3, near: int = 40) -> Owner:
    """An owner with some far messages in the log of level 2. The near ones behind them are delivered."""
    one = Owner(Random(5), START_MS, GEOMETRY)
    one.calm = True
    one.upkeep = one.state.overflow.upkeep = Upkeep(refile_from=1 << 60)
    for number in range(far):
        one.send(FAR_MS + number, "orders")
    for number in range(near):
        one.send(NEAR_MS + number, "orders")
    while one.now_ms < START_MS + NEAR_MS + 5_000:
        rest(one)
        one.now_ms += 100
    assert one.judge.waiting() == far
    one.upkeep = one.state.overflow.upkeep = Upkeep(refile_from=20)
    return one


def rest(one: Owner) -> None:
    """Turn until there is nothing to do."""
    for _ in range(10_000):
        if not one.turn():
            return
    raise AssertionError("it never comes to rest")


def until_refiling(one: Owner) -> None:
    """Commit a checkpoint, as the service does now and then: it finds what is to be filed again."""
    one.commit_checkpoint()
    assert one.state.overflow.is_refiling


def read_what_is_filed_again(one: Owner) -> None:
    refiling = one.state.overflow.refiling
    assert refiling is not None
    while refiling is one.state.overflow.refiling and not (refiling.is_read or refiling.is_given_up):
        one.read_levels()


def deliver_all(one: Owner) -> None:
    for _ in range(2_000):
        rest(one)
        if not one.judge.waiting():
            return
        one.now_ms += 500
    raise AssertionError("not all are delivered")


def test_a_few_messages_that_keep_a_long_log_are_filed_again_and_it_is_trimmed() -> None:
    one = owner()
    before = one.levels[2].start
    until_refiling(one)
    rest(one)
    assert one.filed_again == 3
    assert one.levels[2].start >= before + 10
    assert one.state.overflow.in_buckets == {1: 0, 2: 3}
    deliver_all(one)
    assert not one.levels[2].left


def test_nothing_is_filed_again_if_much_of_the_log_waits_or_the_log_is_short() -> None:
    for one in (owner(far=20, near=40), owner(far=1, near=10)):
        deliver_all(one)
        assert one.filed_again == 0


def test_a_take_over_in_the_middle_finds_what_is_filed_again_once() -> None:
    one = owner()
    until_refiling(one)
    read_what_is_filed_again(one)
    assert one.state.placing.again == 3
    filing = one.state.take_to_file(1, one.now_ms)
    one.state.put_back_filed(filing, {})
    assert one.state.placing.again == 3, "an aborted transaction leaves it where it was"
    while one.state.placing.again > 1:
        one.file()
    one.crash()
    deliver_all(one)


def test_the_journal_is_needed_from_before_it_until_it_is_done() -> None:
    one = owner()
    until_refiling(one)
    overflow, refiling = one.state.overflow, one.state.overflow.refiling
    assert refiling is not None
    read_what_is_filed_again(one)
    one.state.note_journal_end(one.store.journal_end + 7)
    before = overflow.pointer
    assert before == refiling.pointer < one.store.journal_end
    overflow.mark(*first_waiting(one))
    overflow.make_final()
    assert overflow.pointer == before
    assert [source.level for source, _ in overflow.done_ranges()] == [2]
    overflow.sum_up(one.store.journal_end)
    assert overflow.pointer == one.store.journal_end
    while waiting := one.state.placing.take_again(1, 1 << 40):
        overflow.mark(waiting[0][1], [waiting[0][0].offset])
    overflow.make_final()
    assert overflow.refiling is None
    assert [source.level for source, _ in overflow.done_ranges()] == [2], "the low watermark is not committed yet"
    one.commit_checkpoint()
    assert list(overflow.done_ranges()) == []


def test_the_journal_is_needed_while_a_record_of_another_client_below_the_cut_is_no_dead_letter_yet() -> None:
    """It holds the low watermark, so a recovery finds what was filed again, and must know that it is done."""
    one = owner()
    until_refiling(one)
    overflow, refiling = one.state.overflow, one.state.overflow.refiling
    assert refiling is not None
    stranger = refiling.runs[0][0]
    one.state.note_journal_end(refiling.pointer + 5)
    assert overflow.meet(2, stranger)
    read_what_is_filed_again(one)
    while waiting := one.state.placing.take_again(1, 1 << 40):
        overflow.mark(waiting[0][1], [waiting[0][0].offset])
    overflow.make_final()
    one.commit_checkpoint()
    assert overflow.refiling is None
    assert overflow.pointer == refiling.pointer
    assert [source.level for source, _ in overflow.done_ranges()] == [2]
    overflow.sum_up(refiling.pointer + 9)
    assert overflow.pointer == refiling.pointer
    overflow.mark(Source(2, STRANGE), [stranger])
    overflow.make_final()
    one.commit_checkpoint()
    assert list(overflow.done_ranges()) == []


def test_what_a_recovery_found_done_below_the_cut_is_needed_as_long() -> None:
    """An earlier owner has filed it again, and could not trim the log for the same reason."""
    one = owner()
    overflow = one.state.overflow
    below = overflow._logs[2].below(1 << 60)[0][0]
    bucket = overflow.source_of(2, START_MS + FAR_MS)
    overflow._found_done[bucket] = DoneSet([(below, below + 1)])
    until_refiling(one)
    overflow._found_from = 3
    assert overflow.refiling is not None
    read_what_is_filed_again(one)
    stranger = overflow.refiling.runs[0][0]
    assert overflow.meet(2, stranger)
    while waiting := one.state.placing.take_again(1, 1 << 40):
        overflow.mark(waiting[0][1], [waiting[0][0].offset])
    overflow.make_final()
    assert overflow.pointer == 3
    one.commit_checkpoint()
    done = {source: list(ranges) for source, ranges in overflow.done_ranges()}
    assert done[bucket][0][0] == below
    overflow.mark(Source(2, STRANGE), [stranger])
    one.commit_checkpoint()
    assert list(overflow.done_ranges()) == []


def first_waiting(one: Owner) -> tuple[Source, list[int]]:
    [(message, source)] = one.state.placing.take_again(1, 1 << 40)
    return source, [message.offset]


@pytest.mark.parametrize("filed", [0, 1])
def test_a_bucket_that_is_closed_ends_it_and_what_is_not_filed_again_is_read_from_where_it_is(filed: int) -> None:
    one = owner()
    until_refiling(one)
    read_what_is_filed_again(one)
    if filed:
        filing = one.state.take_to_file(1, one.now_ms)
        assert len(filing) == filed
        one.state.put_back_filed(filing, {})
        one.file()
    held_bytes = one.state.held_bytes
    one.now_ms = START_MS + FAR_MS - 1_000
    for _ in range(100):
        one.close()
    assert one.state.overflow.refiling is None
    assert one.state.placing.again == 0
    assert held_bytes == 0 or one.state.held_bytes < held_bytes
    deliver_all(one)


def test_a_log_that_refuses_what_it_took_before_is_left_alone_and_nothing_is_a_dead_letter() -> None:
    one = owner()
    until_refiling(one)
    read_what_is_filed_again(one)
    filing = one.state.take_to_file(2, one.now_ms)
    one.state.put_back_filed(filing, {filing.records[0][0].sequence: ("too-large", "")})
    assert one.state.placing.again == 0
    assert (one.state.held, one.state.held_bytes) == (0, 0)
    rest(one)
    assert (one.state.overflow.refiling, one.filed_again) == (None, 0)
    deliver_all(one)


@pytest.mark.parametrize("read_before", [0, 1])
def test_a_record_that_cannot_be_read_stays_where_it_is_until_its_bucket_is_closed(read_before: int) -> None:
    one = owner(far=2)
    due_ms = START_MS + FAR_MS + read_before
    packed = pack(">BqqiB36s", 1, due_ms, 10**9, -1, 4, b"0" * 36) + b"orders no-dialect 0 in"
    offset = min(at for at, filed in one.levels[2].records.items() if due_ms_of(filed) == due_ms)
    one.levels[2].records[offset] = Filed(b"k", b"v", [(FILED, packed)])
    until_refiling(one)
    read_what_is_filed_again(one)
    assert not one.state.overflow.is_refiling
    assert one.state.placing.again == 0
    rest(one)
    assert (one.state.overflow.refiling, one.filed_again, one.state.held_bytes) == (None, 0, 0)


def due_ms_of(filed: Filed) -> int:
    return int.from_bytes((filed.headers[-1][1] or b"")[1:9], "big")


def test_what_is_filed_again_has_a_share_of_each_transaction_and_waits_for_no_other() -> None:
    one = owner(far=9, near=60)
    until_refiling(one)
    read_what_is_filed_again(one)
    assert one.state.placing.again == 9
    for number in range(30):
        one.send(NEAR_MS + number, "orders")
    while one.state.position < one.intake_end:
        one.read()
    taken = one.state.take_to_file(8, one.now_ms)
    assert [message.source == source for message, source in taken.records].count(True) == 2
    assert len(taken) == 8
    one.state.put_back_filed(taken, {})
    rest(one)
    assert one.filed_again == 9


def test_it_goes_on_while_reading_is_more_urgent_because_the_buckets_on_their_way_down_would_wait_for_it() -> None:
    one = owner(far=9, near=60)
    until_refiling(one)
    read_what_is_filed_again(one)
    one.send(NEAR_MS, "orders")
    while one.state.position < one.intake_end:
        one.read()
    assert (one.state.placing.again, one.state.placing.to_file) == (9, 1)
    assert one.state.has_to_file(one.now_ms, "moving")
    filing = one.state.take_to_file(100, one.now_ms, only="moving")
    assert [message.source == source for message, source in filing.records] == [True] * 9
    one.state.put_back_filed(filing, {})
    rest(one)
    assert one.filed_again == 9


def test_the_first_record_of_a_log_is_known_to_be_filed_again() -> None:
    bucket = Source(1, 50)
    refiling = Refiling(1, 0, [(0, 2)], 2, 0, {})
    assert [refiling.read(bucket, offset) for offset in (0, 1)] == [True, True]
    refiling.mark(bucket, [0])
    assert list(refiling.done_ranges()) == [(bucket, [(0, 1)])]
    assert not refiling.is_done
    refiling.mark(bucket, [1])
    assert list(refiling.done_ranges()) == [(bucket, [(0, 2)])]
    assert refiling.is_done
