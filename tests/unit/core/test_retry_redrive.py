"""Which dead letters are sent again, in which order, and as what."""

import pytest

from tarry.client.retry.core.journey import Journey, journey_of
from tarry.client.retry.core.key_queue import Ticket
from tarry.client.retry.core.redrive import (
    Condition,
    DeadLetter,
    dismissed,
    is_stranger,
    matching_letters,
    older_of_names,
    sent_again,
    without_expired,
)
from tarry.errors import ConfigError, HeaderError

ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


def letter(offset: int, key: bytes = b"k", ticket: Ticket | None = None, error: bytes = b"final-error") -> DeadLetter:
    journey = Journey(ID, "orders/3/17", ticket).headers() if ticket else []
    return DeadLetter(3, offset, key, b"v", [("own", b"1"), *journey, ("tarry-error", error)])


def note(offset: int) -> DeadLetter:
    return DeadLetter(3, 99, None, None, [("tarry-redriven-offset", b"%d" % offset)])


def test_dead_letters_that_were_redriven_before_are_left_out() -> None:
    assert matching_letters([letter(0), letter(1), note(0)], []) == [letter(1)]


def test_a_letter_whose_message_has_the_headers_of_a_note_is_a_letter_and_no_note() -> None:
    forged = [("tarry-redriven-offset", b"0"), ("tarry-dismissed", None)]
    of_an_intake = DeadLetter(3, 1, None, None, [*forged, ("tarry-error", b"bad-time"), ("tarry-error-detail", b"d")])
    of_a_consumer = DeadLetter(3, 2, None, None, [*forged, *letter(2, ticket=Ticket(1, 2)).headers])
    others = [DeadLetter(3, 3, key, value, forged[:1]) for key, value in ((b"k", None), (None, b"v"))]
    twice = DeadLetter(3, 5, None, None, [*forged[:1], *forged[:1]])
    letters = [letter(0), of_an_intake, of_a_consumer, *others, twice]
    found = {one.offset for one in matching_letters(letters, [])}
    assert found >= {0, 1, 2}
    assert [is_stranger(one) for one in letters] == [False, False, False, True, True, True]


def test_the_error_of_a_letter_is_the_one_that_the_service_has_added() -> None:
    headers = [("tarry-error", b"expired"), *named(1).headers, ("tarry-error-detail", b"no such topic")]
    found = DeadLetter(3, 1, b"k", b"v", [("tarry-error-detail", b"forged"), *headers])
    assert (found.text("tarry-error"), found.text("tarry-error-detail")) == (["unknown-target"], ["no such topic"])
    assert without_expired([found], NOW_MS).letters == [found]
    assert matching_letters([found], [Condition("tarry-error", "expired")]) == []


def test_dead_letters_of_a_key_are_sent_again_in_the_order_of_its_key_queue() -> None:
    letters = [letter(0, ticket=Ticket(17, 3)), letter(1, ticket=Ticket(17, 2)), letter(2, ticket=Ticket(4, 9))]
    assert [one.offset for one in matching_letters(letters, [])] == [2, 1, 0]
    assert [one.offset for one in matching_letters([letter(0), letter(1)], [])] == [0, 1]


def test_all_conditions_must_hold() -> None:
    letters = [letter(0, b"order-1"), letter(1, b"order-2", error=b"key-stopped"), letter(2, b"x")]
    where = [Condition.parse("key=order-*"), Condition.parse("tarry-error=final-*")]
    assert [one.offset for one in matching_letters(letters, where)] == [0]
    assert matching_letters(letters, [Condition.parse("no-such-header=*")]) == []


@pytest.mark.parametrize("text", ["", "key", "=x"])
def test_a_malformed_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=PATTERN"):
        Condition.parse(text)


def test_a_redriven_message_is_unchanged_and_goes_to_its_original_partition() -> None:
    record, beside = sent_again(letter(5, ticket=Ticket(17, 2)), "orders.billing.dead", "orders")
    headers = [("own", b"1"), ("tarry-id", ID.encode()), ("tarry-retry-redriven", b"orders.billing.dead/17")]
    assert record == ("orders", 3, b"k", b"v", headers)
    assert beside == ("orders.billing.dead", 3, None, None, [("tarry-redriven-offset", b"5")])
    elsewhere, _ = sent_again(letter(5, ticket=Ticket(17, 2)), "orders.billing.dead", "bills")
    assert elsewhere.partition == -1


def test_a_dead_letter_of_an_intake_keeps_its_request() -> None:
    dead = DeadLetter(0, 1, b"k", b"v", [("tarry-target", b"t"), ("tarry-error", b"x"), ("tarry-error-detail", b"y")])
    record, _ = sent_again(dead, "delays.dead", "delays")
    assert record == ("delays", -1, b"k", b"v", [("tarry-target", b"t")])


def test_a_dead_letter_of_an_intake_does_not_choose_its_partition_by_the_headers_of_a_retry() -> None:
    forged = Journey(ID, "delays/99/17", Ticket(1, 2)).headers()
    dead = DeadLetter(0, 1, b"k", b"v", [*forged, ("tarry-expires-at", b"soon"), ("tarry-error", b"bad-time")])
    record, _ = sent_again(dead, "delays.dead", "delays")
    assert record == ("delays", -1, b"k", b"v", [*forged, ("tarry-expires-at", b"soon")])


@pytest.mark.parametrize(
    "source", ["orders/2147483648/1", "orders/-1/1", "orders/1/-1", "orders/1/9223372036854775808"]
)
def test_a_place_that_no_record_has_is_no_journey(source: str) -> None:
    with pytest.raises(HeaderError, match="did not send this record"):
        journey_of(Journey(ID, source, Ticket(1, 2)).headers())


def test_a_dead_occurrence_begins_its_schedule_anew() -> None:
    rule: list[tuple[str, bytes | None]] = [("tarry-name", b"n"), ("tarry-every", b"1h"), ("tarry-id", b"i" * 16)]
    last: list[tuple[str, bytes | None]] = [("tarry-next", b"7 1700000000000 2"), ("tarry-error", b"unknown-target")]
    dead = DeadLetter(0, 1, b"k", b"v", [("tarry-target", b"t"), *rule, *last])
    record, _ = sent_again(dead, "delays.dead", "delays")
    assert record.headers == [("tarry-target", b"t"), *rule, ("tarry-if", b"absent")]


def named(offset: int, name: bytes = b"n", *more: tuple[str, bytes | None], key: bytes = b"k") -> DeadLetter:
    headers = [("tarry-target", b"t"), ("tarry-name", name), *more, ("tarry-error", b"unknown-target")]
    return DeadLetter(3, offset, key, b"v", headers)


@pytest.mark.parametrize("condition", [[], [("tarry-if", b"present")], [("tarry-if", b"absent")]], ids=str)
def test_a_named_letter_does_not_replace_a_younger_message(condition: list[tuple[str, bytes | None]]) -> None:
    record, _ = sent_again(named(7, b"n", *condition), "delays.dead", "delays")
    assert record.headers == [("tarry-target", b"t"), ("tarry-name", b"n"), ("tarry-if", b"absent")]


def test_the_letter_of_a_schedule_begins_it_anew_where_none_of_its_name_waits() -> None:
    rule, id_ = ("tarry-every", b"1h"), ("tarry-id", b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    record, _ = sent_again(named(7, b"n", rule, id_, ("tarry-next", b"17 1700000000000 5")), "delays.dead", "delays")
    assert record.headers == [("tarry-target", b"t"), ("tarry-name", b"n"), rule, id_, ("tarry-if", b"absent")]


def test_where_the_key_is_the_name_each_letter_with_a_key_is_named() -> None:
    dead = DeadLetter(0, 1, b"k", b"v", [("x-delay", b"5"), ("tarry-error", b"x")])
    record, _ = sent_again(dead, "delays.dead", "delays", keys_are_names=True)
    assert record.headers == [("x-delay", b"5"), ("tarry-if", b"absent")]
    record, _ = sent_again(dead._replace(key=None), "delays.dead", "delays", keys_are_names=True)
    assert record.headers == [("x-delay", b"5")]
    record, _ = sent_again(dead, "delays.dead", "delays")
    assert record.headers == [("x-delay", b"5")]


def places(*offsets: int) -> set[tuple[int, int]]:
    return {(3, offset) for offset in offsets}


def test_of_a_name_each_letter_but_the_youngest_is_an_older_one() -> None:
    letters = [named(0), letter(1), named(2, b"other"), named(3), named(4, key=b"l"), named(5)]
    assert older_of_names(letters, keys_are_names=False) == places(0, 3)
    # To be redriven does not make the youngest out of date, and to be dismissed does.
    assert older_of_names([*letters, note(5)], keys_are_names=False) == places(0, 3)
    note_of_5 = DeadLetter(3, 99, *dismissed("delays.dead", 3, 5)[2:])
    assert older_of_names([*letters, note_of_5], keys_are_names=False) == places(0)


def test_where_the_key_is_the_name_each_letter_of_a_key_but_the_youngest_is_an_older_one() -> None:
    letters = [letter(0), letter(1), letter(2, b"l")]
    assert older_of_names(letters, keys_are_names=True) == places(0)
    assert older_of_names(letters, keys_are_names=False) == set()
    assert older_of_names([one._replace(key=None) for one in letters], keys_are_names=True) == set()


NOW_MS = 1_700_000_000_000


def expiring(offset: int, error: bytes, expires: bytes | None) -> DeadLetter:
    headers = [("tarry-target", b"t"), ("tarry-expires-at", expires), ("own", b"1"), ("tarry-error", error)]
    return DeadLetter(3, offset, b"k", b"v", headers)


def test_what_has_expired_is_left_out_whatever_it_died_of() -> None:
    letters = [
        letter(0),
        expiring(1, b"unknown-target", b"%d" % NOW_MS),
        expiring(2, b"unknown-target", b"%d" % (NOW_MS - 1)),
        expiring(3, b"unknown-target", b"2020-01-01T00:00:00Z"),
        # It was to expire before it was due: it would be dead again although that time is not over.
        expiring(4, b"expired", b"%d" % (NOW_MS + 1)),
        expiring(5, b"bad-time", b"soon"),
        expiring(6, b"bad-time", None),
    ]
    selected = without_expired(letters, NOW_MS)
    assert ([one.offset for one in selected.letters], selected.expired) == ([0, 1, 5, 6], 3)


@pytest.mark.parametrize(("delay", "is_sent"), [(b"60000", True), (b"60001", False), (b"x", True), (None, True)])
def test_a_delay_counts_again_and_must_be_over_before_the_expiry(delay: bytes | None, is_sent: bool) -> None:
    letter = expiring(0, b"unknown-target", b"%d" % (NOW_MS + 60_000))
    letter = letter._replace(headers=[*letter.headers, ("tarry-delay-ms", delay)])
    selected = without_expired([letter], NOW_MS)
    assert (selected.letters, selected.expired) == (([letter], 0) if is_sent else ([], 1))


def test_what_has_expired_is_sent_without_its_expiry_if_that_is_asked_for_and_the_rest_keeps_it() -> None:
    letters = [expiring(0, b"expired", b"%d" % (NOW_MS - 1)), expiring(1, b"unknown-target", b"%d" % NOW_MS)]
    selected = without_expired(letters, NOW_MS, revive=True)
    records = [sent_again(one, "delays.dead", "delays")[0].headers for one in selected.letters]
    kept = ("tarry-expires-at", b"%d" % NOW_MS)
    assert records == [[("tarry-target", b"t"), ("own", b"1")], [("tarry-target", b"t"), kept, ("own", b"1")]]
    assert selected.expired == 0
