"""From a message to an intake record, on the client's side."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client import DelayedMessage, DelayedProducer
from tarry.client.record import to_name_cancel, to_record
from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition, Naming, hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import NameCancelRequest, Request
from tarry.errors import ConfigError, FatalError, HeaderError
from tarry.headers import REQUEST_HEADERS, derived_id

_NOW_MS = 1_767_225_600_000
_ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
_SECOND = timedelta(seconds=1)


def _message(**fields: Any) -> DelayedMessage:
    if "at" not in fields:
        fields.setdefault("delay", _SECOND)
    return DelayedMessage(**{"target": "orders", "value": b"v", **fields})


def test_text_is_sent_as_utf_8_and_null_as_null() -> None:
    record = to_record(_message(value="ä", key=None, id=_ID, headers={"a": "ö", "b": None}), _NOW_MS)
    assert (record.value, record.key, record.id) == ("ä".encode(), None, _ID)
    assert record.headers == [
        ("a", "ö".encode()),
        ("b", None),
        ("tarry-target", b"orders"),
        ("tarry-id", _ID.encode()),
        ("tarry-delay-ms", b"1000"),
    ]


def test_a_header_may_stand_twice_and_keeps_its_place() -> None:
    record = to_record(_message(headers=[("b", b"1"), ("a", b"2"), ("b", b"3")]), _NOW_MS)
    assert record.headers[:3] == [("b", b"1"), ("a", b"2"), ("b", b"3")]


@pytest.mark.parametrize("given_id", [_ID, _ID.upper(), _ID.encode(), UUID(_ID), UUID(_ID).bytes])
def test_an_id_may_come_in_any_form_of_a_uuid(given_id: UUID | str | bytes) -> None:
    assert to_record(_message(id=given_id), _NOW_MS).id == _ID


def test_without_an_id_each_message_gets_its_own() -> None:
    assert to_record(_message(), _NOW_MS).id != to_record(_message(), _NOW_MS).id


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"target": "a b"}, "target: not a legal topic name"),
        ({"target": ""}, "target: not a legal topic name"),
        ({"delay": -timedelta(microseconds=1)}, "delay: must not be negative"),
        ({"delay": 5}, "delay: not a timedelta"),
        ({"delay": timedelta.max}, "due after the year 9999"),
        ({"delay": None}, "needs a due time"),
        ({"delay": _SECOND, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "either delay or at, not both"),
        ({"at": datetime(2030, 1, 1)}, "at: needs a time zone"),  # noqa: DTZ001 - the case
        ({"at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "due after the year 9999"),
        ({"at": 1_767_225_600}, "at: not a datetime"),
        ({"at": datetime(1999, 1, 1, tzinfo=UTC)}, "at: must be 2001"),
        ({"id": "order-17"}, "id: not a UUID"),
        ({"id": "0123456789abcdef"}, "id: not a UUID"),
        ({"id": b"x"}, "id: not a UUID"),
        ({"value": 5}, "value: neither text nor bytes nor None"),
        ({"key": 5}, "key: neither text nor bytes nor None"),
        ({"value": "\udc80"}, "value: text that UTF-8 cannot encode"),
        ({"headers": {"a": "\udc80"}}, "headers: a: text that UTF-8 cannot encode"),
        ({"headers": {"\udc80": "a"}}, "headers: text that UTF-8 cannot encode"),
        ({"target": b"orders"}, "target: a topic name must be text: bytes"),
        ({"target": None}, "target: a topic name must be text: NoneType"),
        ({"id": 5}, "id: neither a UUID nor text nor bytes: int"),
        ({"id": ["a"] * 36}, "id: neither a UUID nor text nor bytes: list"),
        ({"value": bytearray(b"v")}, "value: neither text nor bytes nor None: bytearray"),
        ({"at": "2030-01-01T00:00:00Z"}, "at: not a datetime"),
        ({"headers": {"tarry-cancel\0zz": "a"}}, r"headers: a name with a NUL: 'tarry-cancel\\x00zz'"),
        ({"headers": [("\0", None)]}, r"headers: a name with a NUL: '\\x00'"),
        ({"headers": 5}, "headers: neither a mapping nor pairs: int"),
        ({"headers": "ab"}, "headers: neither a mapping nor pairs: str"),
        ({"headers": ["ab"]}, "headers: not a pair of a name and a value: \"'ab'\""),
        ({"headers": [("a", b"1", 2)]}, "headers: not a pair"),
        ({"headers": {b"a": b"1"}}, "headers: a name is not text: bytes"),
        ({"headers": [(["a"], b"1")]}, "headers: a name is not text: list"),
        ({"partition": "1"}, "partition: not a number from 0 to"),
        ({"partition": True}, "partition: not a number from 0 to"),
        ({"partition": -1}, "partition: not a number from 0 to"),
        ({"partition": 2**31}, "partition: not a number from 0 to"),
        ({"headers": {"a": 5}}, "headers: a: neither text nor bytes nor None"),
        *[({"headers": {name: b"x"}}, f"headers: {name} is a request header") for name in sorted(REQUEST_HEADERS)],
    ],
)
def test_an_undeliverable_message_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(HeaderError, match=says) as refusal:
        to_record(_message(**fields), _NOW_MS)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "name: is empty"),
        ({"name": "ü" * 128}, "name: has 256 bytes, and at most 255 are allowed"),
        ({"name": b"\xff"}, "name: is not UTF-8"),
        ({"name": "n", "key": None}, "name: needs a key, which must not be null"),
        ({"only_if": "absent"}, "only_if: needs a name"),
        ({"name": "n", "only_if": "sometimes"}, "only_if: must be absent or present"),
    ],
)
def test_a_name_that_the_service_would_refuse_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(HeaderError, match=says):
        to_record(_message(**{"key": b"k", "delay": timedelta(0), **fields}), _NOW_MS)


_SOON = datetime(2026, 1, 1, tzinfo=UTC)  # _NOW_MS


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"expires_at": "2030-01-01T00:00:00Z"}, "expires_at: not a datetime"),
        ({"expires_at": 1_767_225_600}, "expires_at: not a datetime"),
        ({"expires_at": datetime(2030, 1, 1)}, "expires_at: needs a time zone"),  # noqa: DTZ001 - the case
        ({"expires_at": datetime(1999, 1, 1, tzinfo=UTC)}, "expires_at: must be 2001"),
        ({"expires_at": datetime.max.replace(tzinfo=UTC)}, "expires_at: after the year 9999"),
        (
            {"expires_at": _SOON},
            r"expires_at: 2026-01-01T00:00:00\.000Z is before the message is due \(2026-01-01T00:00:01\.000Z\)",
        ),
        ({"at": _SOON, "id": UUID(int=0), "window": _SECOND, "expires_at": _SOON}, r"before .* due \(.*:00\.529Z\)"),
        ({"window": 5}, "window: not a timedelta"),
        ({"window": timedelta(0)}, "window: must be longer than zero"),
        ({"window": -_SECOND}, "window: must be longer than zero"),
        ({"window": timedelta.max}, "due after the year 9999"),
    ],
)
def test_an_expiry_or_a_window_of_nonsense_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(HeaderError, match=says) as refusal:
        to_record(_message(**{"id": UUID(int=1), **fields}), _NOW_MS)
    assert "\n" not in str(refusal.value)


def test_an_expiry_and_a_window_are_headers_and_make_the_message_due_later() -> None:
    message = _message(at=_SOON, id=UUID(int=0), window=timedelta(minutes=5), expires_at=_SOON + timedelta(hours=1))
    record = to_record(message, _NOW_MS)
    assert record.headers[2:] == [
        ("tarry-deliver-at", b"%d" % _NOW_MS),
        ("tarry-window-ms", b"300000"),
        ("tarry-expires-at", b"%d" % (_NOW_MS + 3_600_000)),
    ]
    assert record.due_ms(_NOW_MS + 99, 1) == _NOW_MS + 254_529
    assert record.due_ms(_NOW_MS + 99, 10) == _NOW_MS + 254_530


def test_an_expiry_and_a_window_round_up_to_milliseconds() -> None:
    at = _SOON + timedelta(microseconds=1)
    headers = dict(to_record(_message(at=at, expires_at=at, window=timedelta(microseconds=1)), _NOW_MS).headers)
    assert (headers["tarry-expires-at"], headers["tarry-window-ms"]) == (b"%d" % (_NOW_MS + 1), b"1")


@given(
    name=st.text(min_size=1, max_size=63),
    key=st.binary(max_size=5),
    only_if=st.sampled_from([None, "absent", "present"]),
)
def test_the_service_reads_the_name_that_the_client_wrote(name: str, key: bytes, only_if: Any) -> None:
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        with pytest.raises(HeaderError, match="UTF-8"):
            to_name_cancel(key, name)
        return
    message = _message(key=key, delay=timedelta(0), name=name, only_if=only_if)
    reader = RequestReader(IntakePolicy("tarry.delayed"))
    decision = reader.read(0, 0, _NOW_MS, to_record(message, _NOW_MS).headers, 0, key=key)
    assert isinstance(decision, Request)
    assert decision.naming == Naming(hash_of(key, raw), Condition(only_if or ""))
    cancel = reader.read(0, 7, _NOW_MS, to_name_cancel(key, name).headers, 0, key=key)
    assert cancel == NameCancelRequest(hash_of(key, raw), derived_id("tarry.delayed", 0, 7))


def test_delays_and_times_round_up_to_milliseconds() -> None:
    assert to_record(_message(delay=timedelta(microseconds=1)), _NOW_MS).delay_ms == 1
    at = datetime(2026, 1, 1, 1, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))
    assert to_record(_message(at=at), _NOW_MS).deliver_at_ms == _NOW_MS + 1


@given(
    delay=st.timedeltas(timedelta(0), timedelta(days=29)),
    at=st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 29), timezones=st.just(UTC)),  # noqa: DTZ001
    by_delay=st.booleans(),
    tick_ms=st.sampled_from([1, 7, 1_000]),
    key=st.none() | st.binary(max_size=5),
    id_=st.uuids(),
    window=st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=1)),
    spare=st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=1)),
)
def test_the_service_reads_what_the_client_wrote_and_finds_the_same_due_time(
    delay: timedelta,
    at: datetime,
    by_delay: bool,
    tick_ms: int,
    key: bytes | None,
    id_: UUID,
    window: timedelta | None,
    spare: timedelta | None,
) -> None:
    chosen: dict[str, Any] = {"delay": delay} if by_delay else {"at": at}
    latest = (_SOON + delay if by_delay else at) + (window or timedelta(0))
    expires_at = None if spare is None else latest + spare
    record = to_record(
        _message(key=key, id=id_, headers={"a": b"1"}, window=window, expires_at=expires_at, **chosen), _NOW_MS
    )
    reader = RequestReader(IntakePolicy("tarry.delayed", tick_ms=tick_ms))
    decision = reader.read(0, 0, _NOW_MS, record.headers, 0)
    expires_ms = NO_EXPIRY_MS if expires_at is None else -((_SOON - expires_at) // timedelta(milliseconds=1)) + _NOW_MS
    due_ms = record.due_ms(_NOW_MS, tick_ms)
    assert decision == Request(due_ms, "orders", -1, str(id_).encode(), True, expires_ms=expires_ms)


@pytest.mark.parametrize(
    "name",
    ["acks", "enable.idempotence", "partitioner", "max.in.flight", "transactional.id", "delivery.report.only.error"],
)
def test_an_option_that_would_break_a_promise_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"options: {name} may not be set"):
        DelayedProducer("127.0.0.1:1", options={name: "1"})


def test_an_option_that_librdkafka_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"No such configuration property.*no\.such\.option"):
        DelayedProducer("127.0.0.1:1", options={"no.such.option": "1"})


def test_an_intake_needs_a_topics_name_and_a_tick_a_length() -> None:
    with pytest.raises(HeaderError, match="intake: not a legal topic name"):
        DelayedProducer("127.0.0.1:1", "a b")
    with pytest.raises(ConfigError, match="tick_ms: must be a whole number, at least 1"):
        DelayedProducer("127.0.0.1:1", tick_ms=0)


def test_a_closed_producer_sends_nothing_and_may_be_closed_again() -> None:
    producer = DelayedProducer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(FatalError, match="closed"):
        producer.send("orders", b"v", delay=_SECOND)


def test_an_option_that_does_not_go_with_transactions_is_refused_where_one_is_needed() -> None:
    handle = f"1.tarry.delayed.0.1767225600000.{_ID}"
    with (
        DelayedProducer("127.0.0.1:1", options={"socket.timeout.ms": 60_000}) as producer,
        pytest.raises(ConfigError, match=r"options: .*socket\.timeout\.ms"),
    ):
        producer.reschedule(handle, DelayedMessage("orders", b"v", delay=_SECOND))


def test_a_malformed_message_is_refused_in_one_line() -> None:
    with pytest.raises(HeaderError, match="message: not a DelayedMessage: dict"):
        to_record({"target": "orders"}, _NOW_MS)  # type: ignore[arg-type]  # the case


def test_a_partition_of_the_target_is_read_by_the_service() -> None:
    record = to_record(_message(partition=3), _NOW_MS)
    decision = RequestReader(IntakePolicy("tarry.delayed")).read(0, 0, _NOW_MS, record.headers, 0)
    assert isinstance(decision, Request)
    assert decision.partition == 3
