"""Places of parked messages: in order whatever comes between, and in few bytes."""

import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from tarry.core.message import FiledMessage, HeldMessage
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.places import BLOCK, ParkedPlace, ParkedPlaces

START_MS = 1_700_000_000_000
MANY = 20_000
FIRST = 10**9
"""The offset in the intake at which a backlog begins."""


def message(due_ms: int, sequence: int, size: int = 20) -> HeldMessage:
    return HeldMessage(due_ms, sequence, None, b"x" * size, None, False, "orders", -1, b"0" * 36)


def of_bucket(due_ms: int, sequence: int, slot: int, offset: int, size: int = 20) -> FiledMessage:
    filed = FiledMessage(due_ms, sequence, None, b"x" * size, None, False, "orders", -1, b"0" * 36)
    filed.source, filed.offset = Source(1, slot), offset
    return filed


def place(one: HeldMessage) -> ParkedPlace:
    return ParkedPlace(one.due_ms, one.sequence, one.source, one.offset, one.size_bytes)


def places_of(messages: Iterable[HeldMessage]) -> ParkedPlaces:
    places = ParkedPlaces()
    for one in messages:
        places.put(one)
    return places


def test_a_place_has_all_that_its_message_is_read_again_by() -> None:
    places = places_of([message(5, 7), of_bucket(6, 1, slot=21, offset=10**10, size=3_000_000)])
    first, second = places
    assert first == ParkedPlace(5, 7, INTAKE, 7, message(5, 7).size_bytes)
    assert (second.source, second.offset, second.size_bytes > 3_000_000) == (Source(1, 21), 10**10, True)


def test_packed_places_unpack_unchanged() -> None:
    """Also numbers that are far from each other."""
    ends = [message(2**61, 2**60), of_bucket(2**61, 2**62, slot=300, offset=0)]
    messages = [*(message(number * number, number) for number in range(3 * BLOCK)), *ends]
    places = places_of(messages)
    assert list(places) == [place(one) for one in messages]
    assert places.first == (0, 0)


def test_as_many_are_next_as_there_is_room_for_and_one_in_any_case() -> None:
    size = message(0, 0).size_bytes
    places = places_of(message(number, number) for number in range(3 * BLOCK))
    assert [len(places.upto(room)) for room in (0, size, 2 * size + 1, 10**9)] == [1, 1, 2, 3 * BLOCK]


def test_none_left_takes_nothing() -> None:
    places = places_of(message(number, number) for number in range(3 * BLOCK))
    places.drop(3 * BLOCK)
    assert (list(places), places.first, len(places), places.size_bytes) == ([], None, 0, 0)


def test_places_are_in_order_whatever_is_put_where_and_dropped(seed: int) -> None:
    choose = random.Random(seed)
    places, oracle, sequence, due_ms = ParkedPlaces(), list[ParkedPlace](), 0, START_MS
    for _ in range(400):
        kind = choose.choice(("behind", "behind", "behind", "between", "in front", "drop"))
        sequence += 10_000
        if kind == "drop":
            many = choose.randint(0, min(len(oracle), 2 * BLOCK))
            places.drop(many)
            del oracle[:many]
            continue
        if kind == "in front":
            first_ms = oracle[0].due_ms if oracle else due_ms
            ahead = [message(first_ms - 1, sequence + one) for one in range(choose.randint(0, BLOCK // 2))]
            places.put_first(ahead)
            oracle[:0] = map(place, ahead)
            continue
        for one in range(choose.randint(1, 700 if kind == "behind" else 5)):
            due_ms += choose.randint(0, 3)
            late_ms = choose.randint(0, 2_000) if kind == "between" else 0
            came = of_bucket(due_ms - late_ms, sequence + one, sequence % 22, choose.randint(0, 10**9))
            places.put(came)
            oracle.append(place(came))
        oracle.sort(key=lambda one: (one.due_ms, one.sequence))
        assert len(places) == len(oracle)
    assert list(places) == oracle
    assert places.first == oracle[0][:2]


def rising(choose: random.Random) -> Iterator[HeldMessage]:
    """A thousand a second, all with the same delay; now and then a marker."""
    for number in range(MANY):
        yield message(START_MS + number, FIRST + number + number // 900, choose.randint(100, 1_500))


def up_to_a_minute(choose: random.Random) -> Iterator[HeldMessage]:
    """A thousand a second, straight from the intake, with delays up to a minute."""
    due = sorted((START_MS + number + choose.randint(0, 60_000), FIRST + number) for number in range(MANY))
    return (message(due_ms, sequence, choose.randint(100, 1_500)) for due_ms, sequence in due)


def from_buckets(choose: random.Random) -> Iterator[HeldMessage]:
    """A thousand due in a second, sent at any time in the hour before."""
    due = sorted((START_MS + number, FIRST + choose.randint(0, 3_600_000)) for number in range(MANY))
    for due_ms, sequence in due:
        slot, offset = due_ms // 20_000 % 22, (sequence - FIRST) // 180  # a bucket of 20 s is filed in that order
        yield of_bucket(due_ms, sequence, slot, 10**7 + offset, choose.randint(100, 1_500))


@pytest.mark.parametrize(("backlog", "most"), [(rising, 4), (up_to_a_minute, 8), (from_buckets, 10)])
def test_places_of_a_backlog_take_few_bytes_each(
    backlog: Callable[[random.Random], Iterator[HeldMessage]], most: int
) -> None:
    places = places_of(backlog(random.Random(1)))
    loose = 2 * BLOCK * 40  # the last ones are not packed yet
    assert (places.size_bytes - loose) / MANY < most
