"""From an intake record to a request or a rejection."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.murmur2 import partition_of
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Naming, hash_of
from tarry.core.request.reader import Header, RequestReader
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.headers import DELAY_MS, DELIVER_AT, REQUEST_HEADERS, ErrorCode, derived_id
from tarry.jitter import jitter_ms
from tarry.units import MAX_EPOCH_MS

_NOW_MS = 1_767_225_600_000
_DAY_MS = 86_400_000
_ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
_TARGET: Header = ("tarry-target", b"orders")
_DELAY: Header = ("tarry-delay-ms", b"5000")
_TOPIC = "tarry.delayed"


def _read(
    headers: list[Header] | None,
    policy: IntakePolicy | None = None,
    *,
    timestamp_ms: int = _NOW_MS,
    now_ms: int = _NOW_MS,
) -> Request | CancelRequest | NameCancelRequest | PurgeRequest | Rejection:
    return RequestReader(policy or IntakePolicy(_TOPIC)).read(3, 42, timestamp_ms, headers, now_ms)


def _accepted(headers: list[Header] | None, policy: IntakePolicy | None = None, **times: int) -> Request:
    decision = _read(headers, policy, **times)
    assert isinstance(decision, Request), decision
    return decision


def _rejected(headers: list[Header] | None, policy: IntakePolicy | None = None, **times: int) -> Rejection:
    decision = _read(headers, policy, **times)
    assert isinstance(decision, Rejection), decision
    assert "\n" not in decision.detail
    assert len(decision.detail) < 400
    return decision


def test_a_delay_counts_from_the_records_own_timestamp() -> None:
    request = _accepted([_TARGET, _DELAY, ("tarry-id", _ID)], timestamp_ms=_NOW_MS - 700)
    assert request == Request(_NOW_MS + 4_300, "orders", -1, _ID, False)


def test_other_headers_travel_untouched_and_in_order() -> None:
    others: list[Header] = [
        ("b", b"\xff\x00"),
        ("a", None),
        ("b", b""),
        ("ce_id", b"not a uuid"),
        ("Tarry-Target", b"x"),
    ]
    headers = [others[0], _TARGET, others[1], _DELAY, ("tarry-partition", b"7"), *others[2:]]
    request = _accepted(headers)
    assert request.carries
    assert request.partition == 7


def test_headers_of_an_earlier_delivery_are_removed_even_if_repeated() -> None:
    earlier: list[Header] = [("tarry-due-ms", b"1"), ("tarry-source", b"a/0/0"), ("tarry-due-ms", b"2")]
    assert _accepted([*earlier, _TARGET, _DELAY]).carries is False


def test_the_id_is_the_records_own_else_cloudevents_else_made_from_its_place() -> None:
    other = uuid.UUID(bytes=b"0123456789abcdef")
    ce: Header = ("ce_id", str(other).upper().encode())
    assert _accepted([_TARGET, _DELAY, ce, ("tarry-id", _ID)]).id == _ID
    assert _accepted([_TARGET, _DELAY, ("tarry-id", other.bytes)]).id == str(other).encode()
    with_ce = _accepted([_TARGET, _DELAY, ce])
    assert with_ce.id == str(other).encode()
    assert with_ce.carries
    assert _accepted([_TARGET, _DELAY, ("ce_id", b"7")]).id == derived_id(_TOPIC, 3, 42)


_NAMED: list[Header] = [_TARGET, _DELAY, ("tarry-name", b"n")]


@pytest.mark.parametrize(
    ("headers", "key", "code"),
    [
        (_NAMED, None, "null-key"),
        (_NAMED, b"elsewhere", "wrong-partition"),
        ([_TARGET, _DELAY, ("tarry-name", None)], b"k", "bad-name"),
        ([_TARGET, _DELAY, ("tarry-name", b"n" * 256)], b"k", "bad-name"),
        ([*_NAMED, ("tarry-if", None)], b"k", "bad-name"),
        ([*_NAMED, ("tarry-if", b"")], b"k", "bad-name"),
        ([_TARGET, _DELAY, ("tarry-if", b"absent")], b"k", "bad-name"),
        ([*_NAMED, *_NAMED], b"k", "repeated-header"),
        ([("tarry-cancel-name", b"")], b"k", "bad-name"),
        ([("tarry-cancel-name", b"n")], None, "null-key"),
        ([("tarry-cancel-name", b"n"), ("tarry-cancel-name", b"n")], b"k", "repeated-header"),
    ],
)
def test_a_name_needs_a_key_in_its_partition_and_1_to_255_bytes(
    headers: list[Header], key: bytes | None, code: str
) -> None:
    reader = RequestReader(IntakePolicy(_TOPIC))
    own = partition_of(b"k", 7)
    reader.partitions = 7
    assert partition_of(b"elsewhere", 7) != own
    decision = reader.read(own, 42, _NOW_MS, headers, _NOW_MS, key=key)
    assert isinstance(decision, Rejection)
    assert decision.code == code


def test_an_intake_with_a_fixed_delay_accepts_no_names() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC, fixed_delay_ms=5, fixed_target="orders"))
    for header in ("tarry-name", "tarry-cancel-name"):
        decision = reader.read(0, 42, _NOW_MS, [(header, b"n")], _NOW_MS, key=b"k")
        assert isinstance(decision, Rejection)
        assert decision.code == "names-not-accepted"


def test_what_a_cancel_by_name_ignores_may_be_wrong() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC))
    decision = reader.read(
        0, 42, _NOW_MS, [("tarry-cancel-name", b"n"), ("tarry-delay-ms", b"soon")], _NOW_MS, key=b"k"
    )
    assert decision == NameCancelRequest(hash_of(b"k", b"n"), derived_id(_TOPIC, 0, 42))


def test_a_name_is_not_delivered() -> None:
    named = RequestReader(IntakePolicy(_TOPIC)).read(0, 42, _NOW_MS, _NAMED, _NOW_MS, key=b"k")
    assert isinstance(named, Request)
    assert named.carries is False
    assert named.naming == Naming(hash_of(b"k", b"n"))


def test_key_and_name_are_told_apart() -> None:
    assert hash_of(b"ab", b"c") != hash_of(b"a", b"bc")


def test_the_same_target_is_the_same_object() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC))
    decisions = [
        reader.read(0, offset, _NOW_MS, [("tarry-target", bytes(bytearray(b"some.topic"))), _DELAY], _NOW_MS)
        for offset in range(2)
    ]
    first, second = decisions
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    assert first.target is second.target


def test_due_times_round_up_to_the_tick() -> None:
    policy = IntakePolicy(_TOPIC, tick_ms=20)
    dues = [_accepted([_TARGET, ("tarry-delay-ms", delay)], policy).due_ms for delay in (b"0", b"1", b"20", b"21")]
    assert dues == [_NOW_MS, _NOW_MS + 20, _NOW_MS + 20, _NOW_MS + 40]
    assert _accepted([_TARGET, (DELIVER_AT, b"%d" % (_NOW_MS + 1))], policy).due_ms == _NOW_MS + 20


@pytest.mark.parametrize(
    "value",
    [b"1767225605000", b"01767225605000", b"2026-01-01T00:00:05Z", b"2026-01-01T01:00:04.999000001+01:00"],
)
def test_a_time_is_epoch_milliseconds_or_rfc_3339(value: bytes) -> None:
    assert _accepted([_TARGET, (DELIVER_AT, value)]).due_ms == _NOW_MS + 5_000


def test_a_time_that_has_passed_is_due_at_once() -> None:
    assert _accepted([_TARGET, (DELIVER_AT, b"%d" % (_NOW_MS - _DAY_MS))]).due_ms == _NOW_MS - _DAY_MS


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "bad-delay"),
        (b"", "bad-delay"),
        (b"+5", "bad-delay"),
        (b" 5", "bad-delay"),
        (b"5 ", "bad-delay"),
        (b"1e3", "bad-delay"),
        (b"5s", "bad-delay"),
        (b"5.0", "bad-delay"),
        (b"1_000", "bad-delay"),
        (b"0x10", "bad-delay"),
        ("\u0665".encode(), "bad-delay"),
        (b"--5", "bad-delay"),
        (b"-", "bad-delay"),
        (b"\xff\n", "bad-delay"),
        (b"-1", "negative-delay"),
        (b"-" + b"9" * 400, "negative-delay"),
        (b"9" * 15, "beyond-max-delay"),
        (b"9" * 400, "beyond-max-delay"),
        (b"9" * 100_000, "beyond-max-delay"),
    ],
)
def test_a_delay_is_ascii_digits_alone(value: bytes | None, code: str) -> None:
    assert _rejected([_TARGET, (DELAY_MS, value)]).code == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "bad-time"),
        (b"", "bad-time"),
        (b"-5", "bad-time"),
        (b"+1767225605000", "bad-time"),
        (b"2026-01-01T00:00:05", "bad-time"),
        (b"2026-13-01T00:00:05Z", "bad-time"),
        (b"1969-12-31T23:59:59Z", "bad-time"),
        (b"9999-12-31T23:59:59-01:00", "bad-time"),
        (b"tomorrow", "bad-time"),
        (b"\xff", "bad-time"),
        (b"9" * 400, "bad-time"),
        (b"1767225605000000", "bad-time"),
        (b"0", "looks-like-seconds"),
        (b"1767225605", "looks-like-seconds"),
        (b"999999999999", "looks-like-seconds"),
        (b"253402300799999", "beyond-max-delay"),
    ],
)
def test_a_malformed_time_is_rejected_by_its_headers_name(value: bytes | None, code: str) -> None:
    assert _rejected([_TARGET, (DELIVER_AT, value)]).code == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "bad-target"),
        (b"", "bad-target"),
        (b"..", "bad-target"),
        (b"a b", "bad-target"),
        ("töpic".encode(), "bad-target"),
        (b"\xff", "bad-target"),
        (b"x" * 250, "bad-target"),
        (b"x" * 1_000_000, "bad-target"),
        (b"__consumer_offsets", "internal-target"),
        (b"tarry.delayed.results", "internal-target"),
        (b"tarry.delayed.wheel-3", "internal-target"),
        (b"slow.journal", "internal-target"),
        (b"slow.dead", "internal-target"),
        (b"payments", "target-not-allowed"),
    ],
)
def test_a_target_must_be_legal_ours_and_allowed(value: bytes | None, code: str) -> None:
    policy = IntakePolicy(_TOPIC, targets=("orders*", "slow.*", "tarry.*", "__*"), intakes=frozenset({"slow"}))
    assert _rejected([("tarry-target", value), _DELAY], policy).code == code


def test_only_topics_of_intakes_are_internal_and_globs_mind_case() -> None:
    policy = IntakePolicy(_TOPIC, targets=("Orders.[ab]?", "mine.*"))
    targets = [
        _accepted([("tarry-target", name), _DELAY], policy).target
        for name in (b"Orders.a1", b"mine.results", b"mine.dead")
    ]
    assert targets == ["Orders.a1", "mine.results", "mine.dead"]
    assert _rejected([("tarry-target", b"orders.a1"), _DELAY], policy).code == ErrorCode.TARGET_NOT_ALLOWED


def test_a_verdict_stays_the_same_when_many_names_have_passed() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC, targets=("ok-*",)))
    for number in range(10_000):
        good = reader.read(0, 0, _NOW_MS, [("tarry-target", b"ok-%d" % number), _DELAY], _NOW_MS)
        assert isinstance(good, Request)
        bad = reader.read(0, 0, _NOW_MS, [("tarry-target", b"no-%d" % number), _DELAY], _NOW_MS)
        assert isinstance(bad, Rejection)
    assert isinstance(reader.read(0, 0, _NOW_MS, [("tarry-target", b"no-0"), _DELAY], _NOW_MS), Rejection)


@pytest.mark.parametrize("value", [None, b"", b"-1", b"1.0", b"2147483648", b"9" * 400, b" 1"])
def test_a_partition_is_a_number_that_kafka_knows(value: bytes | None) -> None:
    assert _rejected([_TARGET, _DELAY, ("tarry-partition", value)]).code == ErrorCode.BAD_PARTITION


@pytest.mark.parametrize("value", [None, b"", b"7", b"x" * 36, b"x" * 15])
def test_a_bad_id_is_rejected_under_the_id_made_from_its_place(value: bytes | None) -> None:
    rejection = _rejected([_TARGET, _DELAY, ("tarry-id", value)])
    assert rejection.code == ErrorCode.BAD_ID
    assert (rejection.id, rejection.due_ms, rejection.target) == (
        derived_id(_TOPIC, 3, 42),
        _NOW_MS + 5_000,
        "orders",
    )


def test_without_headers_there_is_no_delay_and_no_target() -> None:
    assert _rejected(None).code == ErrorCode.NO_DELAY
    assert _rejected([]).code == ErrorCode.NO_DELAY
    assert _rejected([_DELAY]) == Rejection(
        ErrorCode.NO_TARGET, "needs tarry-target", derived_id(_TOPIC, 3, 42), _NOW_MS + 5_000, None
    )
    rejection = _rejected([_TARGET, ("tarry-id", _ID)])
    assert (rejection.code, rejection.id, rejection.due_ms, rejection.target) == (
        "no-delay",
        _ID,
        None,
        "orders",
    )


def test_a_delay_and_a_time_exclude_each_other() -> None:
    assert _rejected([_TARGET, _DELAY, (DELIVER_AT, b"1767225605000")]).code == ErrorCode.TWO_DELAYS


@pytest.mark.parametrize("name", sorted(REQUEST_HEADERS - {"tarry-cancel"}))
def test_a_repeated_request_header_is_rejected_even_with_equal_values(name: str) -> None:
    base = [header for header in (_TARGET, _DELAY) if header[0] != name]
    assert _rejected([(name, b"1"), *base, (name, b"1")]).code == ErrorCode.REPEATED_HEADER


def test_a_purge_asks_for_its_target_and_its_other_headers_are_ignored() -> None:
    purge: Header = ("tarry-purge", b"orders")
    expected = PurgeRequest(_NOW_MS, "orders", derived_id(_TOPIC, 3, 42))
    assert _read([_TARGET, _TARGET, ("tarry-id", b"bad"), purge]) == expected
    for policy in (IntakePolicy(_TOPIC, fixed_delay_ms=5, fixed_target="x"), IntakePolicy(_TOPIC, dialect="etf1")):
        assert _read([purge], policy) == expected
    assert _read([purge], IntakePolicy(_TOPIC, targets=("others",))) == expected


@pytest.mark.parametrize("timestamp_ms", [-1, 0, _NOW_MS + 5_000])
def test_a_purge_is_due_when_it_is_read_whatever_its_timestamp_is(timestamp_ms: int) -> None:
    request = _read([("tarry-purge", b"orders")], timestamp_ms=timestamp_ms)
    assert request == PurgeRequest(_NOW_MS, "orders", derived_id(_TOPIC, 3, 42))


@pytest.mark.parametrize("value", [None, b"", b"no/topic", b"\xff", b"x" * 250])
def test_a_purge_of_what_is_no_topic_is_rejected(value: bytes | None) -> None:
    rejection = _rejected([("tarry-purge", value)])
    assert (rejection.code, rejection.id) == (ErrorCode.BAD_TARGET, derived_id(_TOPIC, 3, 42))
    assert rejection.detail.startswith("tarry-purge: ")


def test_a_record_that_is_a_cancel_and_a_purge_is_a_cancel() -> None:
    cancel = _cancel(f"1.{_TOPIC}.3.{_NOW_MS}.{_ID.decode()}")
    assert _read([("tarry-purge", b"orders"), cancel]) == CancelRequest(_NOW_MS, _ID)


def _cancel(handle: str) -> Header:
    return "tarry-cancel", handle.encode()


def test_a_cancel_asks_for_its_handle_and_its_other_headers_are_ignored() -> None:
    cancel = _cancel(f"1.{_TOPIC}.3.{_NOW_MS + 5_000}.{_ID.decode().upper()}")
    assert _read([_TARGET, _TARGET, ("tarry-id", b"bad"), cancel]) == CancelRequest(_NOW_MS + 5_000, _ID)
    assert _rejected([cancel, cancel]).code == ErrorCode.REPEATED_HEADER


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        ("1.tarry.delayed.0.1.x", "not a handle"),
        (f"1.{_TOPIC}.4.1767225605000.{_ID.decode()}", "the cancel is in tarry.delayed/3"),
        (f"1.other.3.1767225605000.{_ID.decode()}", "of a message in other/3"),
        (f"1.{_TOPIC}.3.{_NOW_MS + 31 * 86_400_000}.{_ID.decode()}", "no message may wait until"),
    ],
)
def test_a_cancel_that_can_be_of_no_message_here_is_rejected(handle: str, why: str) -> None:
    rejection = _rejected([_cancel(handle)])
    assert rejection.code == ErrorCode.BAD_HANDLE
    assert why in rejection.detail
    assert rejection.id == derived_id(_TOPIC, 3, 42)


def test_nothing_is_cancelled_in_an_intake_with_a_fixed_delay() -> None:
    policy = IntakePolicy(_TOPIC, fixed_delay_ms=30_000, fixed_target="orders")
    rejection = _rejected([_cancel(f"1.{_TOPIC}.3.{_NOW_MS}.{_ID.decode()}")], policy)
    assert (rejection.code, "fixed delay" in rejection.detail) == (ErrorCode.BAD_HANDLE, True)


def test_the_first_fault_in_the_documented_order_names_the_error() -> None:
    faults: list[list[Header]] = [
        [("tarry-target", b"orders"), ("tarry-target", b"orders")],
        [("tarry-cancel", b"")],
        [("tarry-id", b"bad")],
        [(DELAY_MS, b"bad")],
        [("tarry-target", b"a b")],
        [("tarry-partition", b"bad")],
    ]
    codes = [_rejected([header for fault in faults[place:] for header in fault]).code for place in (2, 3)]
    assert codes == ["bad-id", "bad-delay"]
    assert _rejected([_DELAY, *faults[4], *faults[5]]).code == "bad-target"
    assert _rejected([_TARGET, (DELAY_MS, b"9" * 14), *faults[5]]).code == "bad-partition"
    assert _rejected([*faults[0], *faults[2]]).code == "repeated-header"
    assert _rejected([*faults[0], *faults[1]]).code == "bad-handle"


def test_max_delay_counts_from_the_timestamp_and_before_rounding() -> None:
    policy = IntakePolicy(_TOPIC, max_delay_ms=1_005, tick_ms=10)
    assert _accepted([_TARGET, (DELAY_MS, b"1005")], policy).due_ms == _NOW_MS + 1_010
    rejection = _rejected([_TARGET, (DELAY_MS, b"1006")], policy)
    assert (rejection.code, rejection.due_ms) == (ErrorCode.BEYOND_MAX_DELAY, _NOW_MS + 1_010)
    at: Header = (DELIVER_AT, b"%d" % (_NOW_MS + 1_006))
    assert _rejected([_TARGET, at], policy).code == ErrorCode.BEYOND_MAX_DELAY
    assert _accepted([_TARGET, at], policy, timestamp_ms=_NOW_MS + 1).due_ms == _NOW_MS + 1_010


def test_the_horizon_counts_from_now_and_after_rounding() -> None:
    policy = IntakePolicy(_TOPIC, horizon_ms=60_000, tick_ms=10)
    assert _accepted([_TARGET, (DELAY_MS, b"59991")], policy).due_ms == _NOW_MS + 60_000
    assert _rejected([_TARGET, (DELAY_MS, b"60001")], policy).code == ErrorCode.BEYOND_HORIZON
    assert _accepted([_TARGET, (DELAY_MS, b"60001")], policy, now_ms=_NOW_MS + 10).due_ms == _NOW_MS + 60_010


def test_a_record_without_a_timestamp_has_nothing_to_count_a_delay_from() -> None:
    assert _rejected([_TARGET, _DELAY], timestamp_ms=-1).code == ErrorCode.BAD_DELAY


def test_a_timestamp_near_the_end_of_time_is_no_exception() -> None:
    rejection = _rejected([_TARGET, _DELAY], timestamp_ms=MAX_EPOCH_MS)
    assert (rejection.code, rejection.due_ms) == (ErrorCode.BEYOND_MAX_DELAY, None)
    assert _rejected([_TARGET, _DELAY], timestamp_ms=2**63 - 1).code == ErrorCode.BEYOND_MAX_DELAY


def test_a_fixed_delay_needs_no_headers_and_wins_over_those_there_are() -> None:
    policy = IntakePolicy("retry-30s", fixed_delay_ms=30_000, fixed_target="orders", max_delay_ms=1_000)
    assert _accepted(None, policy) == Request(_NOW_MS + 30_000, "orders", -1, derived_id("retry-30s", 3, 42), False)
    headers: list[Header] = [
        ("tarry-target", b"a b"),
        (DELAY_MS, b"x"),
        (DELIVER_AT, b""),
        ("tarry-id", _ID),
        ("a", b"1"),
    ]
    assert _accepted(headers, policy) == Request(_NOW_MS + 30_000, "orders", -1, _ID, True)
    assert _accepted([("tarry-partition", b"2")], policy).partition == 2
    assert _rejected([("tarry-id", b"bad")], policy).code == ErrorCode.BAD_ID
    assert _rejected([_TARGET, _TARGET], policy).code == ErrorCode.REPEATED_HEADER
    assert _rejected([("tarry-cancel", b"x")], policy).code == ErrorCode.BAD_HANDLE
    assert _rejected(None, policy, timestamp_ms=-1).code == ErrorCode.BAD_DELAY


def test_a_record_whose_headers_cannot_be_read_is_dead_under_the_id_of_its_place() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC))
    for headers in ([], [("caf\\xe9", b"1")], [("tarry-id", b"none")]):
        rejection = reader.unreadable(3, 42, headers)
        assert (rejection.code, rejection.id) == (ErrorCode.UNREADABLE_HEADERS, derived_id(_TOPIC, 3, 42))
        assert (rejection.due_ms, rejection.target) == (None, None)


def test_a_record_with_a_header_that_cannot_be_read_is_dead_under_its_own_id_where_that_can_be_read() -> None:
    headers = [("caf\\xe9", b"1"), ("tarry-id", _ID)]
    assert RequestReader(IntakePolicy(_TOPIC)).unreadable(3, 42, headers).id == _ID


def test_a_policy_of_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="must be set together"):
        IntakePolicy(_TOPIC, fixed_delay_ms=1)
    with pytest.raises(ValueError, match="at least 1"):
        IntakePolicy(_TOPIC, tick_ms=0)


_ZERO: Header = ("tarry-id", b"00000000-0000-0000-0000-000000000000")
_AT: Header = (DELIVER_AT, b"%d" % _NOW_MS)


def _expires(at_ms: int) -> Header:
    return "tarry-expires-at", b"%d" % at_ms


def test_an_expiry_is_a_time_in_the_formats_of_a_due_time() -> None:
    for value in (b"%d" % (_NOW_MS + 9_000), b"2026-01-01T00:00:09Z", b"2026-01-01T01:00:09+01:00"):
        request = _accepted([_TARGET, _DELAY, ("tarry-id", _ID), ("tarry-expires-at", value)])
        assert request == Request(_NOW_MS + 5_000, "orders", -1, _ID, False, expires_ms=_NOW_MS + 9_000)
    assert _accepted([_TARGET, _DELAY]).expires_ms == NO_EXPIRY_MS


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "bad-time"),
        (b"", "bad-time"),
        (b"tomorrow", "bad-time"),
        (b"2026-01-01T00:00:09", "bad-time"),
        (b"999999999999999", "bad-time"),
        (b"1767225600", "looks-like-seconds"),
    ],
)
def test_a_bad_expiry_has_the_codes_of_a_bad_due_time(value: bytes | None, code: str) -> None:
    rejection = _rejected([_TARGET, _DELAY, ("tarry-expires-at", value)])
    assert (rejection.code, rejection.due_ms) == (code, _NOW_MS + 5_000)
    assert rejection.detail.startswith("tarry-expires-at ")


def test_what_expires_before_it_is_due_is_dead_when_it_is_read() -> None:
    policy = IntakePolicy(_TOPIC, tick_ms=10)
    assert _accepted([_TARGET, _DELAY, _expires(_NOW_MS + 5_000)], policy).expires_ms == _NOW_MS + 5_000
    rejection = _rejected([_TARGET, _DELAY, _expires(_NOW_MS + 4_999)], policy)
    assert (rejection.code, rejection.due_ms) == (ErrorCode.EXPIRED, _NOW_MS + 5_000)
    assert (
        rejection.detail == "tarry-expires-at is 2026-01-01T00:00:04.999Z, before it is due (2026-01-01T00:00:05.000Z)"
    )
    # The due time is the one that is rounded up.
    assert _rejected([_TARGET, (DELAY_MS, b"11"), _expires(_NOW_MS + 19)], policy).code == ErrorCode.EXPIRED


def test_what_was_due_and_has_expired_by_now_is_judged_when_it_fires() -> None:
    assert _accepted([_TARGET, _AT, _expires(_NOW_MS)], now_ms=_NOW_MS + 60_000).expires_ms == _NOW_MS


def test_a_name_is_known_of_what_expires_before_it_is_due() -> None:
    headers = [*_NAMED, _expires(_NOW_MS)]
    rejection = RequestReader(IntakePolicy(_TOPIC)).read(0, 42, _NOW_MS, headers, _NOW_MS, key=b"k")
    assert isinstance(rejection, Rejection)
    assert (rejection.code, rejection.name) == (ErrorCode.EXPIRED, hash_of(b"k", b"n"))


def test_a_window_makes_a_message_due_later_by_what_its_id_says() -> None:
    for window, later_ms in ((b"1", 0), (b"1000", 529), (b"300000", 254_529)):
        assert _accepted([_TARGET, _AT, _ZERO, ("tarry-window-ms", window)]).due_ms == _NOW_MS + later_ms
    derived = _accepted([_TARGET, _DELAY, ("tarry-window-ms", b"1000")])
    assert derived.due_ms == _NOW_MS + 5_000 + jitter_ms(derived_id(_TOPIC, 3, 42), 1_000)


def test_a_window_counts_before_the_due_time_is_rounded_and_limited() -> None:
    window: Header = ("tarry-window-ms", b"1000")
    policy = IntakePolicy(_TOPIC, tick_ms=10, max_delay_ms=529)
    assert _accepted([_TARGET, _AT, _ZERO, window], policy).due_ms == _NOW_MS + 530
    rejection = _rejected([_TARGET, (DELAY_MS, b"1"), _ZERO, window], policy)
    assert (rejection.code, rejection.due_ms) == (ErrorCode.BEYOND_MAX_DELAY, _NOW_MS + 530)
    assert _rejected([_TARGET, _AT, _ZERO, window, _expires(_NOW_MS + 529)], policy).code == ErrorCode.EXPIRED


@pytest.mark.parametrize("value", [None, b"", b"0", b"000", b"-5", b"1.5", b"5m"])
def test_a_window_that_is_no_number_of_milliseconds_is_rejected(value: bytes | None) -> None:
    rejection = _rejected([_TARGET, _DELAY, ("tarry-window-ms", value)])
    assert (rejection.code, rejection.detail.partition(" ")[0]) == (ErrorCode.BAD_DELAY, "tarry-window-ms")


def test_a_window_longer_than_any_delay_is_beyond_the_longest_delay() -> None:
    assert _rejected([_TARGET, _DELAY, ("tarry-window-ms", b"9" * 19)]).code == ErrorCode.BEYOND_MAX_DELAY
    assert _rejected([_TARGET, _DELAY, ("tarry-window-ms", b"9" * 18)]).code == ErrorCode.BEYOND_MAX_DELAY


def test_neither_a_window_nor_an_expiry_is_delivered() -> None:
    request = _accepted([_TARGET, _DELAY, ("tarry-window-ms", b"10"), _expires(_NOW_MS + 60_000)])
    assert request.carries is False


def test_a_fixed_delay_has_no_window_and_an_expiry_that_is_judged_when_the_message_is_due() -> None:
    policy = IntakePolicy(_TOPIC, fixed_delay_ms=30_000, fixed_target="orders")
    request = _accepted([("tarry-window-ms", b"bad"), _expires(_NOW_MS)], policy)
    assert (request.due_ms, request.expires_ms) == (_NOW_MS + 30_000, _NOW_MS)
    assert _rejected([("tarry-expires-at", b"bad")], policy).code == ErrorCode.BAD_TIME


def test_a_dialect_has_windows_and_expiries_too() -> None:
    headers: list[Header] = [("X-Timebridge-When", b"2026-01-01T00:00:00Z"), ("X-Timebridge-Where", b"orders"), _ZERO]
    policy = IntakePolicy(_TOPIC, dialect="timebridge")
    request = _accepted([*headers, ("tarry-window-ms", b"1000"), _expires(_NOW_MS + 529)], policy)
    assert (request.due_ms, request.expires_ms, request.carries) == (_NOW_MS + 529, _NOW_MS + 529, False)
    assert _rejected([*headers, ("tarry-window-ms", b"1000"), _expires(_NOW_MS + 528)], policy).code == "expired"


_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=50),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.integers(-(10**20), 10**20).map(lambda number: str(number).encode()),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}Z".encode()),
    st.sampled_from([b"orders", b"tarry.delayed.dead", _ID, b"9" * 5_000]),
)
_NAMES = st.one_of(
    st.sampled_from([*sorted(REQUEST_HEADERS), "tarry-due-ms", "tarry-source", "ce_id"]), st.text(max_size=5)
)


@given(
    headers=st.none() | st.lists(st.tuples(_NAMES, _VALUES), max_size=10),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    tick_ms=st.sampled_from([1, 7, 1_000]),
    is_fixed=st.booleans(),
    horizon_ms=st.none() | st.integers(0, 10**12),
)
def test_any_bytes_in_any_header_give_a_decision(
    headers: list[Header] | None, timestamp_ms: int, tick_ms: int, is_fixed: bool, horizon_ms: int | None
) -> None:
    policy = IntakePolicy(
        _TOPIC,
        tick_ms=tick_ms,
        horizon_ms=horizon_ms,
        fixed_delay_ms=5 if is_fixed else None,
        fixed_target="orders" if is_fixed else None,
    )
    decision = _read(headers, policy, timestamp_ms=timestamp_ms)
    assert uuid.UUID(decision.id.decode())
    if isinstance(decision, NameCancelRequest):
        return
    assert decision.due_ms is None or 0 <= decision.due_ms <= MAX_EPOCH_MS
    if isinstance(decision, Rejection):
        assert decision.detail.isprintable()
        assert len(decision.detail.encode()) < 1_000
    elif isinstance(decision, Request):
        assert decision.due_ms % tick_ms == 0
        taken_off = REQUEST_HEADERS | {"tarry-due-ms", "tarry-source"}
        assert decision.carries == any(name not in taken_off for name, _ in headers or [])
