"""The limits of a batch: number, bytes and clock; and the messages that stay."""

from collections import deque
from collections.abc import Sequence

import pytest

from tarry.core.batch import UNBOUNDED, Batch, Resolution
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.progress.source import INTAKE
from tarry.core.request.naming import Condition, hash_of
from tarry.core.window.letters import LARGE_BYTES, Letters
from tarry.core.window.memory import Memory
from tarry.core.window.parked import Parked
from tarry.core.window.parked_log import ParkedLog
from tarry.core.window.ready import Ready
from tarry.headers import Outcome
from tests.support.naming import no_names

NOW_MS = 1_700_000_000_000
VALUE = bytes(1_000)


def message(offset: int, due_ms: int = NOW_MS, target: str = "orders") -> HeldMessage:
    return HeldMessage(due_ms, offset, None, VALUE, None, False, target, -1, b"00000000-0000-4000-8000-%012d" % offset)


def dead(offset: int, value: bytes = VALUE) -> DeadMessage:
    return DeadMessage(offset, None, value, [], "code", "detail", b"%036d" % offset, None, None, INTAKE, offset)


def cancelled(offset: int) -> Resolution:
    return Resolution(Outcome.CANCELLED, message(offset), message(offset + 1))


SIZE = message(0).size_bytes
DEAD_SIZE = dead(0).size_bytes


class Shelf:
    """The ready messages, and the messages that were parked or set aside."""

    def __init__(self, due: Sequence[int] = (), letters: Sequence[int] = (), resolved: Sequence[int] = ()) -> None:
        memory = Memory()
        names = self.names = no_names(memory)
        self.letters = Letters(memory, lambda _source, _offset: None, names)
        self.parked = Parked(memory, lambda _messages: None, ParkedLog({}, (0, 0), 0, 0), names)
        self.ready = Ready(self.letters, names)
        self.ready.due = deque(map(message, due))
        for offset in letters:
            self.ready.bury(dead(offset))
        self.ready.resolutions = list(map(cancelled, resolved))

    def decide(self, count: int) -> None:
        """Decide named messages, each of a name of its own."""
        for offset in range(1_000, 1_000 + count):
            named = message(offset, NOW_MS + 1)
            named.name = hash_of(b"k", b"%d" % offset)
            self.names.decide(named, Condition.ALWAYS)

    def take(self, limit: int = 100, limit_bytes: int = UNBOUNDED, away: Sequence[str] = ()) -> Batch:
        return self.ready.take(limit, limit_bytes, NOW_MS, away, self.parked)

    def left(self) -> tuple[list[int], list[int], list[int]]:
        return offsets(self.ready)


def offsets(of: Ready | Batch) -> tuple[list[int], list[int], list[int]]:
    """The offsets of due, dead and resolved messages."""
    resolved = [one.message.sequence for one in of.resolutions]
    return [one.sequence for one in of.due], [one.sequence for one in of.dead], resolved


@pytest.mark.parametrize(
    ("due", "letters", "resolved", "count"),
    [((), (), (), 0), ((1,), (), (), 1), ((), (2,), (), 1), ((), (), (3,), 2), ((1, 2), (3,), (4, 6), 7)],
)
def test_a_batch_counts_its_records_and_is_true_if_it_has_any(
    due: tuple[int, ...], letters: tuple[int, ...], resolved: tuple[int, ...], count: int
) -> None:
    shelf = Shelf(due, letters, resolved)
    assert len(shelf.ready) == count
    assert bool(shelf.ready) is (count > 0)
    assert offsets(shelf.take()) == (list(due), list(letters), list(resolved))
    assert (len(shelf.ready), bool(shelf.ready)) == (0, False)


@pytest.mark.parametrize(
    ("limit", "taken"),
    [
        (1, ([], [10], [])),
        (2, ([], [10, 11], [])),
        (3, ([], [10, 11], [20])),
        (4, ([], [10, 11], [20, 22])),
        (5, ([1], [10, 11], [20, 22])),
        (7, ([1, 2, 3], [10, 11], [20, 22])),
        (8, ([1, 2, 3], [10, 11], [20, 22])),
    ],
)
def test_dead_letters_come_first_and_then_what_needs_no_delivery(
    limit: int, taken: tuple[list[int], list[int], list[int]]
) -> None:
    shelf = Shelf([1, 2, 3], [10, 11], [20, 22])
    everything = shelf.left()
    batch = shelf.take(limit)
    assert offsets(batch) == taken
    assert shelf.left() == tuple(all_[len(some) :] for all_, some in zip(everything, taken, strict=True))
    shelf.ready.put_back(batch)
    assert shelf.left() == everything, "in front of the rest, and in order"


@pytest.mark.parametrize(
    ("limit_bytes", "taken"),
    [
        (0, 1),
        (SIZE, 1),
        (2 * SIZE - 1, 1),
        (2 * SIZE, 2),
        (3 * SIZE - 1, 2),
        (3 * SIZE, 3),
    ],
)
def test_due_messages_are_taken_as_far_as_they_fit_and_at_least_one(limit_bytes: int, taken: int) -> None:
    assert len(Shelf([1, 2, 3]).take(limit_bytes=limit_bytes)) == taken


@pytest.mark.parametrize(
    ("limit_bytes", "taken"),
    [
        (0, (0, 1, 0)),
        (2 * DEAD_SIZE - 1, (0, 1, 1)),  # one of each in any case, where any room is left
        (2 * DEAD_SIZE, (0, 2, 0)),
        (2 * DEAD_SIZE + 1, (0, 2, 1)),
        (2 * DEAD_SIZE + 4 * SIZE - 1, (0, 2, 1)),  # what is left may be a duplicate of what is due
        (2 * DEAD_SIZE + 4 * SIZE, (0, 2, 2)),
        (2 * DEAD_SIZE + 5 * SIZE - 1, (0, 2, 2)),
        (2 * DEAD_SIZE + 5 * SIZE, (1, 2, 2)),
        (2 * DEAD_SIZE + 6 * SIZE, (2, 2, 2)),
    ],
)
def test_all_that_is_taken_counts_towards_the_bytes(limit_bytes: int, taken: tuple[int, int, int]) -> None:
    shelf = Shelf([1, 2, 3], [10, 11], [20, 22])
    assert tuple(map(len, offsets(shelf.take(limit_bytes=limit_bytes)))) == taken


def test_records_that_need_no_delivery_are_taken_even_without_a_dead_letter() -> None:
    assert offsets(Shelf([1], [], [20, 22]).take(limit_bytes=0)) == ([], [], [20])


def test_messages_for_an_unavailable_target_are_parked_and_take_no_room_in_the_batch() -> None:
    shelf = Shelf()
    shelf.ready.due = deque([message(1, target="away"), message(2), message(3, target="away"), message(4), message(5)])
    assert offsets(shelf.take(2, 2 * SIZE, ["away"])) == ([2, 4], [], [])
    assert shelf.left() == ([5], [], [])
    assert len(shelf.parked) == 2


def test_nothing_is_taken_that_is_not_due_any_more() -> None:
    shelf = Shelf()
    shelf.ready.due = deque([message(1, NOW_MS), message(2, NOW_MS + 1), message(3, NOW_MS + 1)])
    assert offsets(shelf.take()) == ([1], [], [])


@pytest.mark.parametrize(("more", "apart"), [(0, 0), (1, 1)])
def test_a_dead_letter_that_is_large_is_written_apart(more: int, apart: int) -> None:
    shelf = Shelf()
    letter = dead(1, bytes(LARGE_BYTES + more - dead(1, b"").size_bytes))
    shelf.ready.bury(letter)
    assert (len(shelf.letters), len(shelf.ready)) == (apart, 1 - apart)


EVERYTHING = (range(20), (), ()), ((), range(20), ()), ((), (), range(0, 20, 2))
"""Messages that are due, dead letters, and what needs no delivery: 20 records of each."""


@pytest.mark.parametrize(("due", "letters", "resolved"), EVERYTHING)
def test_decisions_on_named_records_leave_half_of_a_batch_to_all_else(
    due: Sequence[int], letters: Sequence[int], resolved: Sequence[int]
) -> None:
    for limit in (10, 11):
        shelf = Shelf(due, letters, resolved)
        shelf.decide(50)
        batch = shelf.take(limit)
        assert len(batch.decisions) == -(-limit // 2)
        others = sum(map(len, offsets(batch)))
        assert others == limit // 2


@pytest.mark.parametrize(("due", "letters", "resolved"), EVERYTHING)
def test_decisions_on_named_records_leave_half_of_the_bytes_to_all_else(
    due: Sequence[int], letters: Sequence[int], resolved: Sequence[int]
) -> None:
    limit_bytes = 10 * max(SIZE, DEAD_SIZE)
    shelf = Shelf(due, letters, resolved)
    shelf.decide(500)
    batch = shelf.take(10_000, limit_bytes)
    decided_bytes = sum(one.size_bytes for one in batch.decisions)
    assert limit_bytes // 2 - max(one.size_bytes for one in batch.decisions) < decided_bytes <= limit_bytes // 2
    assert sum(map(len, offsets(batch))) >= 2
    assert batch.size_bytes <= limit_bytes


def test_decisions_on_named_records_take_a_whole_batch_if_there_is_nothing_else() -> None:
    shelf = Shelf()
    shelf.decide(50)
    assert len(shelf.take(10).decisions) == 10
    one_bytes = shelf.take(1).decisions[0].size_bytes
    assert len(shelf.take(100, 8 * one_bytes).decisions) == 8


def test_a_message_does_not_leave_before_a_named_one_like_it_is_its_duplicate() -> None:
    """Or a process that takes over in between would deliver the other one: it does not know what it is like."""
    shelf = Shelf(due=(5,))
    duplicate = message(6)
    duplicate.name = hash_of(b"k", b"x")
    shelf.names.decide(duplicate, Condition.ALWAYS)
    shelf.names.confirm(shelf.take(1))
    shelf.ready.resolutions = [Resolution(Outcome.DUPLICATE, duplicate)]
    shelf.decide(4)
    batches = [shelf.take(4) for _ in range(3)]
    # Decisions may say that the duplicate waits, so it leaves with the last of them.
    assert [len(batch.decisions) for batch in batches] == [2, 2, 0]
    assert [offsets(batch) for batch in batches] == [([], [], []), ([5], [], [6]), ([], [], [])]
