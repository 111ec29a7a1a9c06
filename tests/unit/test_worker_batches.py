"""How many bytes a transaction takes."""

from itertools import pairwise

from tarry.service.worker.batches import MOST_BYTES, Bound

MESSAGE = 100_000


def test_each_that_is_too_much_is_followed_by_half_down_to_one_message() -> None:
    bound = Bound()
    tried = [500 * MESSAGE]
    for _ in range(40):
        bound.shrink(tried[-1])
        tried.append(max(MESSAGE, bound.bytes // MESSAGE * MESSAGE))
    assert tried[1] <= MOST_BYTES // 2
    assert all(after <= before // 2 for before, after in pairwise(tried) if before > MESSAGE)
    assert tried[-1] == MESSAGE
    assert bound.bytes == 1


def test_the_bound_grows_again_after_transactions_that_use_it() -> None:
    bound = Bound()
    for _ in range(40):
        bound.shrink(MESSAGE)
    for _ in range(100):
        bound.grow(max(MESSAGE, bound.bytes))
    assert bound.bytes == MOST_BYTES


def test_small_transactions_say_nothing_of_it() -> None:
    bound = Bound()
    bound.shrink(100 * MESSAGE)
    before = bound.bytes
    bound.grow(before // 3)
    assert bound.bytes == before


def test_one_that_a_named_record_could_not_wait_for_is_followed_by_half_which_may_end() -> None:
    bound = Bound()
    bound.give_way(100 * MESSAGE)
    assert (bound.bytes, bound.has_given_way) == (50 * MESSAGE, True)
    bound.grow(1)
    assert not bound.has_given_way
    bound.give_way(50 * MESSAGE)
    bound.shrink(25 * MESSAGE)
    assert not bound.has_given_way
