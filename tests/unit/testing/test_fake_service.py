"""The service on a fake broker that users test with."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tarry.client import DelayedMessage, NameCancelReceipt
from tarry.errors import HeaderError
from tarry.testing import FakeService, ManualClock

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def values(fake: FakeService, topic: str) -> list[bytes | None]:
    return [record.value for record in fake.delivered(topic)]


@pytest.mark.parametrize("delay_ms", [1, 999, 15 * MINUTE_MS, 30 * DAY_MS])
def test_a_message_comes_at_its_millisecond(tarry_fake: FakeService, delay_ms: int) -> None:
    tarry_fake.make_topic("orders")
    receipt = tarry_fake.send("orders", "v", "k", delay=timedelta(milliseconds=delay_ms))
    tarry_fake.clock.advance(delay_ms - 1)
    assert values(tarry_fake, "orders") == []
    tarry_fake.clock.advance(1)
    [record] = tarry_fake.delivered("orders")
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"v", receipt.handle.due_ms)
    assert tarry_fake.clock.now_ms() == receipt.handle.due_ms


def test_messages_that_become_due_in_one_advance_come_at_their_own_times_and_in_order(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("orders")
    begins_ms = tarry_clock.now_ms()
    for minutes in (50, 10, 30, 10):
        tarry_fake.send("orders", f"{minutes}", "k", delay=timedelta(minutes=minutes))
    tarry_clock.advance(40 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"10", b"10", b"30"]
    outcomes = [outcome["at_ms"] - begins_ms for outcome in tarry_fake.outcomes()]
    assert outcomes == [10 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS]


def test_an_overdue_message_comes_at_once(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.send("orders", b"v", at=datetime(2020, 1, 1, tzinfo=UTC))
    assert values(tarry_fake, "orders") == [b"v"]


def test_many_messages_on_several_partitions_come_once_each() -> None:
    fake = FakeService("in", partitions=3)
    fake.make_topic("orders", 2)
    sent = [b"%d" % number for number in range(500)]
    for value in sent:
        fake.send("orders", value, value, delay=timedelta(seconds=1))
    fake.clock.advance(1_000)
    assert sorted(values(fake, "orders"), key=lambda value: int(value or b"-1")) == sent


def test_a_cancelled_message_does_not_come(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    receipt = tarry_fake.send("orders", b"v", delay=timedelta(hours=1))
    tarry_fake.cancel(receipt.handle)
    tarry_fake.clock.advance(60 * MINUTE_MS)
    assert values(tarry_fake, "orders") == []
    assert [(one["outcome"], one["id"]) for one in tarry_fake.outcomes()] == [("cancelled", receipt.id)]


def outcomes_of(fake: FakeService, id_: str) -> list[str]:
    return [one["outcome"] for one in fake.outcomes() if one["id"] == id_]


def test_each_event_moves_the_timer_of_its_name_and_the_last_one_comes(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("searches")
    sent = []
    for typed in (b"t", b"ta", b"tar"):
        sent.append(tarry_fake.send("searches", typed, "customer", name="search", delay=timedelta(seconds=2)))
        tarry_fake.clock.advance(1_500)
    assert values(tarry_fake, "searches") == []
    tarry_fake.clock.advance(500)
    assert values(tarry_fake, "searches") == [b"tar"]
    assert [outcomes_of(tarry_fake, one.id) for one in sent] == [["replaced"], ["replaced"], ["fired"]]


def test_of_a_burst_only_the_first_comes_if_a_later_one_must_find_none(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("mails")
    for number in range(3):
        tarry_fake.send("mails", b"%d" % number, "k", name="digest", only_if="absent", delay=timedelta(minutes=1))
    tarry_fake.clock.advance(MINUTE_MS)
    again = tarry_fake.send("mails", b"3", "k", name="digest", only_if="absent", delay=timedelta(minutes=1))
    tarry_fake.clock.advance(MINUTE_MS)
    assert values(tarry_fake, "mails") == [b"0", b"3"]
    assert outcomes_of(tarry_fake, again.id) == ["scheduled", "fired"]


def test_what_has_gone_is_not_moved_if_it_must_still_wait(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("mails")
    tarry_fake.send("mails", b"first", "k", name="n", delay=timedelta(seconds=1))
    tarry_fake.clock.advance(1_000)
    late = tarry_fake.send("mails", b"second", "k", name="n", only_if="present", delay=timedelta(seconds=1))
    tarry_fake.clock.advance(1_000)
    assert values(tarry_fake, "mails") == [b"first"]
    assert [(one["outcome"], one["reason"]) for one in tarry_fake.outcomes() if one["id"] == late.id] == [
        ("skipped", "not-waiting")
    ]


def test_a_cancel_by_name_needs_no_handle_and_is_answered_at_once(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    unpaid = tarry_fake.send("orders", b"unpaid", "order-17", name="payment", delay=timedelta(days=3))
    paid = tarry_fake.cancel_named("order-17", "payment")
    again = tarry_fake.cancel_named("order-17", "payment")
    tarry_fake.clock.advance(4 * DAY_MS)
    assert values(tarry_fake, "orders") == []
    outcomes = [outcomes_of(tarry_fake, one.id) for one in (unpaid, paid, again)]
    assert outcomes == [["cancelled"], ["cancelled"], ["cancel-too-late"]]


def test_the_same_message_again_is_a_duplicate_and_does_not_move_its_name(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    at = datetime.fromtimestamp(tarry_fake.clock.now_ms() / 1_000, UTC) + timedelta(minutes=1)
    sent = [
        tarry_fake.send("orders", b"v", "k", name="n", at=at, id="8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21") for _ in "ab"
    ]
    tarry_fake.clock.advance(MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"v"]
    assert outcomes_of(tarry_fake, sent[0].id) == ["duplicate", "fired"]


def test_a_named_message_that_waits_for_its_target_is_replaced(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.broker.take_away("orders")
    old = tarry_fake.send("orders", b"old", "k", name="n", delay=timedelta(seconds=1))
    tarry_fake.clock.advance(MINUTE_MS)
    new = tarry_fake.send("orders", b"new", "k", name="n", delay=timedelta(seconds=1))
    tarry_fake.clock.advance(MINUTE_MS)
    tarry_fake.broker.bring_back("orders")
    tarry_fake.clock.advance(5 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"new"]
    assert [outcomes_of(tarry_fake, one.id) for one in (old, new)] == [["replaced"], ["fired"]]


def after(fake: FakeService, delay: timedelta) -> datetime:
    return datetime.fromtimestamp(fake.clock.now_ms() / 1_000, UTC) + delay


def reasons_of(fake: FakeService, id_: str) -> list[tuple[str, str | None]]:
    return [(one["outcome"], one.get("reason")) for one in fake.outcomes() if one["id"] == id_]


def test_what_its_target_keeps_waiting_beyond_its_expiry_is_dead_and_the_rest_comes(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.broker.take_away("orders")
    expires_at = after(tarry_fake, timedelta(minutes=10))
    short = tarry_fake.send("orders", b"short", "k", delay=timedelta(seconds=1), expires_at=expires_at)
    tarry_fake.send("orders", b"long", "k", delay=timedelta(seconds=1), expires_at=expires_at + timedelta(days=1))
    tarry_fake.clock.advance(11 * MINUTE_MS)
    assert tarry_fake.outcomes() == []
    tarry_fake.broker.bring_back("orders")
    tarry_fake.clock.advance(5 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"long"]
    assert reasons_of(tarry_fake, short.id) == [("dead", "expired")]
    assert [(one.value, dict(one.headers or [])["tarry-error"]) for one in tarry_fake.dead()] == [
        (b"short", b"expired")
    ]


def test_what_comes_in_time_does_not_expire_and_its_headers_stay_behind(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    expires_at = after(tarry_fake, timedelta(seconds=1))
    receipt = tarry_fake.send("orders", b"v", at=expires_at, expires_at=expires_at, window=timedelta(milliseconds=1))
    tarry_fake.clock.advance(1_000)
    [record] = tarry_fake.delivered("orders")
    assert {"tarry-expires-at", "tarry-window-ms"}.isdisjoint(dict(record.headers or []))
    assert outcomes_of(tarry_fake, receipt.id) == ["fired"]


def test_a_window_spreads_what_is_due_at_once_and_receipts_say_when(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    at, window = after(tarry_fake, timedelta(hours=1)), timedelta(minutes=5)
    sent = [tarry_fake.send("orders", b"%d" % number, at=at, window=window) for number in range(50)]
    assert all(at <= one.due < at + window for one in sent)
    assert len({one.due for one in sent}) > 40
    tarry_fake.cancel(sent[0].handle)
    tarry_fake.clock.advance(65 * MINUTE_MS)
    fired = {one["id"]: one["at_ms"] for one in tarry_fake.outcomes() if one["outcome"] == "fired"}
    assert fired == {one.id: one.handle.due_ms for one in sent[1:]}


def test_a_message_with_a_window_is_sent_again_and_rescheduled_as_others_are(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    at, id_, window = after(tarry_fake, timedelta(hours=1)), UUID(int=0), timedelta(minutes=5)
    message = DelayedMessage("orders", b"v", "k", at=at, id=id_, window=window)
    first, again = tarry_fake.send_many([message, message])
    assert first.handle == again.handle
    assert outcomes_of(tarry_fake, first.id) == ["duplicate"]
    with pytest.raises(HeaderError, match="the same id and due time"):
        tarry_fake.reschedule(first.handle, message)
    later = tarry_fake.reschedule(first.handle, replace(message, window=timedelta(minutes=1)))
    tarry_fake.clock.advance(70 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"v"]
    assert [one["due_ms"] for one in tarry_fake.outcomes() if one["outcome"] == "fired"] == [later.sent.handle.due_ms]


@pytest.mark.parametrize("parked", [False, True])
def test_what_is_dead_may_be_sent_again_at_once_with_its_id_and_due_time(
    tarry_fake: FakeService, *, parked: bool
) -> None:
    tarry_fake.make_topic("orders")
    expires_at = after(tarry_fake, timedelta(seconds=-5))
    dead = DelayedMessage("orders", b"v", "k", at=expires_at, id=UUID(int=1), expires_at=expires_at)
    if parked:
        expires_at = after(tarry_fake, timedelta(minutes=1))
        dead = replace(dead, at=after(tarry_fake, timedelta(0)), expires_at=expires_at)
        tarry_fake.broker.take_away("orders")
    tarry_fake.send_message(dead)
    if parked:
        tarry_fake.clock.advance(2 * MINUTE_MS)
        tarry_fake.broker.bring_back("orders")
        tarry_fake.clock.advance(MINUTE_MS)
    # As `tarry redrive --expired` does.
    tarry_fake.send_message(replace(dead, expires_at=None))
    tarry_fake.clock.advance(1_000)
    assert values(tarry_fake, "orders") == [b"v"]
    assert reasons_of(tarry_fake, str(dead.id)) == [("dead", "expired"), ("fired", None)]


def test_expiry_and_window_are_the_same_for_coroutines(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    at = after(tarry_fake, timedelta(hours=1))
    with pytest.raises(HeaderError, match=r"expires_at: .* is before the message is due"):
        asyncio.run(tarry_fake.aio.send("orders", b"v", at=at, expires_at=at - timedelta(seconds=1)))
    receipt = asyncio.run(tarry_fake.aio.send("orders", b"v", at=at, id=UUID(int=0), window=timedelta(seconds=1)))
    assert receipt.due == at + timedelta(milliseconds=529)


def test_names_are_the_same_for_coroutines(tarry_fake: FakeService) -> None:
    async def named() -> NameCancelReceipt:
        await tarry_fake.aio.send("orders", b"v", "k", name="n", only_if="absent", delay=timedelta(hours=1))
        return await tarry_fake.aio.cancel_named("k", "n")

    tarry_fake.make_topic("orders")
    receipt = asyncio.run(named())
    assert outcomes_of(tarry_fake, receipt.id) == ["cancelled"]


def test_a_message_that_the_service_refuses_is_a_dead_letter_with_its_reason() -> None:
    fake = FakeService(targets=["orders.*"], max_delay=timedelta(hours=1))
    fake.make_topic("orders.paid")
    fake.make_topic("bills")
    fake.send("bills", b"1", delay=timedelta(0))
    fake.send("orders.paid", b"2", delay=timedelta(hours=2))
    reasons = [dict(record.headers or [])["tarry-error"] for record in fake.dead()]
    assert reasons == [b"target-not-allowed", b"beyond-max-delay"]


def test_a_name_beyond_the_limit_is_a_dead_letter() -> None:
    fake = FakeService(names_limit=1)
    fake.make_topic("orders")
    hour = timedelta(hours=1)
    fake.send("orders", b"1", "k", name="a", delay=hour)
    refused = fake.send("orders", b"2", "k", name="b", delay=hour)
    assert outcomes_of(fake, refused.id) == ["dead"]
    assert [dict(record.headers or [])["tarry-error"] for record in fake.dead()] == [b"too-many-names"]
    fake.configure(names_limit=2)
    kept = fake.send("orders", b"3", "k", name="b", delay=hour, only_if="absent")
    assert outcomes_of(fake, kept.id) == ["scheduled"]


def test_a_refusal_of_the_client_is_raised(tarry_fake: FakeService) -> None:
    with pytest.raises(HeaderError, match="negative"):
        tarry_fake.send("orders", b"v", delay=timedelta(seconds=-1))


def test_a_message_due_while_its_target_is_away_comes_when_the_target_is_back(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.make_topic("bills")
    tarry_fake.broker.take_away("orders")
    tarry_fake.send("orders", b"o", delay=timedelta(seconds=1))
    tarry_fake.send("bills", b"b", delay=timedelta(seconds=2))
    tarry_fake.clock.advance(5 * MINUTE_MS)
    assert values(tarry_fake, "bills") == [b"b"]
    assert values(tarry_fake, "orders") == []
    tarry_fake.broker.bring_back("orders")
    tarry_fake.clock.advance(5 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"o"]


def test_a_jump_of_wall_time_delivers_what_is_due_by_it(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("orders")
    tarry_fake.send("orders", b"v", delay=timedelta(hours=1))
    tarry_fake.clock.jump(60 * MINUTE_MS)
    assert values(tarry_fake, "orders") == [b"v"]
