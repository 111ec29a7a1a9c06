"""An intake that accepts another scheduler's headers instead of ours."""

import pytest

from tarry.core.murmur2 import partition_of
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition, Naming, hash_of
from tarry.core.request.reader import Header, RequestReader
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.core.request.translated import TranslatedMessage
from tarry.headers import ErrorCode, derived_id

_NOW_MS = 1_767_225_600_000
_NOW_S = _NOW_MS // 1_000
_TOPIC = "schedules"
_ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
_DERIVED = derived_id(_TOPIC, 3, 42)

_EPOCH = b"%d" % (_NOW_S + 60)
_GOOD: dict[str, list[Header]] = {
    "etf1": [("scheduler-epoch", _EPOCH), ("scheduler-target-topic", b"videos"), ("scheduler-target-key", b"vid1")],
    "karafka": [
        ("schedule_schema_version", b"1.0.0"),
        ("schedule_target_epoch", _EPOCH),
        ("schedule_source_type", b"schedule"),
        ("schedule_target_topic", b"videos"),
        ("schedule_target_partition", b"2"),
        ("schedule_target_key", b"vid1"),
        ("schedule_target_partition_key", b"7"),
    ],
    "timebridge": [("X-Timebridge-When", b"2026-01-01T01:01:00+01:00"), ("X-Timebridge-Where", b"videos")],
    "rabbitmq": [("x-delay", b"60000"), ("tarry-target", b"videos")],
}
_DUE = {
    "etf1": "scheduler-epoch",
    "karafka": "schedule_target_epoch",
    "timebridge": "X-Timebridge-When",
    "rabbitmq": "x-delay",
}
_TARGET = {
    "etf1": "scheduler-target-topic",
    "karafka": "schedule_target_topic",
    "timebridge": "X-Timebridge-Where",
    "rabbitmq": "tarry-target",
}
each_dialect = pytest.mark.parametrize("dialect", _GOOD)


_Read = Request | CancelRequest | NameCancelRequest | PurgeRequest | Rejection


def _read(dialect: str, headers: list[Header], *, value: bytes | None = b"") -> _Read:
    reader = RequestReader(IntakePolicy(_TOPIC, dialect=dialect))
    return reader.read(3, 42, _NOW_MS, headers, _NOW_MS, value=value)


def _accepted(dialect: str, headers: list[Header]) -> Request:
    decision = _read(dialect, headers)
    assert isinstance(decision, Request), decision
    return decision


def _rejected(dialect: str, headers: list[Header], *, value: bytes | None = b"") -> Rejection:
    decision = _read(dialect, headers, value=value)
    assert isinstance(decision, Rejection), decision
    assert "\n" not in decision.detail
    return decision


def _with(dialect: str, name: str, value: bytes | None) -> list[Header]:
    """The good headers with another value for one."""
    assert name in dict(_GOOD[dialect])
    return [(other, value if other == name else was) for other, was in _GOOD[dialect]]


def _without(dialect: str, name: str) -> list[Header]:
    return [header for header in _GOOD[dialect] if header[0] != name]


def _message(dialect: str, headers: list[Header], key: bytes | None = b"schedule-1") -> TranslatedMessage:
    request = _accepted(dialect, headers)
    return TranslatedMessage(DIALECTS[dialect], request, 42, key, b"value", headers, _NOW_MS + 999, _TOPIC)


def test_the_dialects_are_those_of_which_this_is_the_test() -> None:
    assert _GOOD.keys() == DIALECTS.keys()
    with pytest.raises(ValueError, match="no headers"):
        IntakePolicy(_TOPIC, dialect="etf1", fixed_delay_ms=1, fixed_target="videos")


@each_dialect
def test_a_dialect_says_when_and_where_to(dialect: str) -> None:
    request = _accepted(dialect, _GOOD[dialect])
    partition = 2 if dialect == "karafka" else -1
    signs = dialect == "etf1"
    assert request == Request(_NOW_MS + 60_000, "videos", partition, _DERIVED, signs, DIALECTS[dialect])


@each_dialect
def test_our_own_headers_except_the_id_are_removed_without_being_read(dialect: str) -> None:
    ours: list[Header] = [("tarry-delay-ms", b"x"), ("tarry-deliver-at", None), ("tarry-id", _ID), ("a", b"1")]
    if dialect != "rabbitmq":
        ours.append(("tarry-target", b"a b"))
    headers = [*ours, *_GOOD[dialect]]
    request = _accepted(dialect, headers)
    assert (request.target, request.id, request.carries) == ("videos", _ID, True)
    assert [header for header in _message(dialect, headers).headers if header[0][:9] != "scheduler"] == [("a", b"1")]
    assert _rejected(dialect, [("tarry-id", b"x"), *_GOOD[dialect]]).code == ErrorCode.BAD_ID
    assert _accepted(dialect, [("ce_id", _ID), *_GOOD[dialect]]).id == _ID


@each_dialect
def test_a_partition_by_our_header_counts_where_the_dialect_has_none(dialect: str) -> None:
    headers: list[Header] = [*_GOOD[dialect], ("tarry-partition", b"5")]
    assert _accepted(dialect, headers).partition == (2 if dialect == "karafka" else 5)


@each_dialect
def test_a_message_with_a_missing_header_is_dead_with_our_error_codes(dialect: str) -> None:
    rejection = _rejected(dialect, _without(dialect, _TARGET[dialect]))
    assert (rejection.code, rejection.detail) == (ErrorCode.NO_TARGET, f"needs {_TARGET[dialect]}")
    assert rejection.due_ms == _NOW_MS + 60_000
    if dialect != "rabbitmq":
        rejection = _rejected(dialect, _without(dialect, _DUE[dialect]))
        assert (rejection.code, rejection.target) == (ErrorCode.NO_DELAY, "videos")
        assert _DUE[dialect] in rejection.detail
        assert _rejected(dialect, []).code == ErrorCode.NO_DELAY


@each_dialect
def test_a_message_with_a_repeated_request_header_is_dead(dialect: str) -> None:
    for header in _GOOD[dialect]:
        rejection = _rejected(dialect, [*_GOOD[dialect], header])
        assert (rejection.code, rejection.detail) == (ErrorCode.REPEATED_HEADER, f"{header[0]} occurs more than once")


@each_dialect
def test_a_target_is_judged_as_elsewhere(dialect: str) -> None:
    for value, code in [
        (None, ErrorCode.BAD_TARGET),
        (b"a b", ErrorCode.BAD_TARGET),
        (b"__consumer_offsets", ErrorCode.INTERNAL_TARGET),
        (_TOPIC.encode() + b".dead", ErrorCode.INTERNAL_TARGET),
    ]:
        assert _rejected(dialect, _with(dialect, _TARGET[dialect], value)).code == code


@pytest.mark.parametrize("dialect", ["etf1", "karafka"])
@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"1.5", b"+1767225660", b"2026-01-01T00:01:00Z"])
def test_epoch_seconds_are_a_row_of_digits(dialect: str, value: bytes | None) -> None:
    rejection = _rejected(dialect, _with(dialect, _DUE[dialect], value))
    assert rejection.code == ErrorCode.BAD_TIME
    assert "is not epoch seconds" in rejection.detail


@pytest.mark.parametrize("dialect", ["etf1", "karafka"])
def test_milliseconds_for_seconds_are_noticed(dialect: str) -> None:
    for value in (b"%d" % _NOW_MS, b"100000000000", b"9" * 5_000):
        rejection = _rejected(dialect, _with(dialect, _DUE[dialect], value))
        assert rejection.code == ErrorCode.BAD_TIME
        assert "looks like milliseconds" in rejection.detail
    assert _rejected(dialect, _with(dialect, _DUE[dialect], b"99999999999")).code == ErrorCode.BEYOND_MAX_DELAY
    assert _accepted(dialect, _with(dialect, _DUE[dialect], b"0")).due_ms == 0


@pytest.mark.parametrize("value", [None, b"", b"1767225660000", b"2026-01-01T00:01:00", b"+1h", b"\xff"])
def test_timebridge_times_are_rfc_3339_with_an_offset(value: bytes | None) -> None:
    assert _rejected("timebridge", _with("timebridge", "X-Timebridge-When", value)).code == ErrorCode.BAD_TIME
    # Go's headers are compared as they stand, and so are ours.
    other: list[Header] = [("x-timebridge-when", b"2026-01-01T00:01:00Z"), ("X-Timebridge-Where", b"videos")]
    assert _rejected("timebridge", other).code == ErrorCode.NO_DELAY


def test_rabbitmq_delays_are_milliseconds_and_none_where_the_plugin_sees_none() -> None:
    assert _accepted("rabbitmq", _without("rabbitmq", "x-delay")).due_ms == _NOW_MS
    assert _accepted("rabbitmq", _with("rabbitmq", "x-delay", b"-5000")).due_ms == _NOW_MS
    for value in (None, b"", b"5s", b"1.5"):
        assert _rejected("rabbitmq", _with("rabbitmq", "x-delay", value)).code == ErrorCode.BAD_DELAY
    # An epoch, or more than any delay.
    for value in (b"%d" % _NOW_MS, b"9" * 5_000):
        assert _rejected("rabbitmq", _with("rabbitmq", "x-delay", value)).code == ErrorCode.BEYOND_MAX_DELAY


def test_rabbitmq_may_have_a_fixed_target_and_then_reads_none() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC, dialect="rabbitmq", fixed_target="videos"))
    headers: list[Header] = [("x-delay", b"60000"), ("tarry-target", b"a b")]
    request = reader.read(3, 42, _NOW_MS, headers, _NOW_MS)
    assert isinstance(request, Request)
    assert (request.due_ms, request.target, request.carries) == (_NOW_MS + 60_000, "videos", False)


def test_karafka_partitions_are_numbers() -> None:
    for value in (None, b"x", b"-1"):
        headers = _with("karafka", "schedule_target_partition", value)
        rejection = _rejected("karafka", headers)
        assert rejection.code == ErrorCode.BAD_PARTITION
        assert "schedule_target_partition" in rejection.detail
    assert _accepted("karafka", _without("karafka", "schedule_target_partition")).partition == -1


@pytest.mark.parametrize("kind", [b"cancel", b"tombstone", None])
def test_karafkas_cancels_are_dead_and_say_how_to_cancel(kind: bytes | None) -> None:
    for headers in (
        [("schedule_schema_version", b"1.0.0"), ("schedule_source_type", kind)],
        _with("karafka", "schedule_source_type", kind),
    ):
        rejection = _rejected("karafka", headers, value=None)
        assert rejection.code == ErrorCode.BAD_HANDLE
        assert "tarry-cancel" in rejection.detail


def test_etf1s_tombstones_are_dead_and_say_how_to_cancel() -> None:
    for headers in ([], _GOOD["etf1"]):
        rejection = _rejected("etf1", headers, value=None)
        assert rejection.code == ErrorCode.BAD_HANDLE
        assert "tarry-cancel" in rejection.detail
    assert isinstance(_read("timebridge", _GOOD["timebridge"], value=None), Request)


@each_dialect
def test_a_cancel_by_handle_is_served(dialect: str) -> None:
    handle = f"1.{_TOPIC}.3.{_NOW_MS + 60_000}.{_ID.decode()}".encode()
    decision = _read(dialect, [("tarry-cancel", handle)], value=None)
    assert decision == CancelRequest(_NOW_MS + 60_000, _ID)


@pytest.mark.parametrize("dialect", ["etf1", "karafka"])
def test_the_delivered_key_is_the_target_key_and_null_where_there_is_none(dialect: str) -> None:
    name = "scheduler-target-key" if dialect == "etf1" else "schedule_target_key"
    assert _message(dialect, _GOOD[dialect]).key == b"vid1"
    assert _message(dialect, _with(dialect, name, b"")).key == b""
    assert _message(dialect, _with(dialect, name, None)).key is None
    message = _message(dialect, _without(dialect, name))
    assert (message.key, message.original_key) == (None, b"schedule-1")
    assert message.original_headers == _without(dialect, name)


@pytest.mark.parametrize("dialect", ["timebridge", "rabbitmq"])
@pytest.mark.parametrize("key", [b"k", None])
def test_without_target_keys_the_delivered_key_is_the_records_own(dialect: str, key: bytes | None) -> None:
    message = _message(dialect, _GOOD[dialect], key)
    assert (message.key, message.original_key) == (key, key)


@each_dialect
def test_other_headers_travel_on_in_their_order_and_the_peers_are_gone(dialect: str) -> None:
    others: list[Header] = [("b", b"\xff"), ("a", None), ("b", b""), (_DUE[dialect].upper(), b"1")]
    message = _message(dialect, [*others[:2], *_GOOD[dialect], *others[2:]])
    assert message.headers[:4] == others
    added = [name for name, _ in message.headers[4:]]
    assert added == (["scheduler-timestamp", "scheduler-key", "scheduler-topic"] if dialect == "etf1" else [])


def test_etf1s_consumers_find_what_they_are_used_to_and_nothing_older() -> None:
    earlier: list[Header] = [("scheduler-timestamp", b"1"), ("scheduler-key", b"old"), ("scheduler-topic", b"old")]
    message = _message("etf1", [*earlier, *_GOOD["etf1"]])
    assert message.headers == [
        ("scheduler-timestamp", b"%d" % _NOW_S),
        ("scheduler-key", b"schedule-1"),
        ("scheduler-topic", b"schedules"),
    ]
    assert ("scheduler-key", None) in _message("etf1", _GOOD["etf1"], None).headers


def test_an_intake_without_a_dialect_lets_the_peers_headers_travel() -> None:
    reader = RequestReader(IntakePolicy(_TOPIC))
    headers: list[Header] = [("x-delay", b"1"), ("tarry-target", b"videos"), ("tarry-delay-ms", b"5")]
    assert reader.read(3, 42, _NOW_MS, headers, _NOW_MS, value=None) == Request(
        _NOW_MS + 5, "videos", -1, _DERIVED, True
    )


def _read_by_key(
    dialect: str, headers: list[Header], key: bytes | None = b"vid", *, value: bytes | None = b""
) -> _Read:
    """Read a record where its key is its name."""
    reader = RequestReader(IntakePolicy(_TOPIC, dialect=dialect, same_key="replace"))
    return reader.read(3, 42, _NOW_MS, headers, _NOW_MS, key=key, value=value)


_CANCEL_BY_KEY = NameCancelRequest(hash_of(b"vid", b"vid"), _DERIVED)


@each_dialect
def test_the_key_is_the_name_where_the_intake_says_so(dialect: str) -> None:
    request = _read_by_key(dialect, _GOOD[dialect])
    assert isinstance(request, Request)
    assert request._replace(naming=None) == _accepted(dialect, _GOOD[dialect])
    # So `tarry cancel --key vid --name vid` cancels it.
    assert request.naming == Naming(hash_of(b"vid", b"vid"))
    reader = RequestReader(IntakePolicy(_TOPIC, dialect=dialect))
    cancel = reader.read(3, 42, _NOW_MS, [("tarry-cancel-name", b"vid")], _NOW_MS, key=b"vid", value=None)
    assert cancel == _CANCEL_BY_KEY


@each_dialect
def test_without_a_key_a_message_has_no_name(dialect: str) -> None:
    assert _read_by_key(dialect, _GOOD[dialect], None) == _accepted(dialect, _GOOD[dialect])


@each_dialect
@pytest.mark.parametrize("key", [b"", b"\xff", b"k" * 1_000])
def test_any_key_is_a_name(dialect: str, key: bytes) -> None:
    request = _read_by_key(dialect, _GOOD[dialect], key)
    assert isinstance(request, Request)
    assert request.naming == Naming(hash_of(key, key))


@each_dialect
def test_a_record_that_says_its_name_has_that_name(dialect: str) -> None:
    request = _read_by_key(dialect, [*_GOOD[dialect], ("tarry-name", b"own")])
    assert isinstance(request, Request)
    assert request.naming == Naming(hash_of(b"vid", b"own"))


@each_dialect
def test_a_condition_is_on_the_name_that_the_key_is(dialect: str) -> None:
    request = _read_by_key(dialect, [*_GOOD[dialect], ("tarry-if", b"absent")])
    assert isinstance(request, Request)
    assert request.naming == Naming(hash_of(b"vid", b"vid"), Condition.ABSENT)
    rejection = _read_by_key(dialect, [*_GOOD[dialect], ("tarry-if", b"absent")], None)
    assert isinstance(rejection, Rejection)
    assert rejection.code == ErrorCode.BAD_NAME


@each_dialect
def test_a_tombstone_cancels_by_key(dialect: str) -> None:
    assert _read_by_key(dialect, [], value=None) == _CANCEL_BY_KEY
    assert _read_by_key(dialect, [("trace", b"1")], value=None) == _CANCEL_BY_KEY
    rejection = _read_by_key(dialect, [], None, value=None)
    assert isinstance(rejection, Rejection)
    assert (rejection.code, rejection.id) == (ErrorCode.NULL_KEY, _DERIVED)
    # Without a value a schedule is still one where the other scheduler has no such cancel.
    schedule = _read_by_key(dialect, _GOOD[dialect], value=None)
    assert schedule == _CANCEL_BY_KEY if dialect == "etf1" else isinstance(schedule, Request)


@each_dialect
def test_a_value_without_a_time_cancels_nothing(dialect: str) -> None:
    headers: list[Header] = [] if dialect != "rabbitmq" else _without(dialect, "tarry-target")
    assert isinstance(_read_by_key(dialect, headers), Rejection)


@pytest.mark.parametrize("kind", [b"cancel", b"tombstone"])
def test_karafkas_cancels_are_cancels_by_key(kind: bytes) -> None:
    bare: list[Header] = [("schedule_source_type", kind)]
    for headers in (bare, _with("karafka", "schedule_source_type", kind)):
        assert _read_by_key("karafka", headers, value=None) == _CANCEL_BY_KEY
    repeated = _read_by_key("karafka", [("schedule_source_type", kind)] * 2, value=None)
    assert isinstance(repeated, Rejection)
    assert repeated.code == ErrorCode.REPEATED_HEADER
    strange = _read_by_key("karafka", [("schedule_source_type", b"x")], value=None)
    assert isinstance(strange, Rejection)
    assert strange.code == ErrorCode.BAD_HANDLE


@each_dialect
def test_a_key_in_a_foreign_partition_is_dead_with_a_hint(dialect: str) -> None:
    reader = RequestReader(IntakePolicy(_TOPIC, dialect=dialect, same_key="replace"))
    reader.partitions = 8
    own = partition_of(b"vid", 8)
    for headers, value in ((_GOOD[dialect], b""), ([], None)):
        rejection = reader.read(own - 1, 42, _NOW_MS, headers, _NOW_MS, key=b"vid", value=value)
        assert isinstance(rejection, Rejection)
        assert rejection.code == ErrorCode.WRONG_PARTITION
        assert rejection.detail.startswith("same_key: murmur2 puts this key into partition")


def test_our_own_headers_say_the_name_themselves() -> None:
    with pytest.raises(ValueError, match="only an intake with a dialect"):
        IntakePolicy(_TOPIC, same_key="replace")
