"""Due times that follow the order of a log, whatever its stamps are, and through recoveries."""

import random
import tracemalloc

from tarry.core.progress.log_order import LogOrder


def test_a_due_time_is_never_before_the_one_in_front_of_it() -> None:
    order = LogOrder(None)
    assert [order.next(offset, due_ms) for offset, due_ms in enumerate((10, 30, 20, 30, 31, 5))] == [
        10,
        30,
        30,
        30,
        31,
        31,
    ]


def test_a_recovery_goes_on_from_the_due_time_below_it() -> None:
    assert LogOrder(50).next(7, 40) == 50
    assert LogOrder(50).next(7, 60) == 60


def test_below_the_first_record_there_is_none() -> None:
    order = LogOrder(None)
    order.next(4, 10)
    assert [order.below(low) for low in (0, 4, 5)] == [None, None, 10]


def test_below_is_what_the_last_record_below_was_due() -> None:
    order = LogOrder(5)
    for offset, due_ms in ((3, 10), (4, 30), (8, 20), (9, 40)):
        order.next(offset, due_ms)
    # From 5 to 7 stand markers of transactions.
    assert [order.below(low) for low in (3, 4, 5, 7, 8, 9, 10, 99)] == [5, 10, 30, 30, 30, 30, 40, 40]


def test_below_looks_no_further_than_the_watermark_however_much_is_done_above_it() -> None:
    """Filed in one order and fired in another: what lies above a hole in the log says nothing of what is below."""
    order = LogOrder(None)
    for offset, due_ms in enumerate((10, 20, 30, 40)):
        order.next(offset, due_ms)
    # 1, 2 and 3 are done, 0 is not: the watermark stays.
    assert order.below(0) is None
    order.drop_below(0)
    assert order.below(0) is None
    # 0 is done too: it is behind all of them.
    order.drop_below(4)
    assert order.below(4) == 40


def test_trimming_changes_nothing_from_the_watermark_on() -> None:
    order = LogOrder(None)
    for offset in range(6):
        order.next(offset, 10 * offset)
    before = [order.below(low) for low in range(3, 8)]
    order.drop_below(3)
    assert [order.below(low) for low in range(3, 8)] == before
    assert order.next(6, 0) == 50


def test_a_watermark_that_an_abort_takes_back_has_its_own_due_time_again() -> None:
    """Nothing is trimmed before its commit: so what `below` says of the watermark of before is still known."""
    order = LogOrder(None)
    for offset, due_ms in enumerate((10, 20, 30)):
        order.next(offset, due_ms)
    assert order.below(2) == 20
    assert order.below(1) == 10


def test_a_recovery_in_the_middle_gives_each_record_the_due_time_that_it_had(seed: int) -> None:
    """Whatever is done above the watermark: a replay passes all of them by."""
    choose = random.Random(seed)
    for _ in range(200):
        stamps = [choose.randint(0, 50) for _ in range(20)]
        first = LogOrder(None)
        had = [first.next(offset, due_ms) for offset, due_ms in enumerate(stamps)]
        low = 0
        order = LogOrder(None)
        for offset, due_ms in enumerate(stamps):
            assert order.next(offset, due_ms) == had[offset]
            if choose.random() < 0.3:
                low = choose.randint(low, offset + 1)
                below_ms = order.below(low)
                order.drop_below(low)
                assert order.below(low) == below_ms == (had[low - 1] if low else None)
            if choose.random() < 0.2:
                order = LogOrder(order.below(low))
                assert [order.next(again, stamps[again]) for again in range(low, offset + 1)] == had[low : offset + 1]


def test_a_recovery_right_behind_a_step_back_holds_it_up_for_as_long_as_it_takes() -> None:
    order = LogOrder(None)
    order.next(0, 1_000)
    order.drop_below(1)
    for life in range(1, 4):
        order = LogOrder(order.below(life))
        assert order.next(life, 10 * life) == 1_000
        order.drop_below(life + 1)
    assert LogOrder(order.below(4)).next(4, 1_001) == 1_001


def test_it_takes_sixteen_bytes_a_millisecond_however_many_records_there_are() -> None:
    order = LogOrder(None)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for offset in range(200_000):
        order.next(1_000_000 + offset, 1_700_000_000_000 + offset // 20)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert order.size_bytes == 16 * 10_000
    assert after - before < 1.3 * order.size_bytes


def test_forgotten_entries_free_their_memory() -> None:
    order = LogOrder(None)
    for offset in range(10_000):
        order.next(offset, 10 * offset)
        order.drop_below(offset - 10)
    assert order.size_bytes < 16 * 3_000
    assert [order.below(low) for low in (9_990, 9_995, 10_000)] == [99_890, 99_940, 99_990]
