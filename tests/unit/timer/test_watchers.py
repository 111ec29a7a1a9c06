from tarry.timer.watchers import Watchers
from tests.unit.timer.operations import Request


def sizes(watchers: Watchers[Request]) -> tuple[int, int]:
    return watchers.entries(), watchers.leftovers()


def test_operations_stand_under_each_of_their_keys_as_they_came() -> None:
    watchers = Watchers[Request]()
    first, second = Request(), Request()
    watchers.watch(first, ("a", "b"))
    watchers.watch(second, ("b",))
    assert watchers.watching("a") == [first]
    assert watchers.watching("b") == [first, second]
    assert watchers.watching("c") == []
    assert sizes(watchers) == (3, 0)


def test_a_sweep_takes_what_is_settled_from_one_key_and_it_is_left_over_until_it_is_under_none() -> None:
    watchers = Watchers[Request]()
    first, second = Request(), Request()
    watchers.watch(first, ("a", "b"))
    watchers.watch(second, ("b",))
    first.force_complete()
    assert watchers.sweep("b") == 1
    assert watchers.watching("b") == [second]
    assert sizes(watchers) == (2, 1)
    assert watchers.sweep("a") == 1
    assert sizes(watchers) == (1, 0)
    assert watchers.sweep("a") == 0


def test_a_purge_sweeps_every_key_and_keeps_what_waits() -> None:
    watchers = Watchers[Request]()
    stays, completed, withdrawn = Request(), Request(), Request()
    for operation in (stays, completed, withdrawn):
        watchers.watch(operation, ("a", "b", operation))
    completed.force_complete()
    withdrawn.withdraw()
    assert sizes(watchers) == (9, 2)
    assert watchers.purge() == 6
    assert [watchers.watching(key) for key in ("a", "b", stays, completed)] == [[stays], [stays], [stays], []]
    assert sizes(watchers) == (3, 0)
    assert watchers.purge() == 0


def test_a_key_without_operations_is_forgotten() -> None:
    watchers = Watchers[Request]()
    for key in range(100):
        operation = Request()
        watchers.watch(operation, (key,))
        operation.force_complete()
    watchers.purge()
    assert not watchers._by_key


def test_an_operation_removed_from_a_key_stays_under_its_other_keys() -> None:
    watchers = Watchers[Request]()
    operation = Request()
    watchers.watch(operation, ("a", "b"))
    assert watchers.remove("a") == [operation]
    assert watchers.remove("a") == []
    assert watchers.watching("b") == [operation]
    assert sizes(watchers) == (1, 0)


def test_an_operation_under_one_key_twice_leaves_it_as_one() -> None:
    watchers = Watchers[Request]()
    operation = Request()
    watchers.watch(operation, ("a", "a"))
    operation.force_complete()
    assert watchers.sweep("a") == 2
    assert sizes(watchers) == (0, 0)


def test_an_operation_settled_before_it_is_watched_is_left_over_and_counted_once() -> None:
    watchers = Watchers[Request]()
    operation = Request()
    operation.force_complete()
    watchers.watch(operation, ("a", "b"))
    assert sizes(watchers) == (2, 1)
    watchers.tell_settled(operation)
    assert sizes(watchers) == (2, 1)
    watchers.purge()
    watchers.tell_settled(operation)
    assert sizes(watchers) == (0, 0)
