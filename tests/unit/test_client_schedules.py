"""From a message that is repeated to an intake record, on the client's side."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from tarry.client import DelayedProducer, RepeatedMessage, ScheduleReceipt, TransactionalDelays
from tarry.client.record import to_schedule
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import hash_of
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Rejection, Request
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import ErrorCode

NOBODY = "127.0.0.1:1"
NOW_MS = 1_767_225_600_000
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)  # NOW_MS
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
MINUTE = timedelta(minutes=1)
READER = RequestReader(IntakePolicy("tarry.delayed"))


def message(**fields: Any) -> RepeatedMessage:
    if "cron" not in fields:
        fields.setdefault("every", MINUTE)
    return RepeatedMessage(**{"target": "orders", "value": b"v", "key": b"k", "name": "report", **fields})


def read(repeated: RepeatedMessage, timestamp_ms: int = NOW_MS) -> object:
    record = to_schedule(repeated, NOW_MS)
    return READER.read(0, 0, timestamp_ms, record.headers, NOW_MS, key=record.key, value=record.value)


def test_an_interval_is_a_header_in_its_shortest_text() -> None:
    record = to_schedule(message(id=ID, headers={"a": "ö"}, partition=3, only_if="absent"), NOW_MS)
    assert (record.key, record.value, record.id) == (b"k", b"v", ID)
    assert record.headers == [
        ("a", "ö".encode()),
        ("tarry-partition", b"3"),
        ("tarry-target", b"orders"),
        ("tarry-id", ID.encode()),
        ("tarry-name", b"report"),
        ("tarry-if", b"absent"),
        ("tarry-every", b"1m"),
    ]
    texts = {
        timedelta(milliseconds=1_500): b"1s500ms",
        timedelta(minutes=90): b"1h30m",
        timedelta(weeks=1): b"7d",
    }
    for every, text in texts.items():
        assert dict(to_schedule(message(every=every), NOW_MS).headers)["tarry-every"] == text


def test_all_that_a_schedule_can_have_is_a_header() -> None:
    every = dict(
        to_schedule(
            message(first=NEW_YEAR, window=MINUTE, expires_at=NEW_YEAR + timedelta(days=1), id=UUID(int=0)), NOW_MS
        ).headers
    )
    assert every["tarry-deliver-at"] == b"%d" % NOW_MS
    assert every["tarry-window-ms"] == b"60000"
    assert every["tarry-expires-at"] == b"%d" % (NOW_MS + 86_400_000)
    cron = dict(to_schedule(message(cron="0 9 * * MON-FRI", zone="Europe/Berlin"), NOW_MS).headers)
    assert (cron["tarry-cron"], cron["tarry-zone"]) == (b"0 9 * * MON-FRI", b"Europe/Berlin")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"every": None}, "needs a rule: every"),
        ({"every": MINUTE, "cron": "0 9 * * *"}, "either every or cron, not both"),
        ({"every": 60}, "every: not a timedelta"),
        ({"every": timedelta(milliseconds=999)}, "every: must be a second or longer"),
        ({"every": -MINUTE}, "every: must be a second or longer"),
        ({"every": timedelta(seconds=1, microseconds=1)}, "every: must be whole milliseconds"),
        ({"every": timedelta.max}, "every: must be whole milliseconds"),
        ({"every": timedelta(days=4_000_000)}, "every: must be 50 years"),
        ({"cron": "0 9 * *"}, "cron: needs five fields"),
        ({"cron": "0 0 9 * * *"}, "cron: needs five fields"),
        ({"cron": ""}, "cron: needs five fields"),
        ({"cron": b"0 9 * * *"}, "cron: not ASCII text"),
        ({"cron": "0 9 * * montäg"}, "cron: not ASCII text"),
        ({"zone": "Europe/Berlin"}, "zone: needs cron"),
        ({"cron": "0 9 * * *", "zone": 1}, "zone: not ASCII text"),
        ({"cron": "0 9 * * *", "first": NEW_YEAR}, "first: needs every"),
        ({"first": datetime(2026, 1, 1)}, "first: needs a time zone"),  # noqa: DTZ001 - the case
        ({"first": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))}, "first: after the year 9999"),
        ({"key": None}, "name: needs a key"),
        ({"name": None}, "name: a schedule needs one"),
        ({"name": ""}, "name: is empty"),
        ({"only_if": "maybe"}, "only_if: must be absent or present"),
        ({"target": "a b"}, "target: not a legal topic name"),
        ({"id": "order-17"}, "id: not a UUID"),
        ({"headers": {"tarry-next": "1 2 3"}}, "headers: tarry-next is a request header"),
        ({"window": timedelta(0)}, "window: must be longer than zero"),
        ({"expires_at": NEW_YEAR - MINUTE}, "expires_at: .* is before the message is due"),
        ({"expires_at": NEW_YEAR, "first": NEW_YEAR + MINUTE}, "expires_at: .* is before the message is due"),
    ],
)
def test_what_is_no_schedule_is_refused_in_one_line(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(HeaderError, match=says) as refusal:
        to_schedule(message(**fields), NOW_MS)
    assert "\n" not in str(refusal.value)


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(HeaderError, match="message: not a RepeatedMessage: dict"):
        to_schedule({"target": "orders"}, NOW_MS)  # type: ignore[arg-type]


@given(
    every=st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
    first=st.none() | st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    window=st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(hours=1)),
)
def test_the_service_reads_the_interval_that_the_client_wrote(
    every: timedelta, first: datetime | None, window: timedelta | None
) -> None:
    every -= every % timedelta(milliseconds=1)
    request = read(message(every=every, first=first, window=window, id=ID))
    assert isinstance(request, Request), request
    assert request.naming is not None
    assert request.naming.hash == hash_of(b"k", b"report")
    planned = request.naming.planned
    assert planned is not None
    assert (planned.schedule, planned.number) == (ID.encode(), 1)
    assert request.due_ms > NOW_MS or (first is not None and request.due_ms >= NOW_MS)


def test_the_service_decides_which_cron_rules_and_zones_there_are() -> None:
    assert isinstance(read(message(cron="0 9 * * MON-FRI", zone="Europe/Berlin")), Request)
    for cron, zone in (("0 25 * * *", None), ("0 9 31 2 *", None), ("0 9 * * *", "Europe/Nowhere")):
        rejection = read(message(cron=cron, zone=zone))
        assert isinstance(rejection, Rejection)
        assert rejection.code == ErrorCode.BAD_SCHEDULE


def _cancel(handle: Any) -> None:
    with DelayedProducer(NOBODY) as producer:
        producer.cancel(handle)


def _cancel_in_a_transaction(handle: Any) -> None:
    TransactionalDelays(Producer({"bootstrap.servers": NOBODY, "log_level": 0})).cancel(handle)


@pytest.mark.parametrize("cancel", [_cancel, _cancel_in_a_transaction])
@pytest.mark.parametrize("given_as", [str, lambda handle: handle])
def test_the_handle_of_a_schedule_cancels_nothing_and_says_what_does(
    cancel: Callable[[Any], None], given_as: Callable[[Handle], Any]
) -> None:
    handle = ScheduleReceipt(ID, "tarry.delayed", 0, 3).handle
    with pytest.raises(HeaderError, match=r"handle: .* schedule: call cancel_named\(key, name\) instead"):
        cancel(given_as(handle))


def test_a_receipt_says_where_the_schedule_is() -> None:
    receipt = ScheduleReceipt(ID, "tarry.delayed", 2, 41)
    assert receipt.source == "tarry.delayed/2/41"
    assert str(receipt.handle) == f"1.tarry.delayed.2.0.{ID}"


def test_nothing_is_sent_of_a_schedule_that_cannot_be_one() -> None:
    with DelayedProducer(NOBODY) as producer, pytest.raises(HeaderError, match="needs a rule"):
        producer.repeat("orders", b"v", b"k", name="report")
