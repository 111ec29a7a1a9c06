"""The judge of the promises is judged: one planted fault of each kind, and a clean run."""

import random
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.testing.judge import Report
from tests.support.checker import Arrived, Interned, Produced, check, digest

START_MS = 1_700_000_000_000
INTAKE = "tarry.delayed"


def produced(number: int, due_in_ms: int, key: bytes | None = b"k", **changes: object) -> Produced:
    record = Produced(
        id=f"00000000-0000-4000-8000-{number:012x}",
        key=key,
        target="orders",
        due_ms=START_MS + due_in_ms,
        value=digest(b"value %d" % number),
        headers=(("trace", b"1"), ("trace", b"2"), ("empty", None)),
        intake=INTAKE,
        partition=0,
        offset=number,
        accepted_ms=START_MS,
        target_partition=0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def delivered(records: list[Produced], late_ms: int = 5) -> list[Arrived]:
    """Return the deliveries of a correct service: every message once, by due time and intake offset."""
    arrived = []
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for record in sorted(records, key=lambda each: (each.due_ms, each.offset)):
        place = (record.target, record.target_partition or 0)
        arrived.append(
            Arrived(
                id=record.id,
                key=record.key,
                target=record.target,
                partition=place[1],
                offset=ends[place],
                timestamp_ms=record.due_ms + late_ms,
                due_ms=str(record.due_ms),
                source=record.source,
                value=record.value,
                headers=record.headers,
                seen_ms=record.due_ms + late_ms,
            )
        )
        ends[place] += 1
    return arrived


SENT = [
    produced(1, 3_000),
    produced(2, 1_000),
    produced(3, 2_000),
    produced(4, 2_000),
    produced(5, 9_000, key=None),
]


def faults(report: Report) -> dict[str, int]:
    return {kind: len(texts) for kind, texts in report.faults.items()}


def test_a_clean_run_is_clean_and_fully_judged() -> None:
    report = check(SENT, delivered(SENT))
    report.assert_clean()
    assert report.is_clean
    assert (report.sent, report.late_ms.total(), report.judged) == (5, 5, 4)
    assert (report.lateness.p50_ms, report.lateness.max_ms) == (5, 5)


def test_nothing_produced_and_nothing_arrived_is_clean() -> None:
    report = check([], [])
    report.assert_clean()
    assert report.lateness.p99_ms is None


def test_a_message_that_never_came_is_lost() -> None:
    report = check(SENT, delivered(SENT)[1:])
    assert faults(report) == {"lost": 1}
    assert SENT[1].id in str(report)


def test_a_message_that_came_again_came_twice() -> None:
    arrived = delivered(SENT)
    report = check(SENT, [*arrived, replace(arrived[-1], offset=99)])
    assert faults(report) == {"twice": 1}


def test_a_copy_far_behind_came_twice_and_does_not_disturb_the_order() -> None:
    arrived = delivered(SENT)
    assert faults(check(SENT, [*arrived, replace(arrived[0], offset=99)])) == {"twice": 1}


@pytest.mark.parametrize("clock", ["timestamp_ms", "seen_ms"])
def test_a_message_before_its_due_time_by_either_clock_is_early(clock: str) -> None:
    arrived = delivered(SENT)
    arrived[2] = replace(arrived[2], **{clock: SENT[3].due_ms - 1})  # type: ignore[arg-type]
    assert faults(check(SENT, arrived)) == {"early": 1}


def test_a_message_exactly_on_time_is_not_early() -> None:
    check(SENT, delivered(SENT, late_ms=0)).assert_clean()


def swapped(arrived: list[Arrived], one: int, other: int) -> list[Arrived]:
    arrived = list(arrived)
    first, second = arrived[one], arrived[other]
    arrived[one], arrived[other] = replace(second, offset=first.offset), replace(first, offset=second.offset)
    return arrived


def test_a_message_overtaken_by_one_due_later_is_out_of_order() -> None:
    report = check(SENT, swapped(delivered(SENT), 0, 1))
    assert faults(report) == {"out of order": 1}
    assert f"{SENT[1].id} (due" in str(report)


def test_equal_due_times_not_in_the_order_produced_are_out_of_order() -> None:
    assert faults(check(SENT, swapped(delivered(SENT), 1, 2))) == {"out of order": 1}


def test_everything_behind_the_one_that_came_too_soon_is_out_of_order() -> None:
    assert faults(check(SENT, swapped(delivered(SENT), 0, 3))) == {"out of order": 3}


def test_a_message_accepted_after_it_was_due_may_be_overtaken_and_is_counted_apart() -> None:
    late = replace(SENT[1], accepted_ms=SENT[1].due_ms + 1)
    sent = [SENT[0], late, *SENT[2:]]
    report = check(sent, swapped(delivered(sent), 0, 1))
    assert faults(report) == {}
    assert (report.overtaken, report.judged) == (1, 3)


def test_a_message_accepted_in_time_may_not_be_overtaken_by_one_that_was_not() -> None:
    late = replace(SENT[0], accepted_ms=SENT[0].due_ms + 1)
    sent = [late, *SENT[1:]]
    assert faults(check(sent, swapped(delivered(sent), 2, 3))) == {"out of order": 1}


def test_messages_without_a_key_have_no_order() -> None:
    sent = [replace(record, key=None) for record in SENT]
    check(sent, swapped(delivered(sent), 0, 3)).assert_clean()


def test_across_keys_all_messages_of_a_partition_have_one_order() -> None:
    sent = [replace(record, key=key) for record, key in zip(SENT, (b"a", b"b", None, b"c", None), strict=True)]
    right = delivered(sent)
    report = check(sent, right, across_keys=True)
    report.assert_clean()
    assert report.judged == len(sent)
    for one in range(len(sent) - 1):
        assert faults(check(sent, swapped(right, one, one + 1), across_keys=True)) == {"out of order": 1}


def test_keys_and_targets_do_not_share_an_order() -> None:
    sent = [produced(1, 100, key=b"a"), produced(2, 200, key=b"b"), produced(3, 50, key=b"a", target="bills")]
    check(sent, swapped(delivered(sent), 1, 2)).assert_clean()


@pytest.mark.parametrize(
    "damage",
    [
        {"key": b"other"},
        {"key": None},
        {"value": digest(b"other")},
        {"value": None},
        {"value": digest(b"")},
        {"target": "bills"},
        {"partition": 1},
        {"headers": (("trace", b"2"), ("trace", b"1"), ("empty", None))},
        {"headers": (("trace", b"1"), ("empty", None))},
        {"headers": (("trace", b"1"), ("trace", b"2"), ("empty", b""))},
        {"headers": (("trace", b"1"), ("trace", b"2"), ("empty", None), ("tarry-delay-ms", b"1000"))},
        {"id": ""},
        {"id": "f" * 36},
        {"id": f"{SENT[1].id},{SENT[1].id}"},
        {"due_ms": ""},
        {"due_ms": str(SENT[1].due_ms + 1)},
        {"source": "tarry.delayed/0/77"},
    ],
    ids=lambda damage: "-".join(f"{name}-{str(value)[:24]}" for name, value in damage.items()),
)
def test_a_message_that_is_not_what_was_sent_is_damaged_and_not_lost(damage: dict[str, object]) -> None:
    arrived = delivered(SENT)
    arrived[0] = replace(arrived[0], **damage)  # type: ignore[arg-type]
    assert faults(check(SENT, arrived)) == {"damaged": 1}


def test_a_message_that_nobody_sent_is_unexpected() -> None:
    arrived = delivered(SENT)
    stranger = replace(arrived[0], id="f" * 36, source="tarry.delayed/3/1", offset=99)
    assert faults(check(SENT, [*arrived, stranger])) == {"unexpected": 1}


def test_any_partition_will_do_where_none_is_expected() -> None:
    sent = [replace(record, target_partition=None) for record in SENT]
    check(sent, [replace(arrival, partition=3) for arrival in delivered(sent)]).assert_clean()


@pytest.mark.parametrize("twin", [{"id": SENT[0].id}, {"offset": SENT[0].offset}])
def test_a_list_that_cannot_be_judged_is_refused(twin: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="share an id or a place"):
        check([*SENT, replace(produced(6, 0), **twin)], [])  # type: ignore[arg-type]


@given(
    dues=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 5)), max_size=60),
    shuffle=st.randoms(use_true_random=False),
)
def test_any_mixture_of_keys_that_keeps_each_key_in_order_is_clean(
    dues: list[tuple[int, int]], shuffle: random.Random
) -> None:
    sent = [produced(number, due, key=b"%d" % key) for number, (due, key) in enumerate(dues)]
    queues: dict[bytes | None, list[Arrived]] = defaultdict(list)
    for arrival in delivered(sent):
        queues[arrival.key].append(arrival)
    mixed: list[Arrived] = []
    while queues:
        key = shuffle.choice(sorted(queues, key=str))
        mixed.append(replace(queues[key].pop(0), offset=len(mixed)))
        if not queues[key]:
            del queues[key]
    shuffle.shuffle(mixed)  # the list's own order means nothing: offsets do
    report = check(sent, mixed)
    report.assert_clean()
    assert report.judged == len(sent)


@given(
    sent=st.lists(st.integers(0, 20), min_size=2, max_size=30).map(
        lambda dues: [produced(number, due) for number, due in enumerate(dues)]
    ),
    shuffle=st.randoms(use_true_random=False),
)
def test_any_order_of_one_key_but_the_right_one_is_found(sent: list[Produced], shuffle: random.Random) -> None:
    right = delivered(sent)
    order = list(right)
    shuffle.shuffle(order)
    arrived = [replace(arrival, offset=offset) for offset, arrival in enumerate(order)]
    assert (check(sent, arrived).count("out of order") == 0) == (order == right)


def test_interned_records_share_their_keys_and_headers() -> None:
    interned = Interned()
    one_key, other_key = bytes(bytearray(b"some key")), bytes(bytearray(b"some key"))
    assert one_key is not other_key
    assert interned.key(one_key) is interned.key(other_key)
    assert interned.key(None) is None
    one, other = (("a", one_key),), (("a", other_key),)
    assert interned.headers(one) is interned.headers(other)
