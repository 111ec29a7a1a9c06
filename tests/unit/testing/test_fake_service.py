"""The service on a fake broker that users test with."""

from datetime import UTC, datetime, timedelta

import pytest

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


def test_a_message_that_the_service_refuses_is_a_dead_letter_with_its_reason() -> None:
    fake = FakeService(targets=["orders.*"], max_delay=timedelta(hours=1))
    fake.make_topic("orders.paid")
    fake.make_topic("bills")
    fake.send("bills", b"1", delay=timedelta(0))
    fake.send("orders.paid", b"2", delay=timedelta(hours=2))
    reasons = [dict(record.headers or [])["tarry-error"] for record in fake.dead()]
    assert reasons == [b"target-not-allowed", b"beyond-max-delay"]


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
