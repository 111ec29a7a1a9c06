"""Schedules on the fake service: what a program that repeats messages can test."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tarry.client import DelayedMessage, RepeatedMessage, ScheduleReceipt
from tarry.client.outcome.result import Wanted
from tarry.errors import HeaderError
from tarry.headers import occurrence_id
from tarry.testing import FakeService, ManualClock

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NIGHTLY = "30 2 * * *"


def values(fake: FakeService, topic: str) -> list[bytes | None]:
    return [record.value for record in fake.delivered(topic)]


def ends(fake: FakeService, receipt: ScheduleReceipt) -> list[tuple[str, str]]:
    """Return outcome and source of the results under a schedule's id."""
    return [(one["outcome"], one["source"]) for one in fake.outcomes() if one["id"] == receipt.id]


def test_a_message_is_repeated_at_each_time_of_its_interval(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    receipt = tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=15), headers={"a": "b"})
    tarry_clock.advance(HOUR_MS)
    records = tarry_fake.delivered("reports")
    assert len(records) == 4
    for number, record in enumerate(records, start=1):
        headers = dict(record.headers or [])
        due_ms = int(headers["tarry-due-ms"] or b"")
        assert due_ms % (15 * MINUTE_MS) == 0
        assert record.timestamp_ms == due_ms
        assert headers["tarry-id"] == occurrence_id(receipt.id.encode(), due_ms)
        assert (headers["tarry-schedule"], headers["tarry-occurrence"]) == (receipt.id.encode(), b"%d" % number)
        assert (headers["a"], "tarry-every" in headers, "tarry-name" in headers) == (b"b", False, False)
    assert {one["schedule"] for one in tarry_fake.outcomes()} == {receipt.id}


def test_a_cron_rule_is_due_at_the_time_of_its_zone(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    tarry_fake.repeat("reports", b"v", "k", name="report", cron=NIGHTLY, zone="Asia/Tokyo")
    tarry_clock.advance(24 * HOUR_MS)
    [record] = tarry_fake.delivered("reports")
    at = datetime.fromtimestamp(record.timestamp_ms / 1_000, UTC)
    assert (at.hour, at.minute) == (17, 30)


def test_an_interval_counts_from_its_first_time(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    first_ms = tarry_clock.now_ms() + 7 * MINUTE_MS + 123
    first = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=first_ms)
    tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=10), first=first)
    tarry_clock.advance(20 * MINUTE_MS)
    assert [one.timestamp_ms for one in tarry_fake.delivered("reports")] == [first_ms, first_ms + 10 * MINUTE_MS]


def test_a_cancel_by_name_ends_a_schedule(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    receipt = tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=1))
    tarry_clock.advance(2 * MINUTE_MS)
    with pytest.raises(HeaderError, match="call cancel_named"):
        tarry_fake.cancel(receipt.handle)
    tarry_fake.cancel_named("k", "report")
    tarry_clock.advance(HOUR_MS)
    assert values(tarry_fake, "reports") == [b"v", b"v"]
    assert [outcome for outcome, _ in ends(tarry_fake, receipt)] == ["cancelled"]


def test_a_handle_of_an_occurrence_ends_its_schedule(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    receipt = tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=1))
    due_ms = (tarry_clock.now_ms() // MINUTE_MS + 1) * MINUTE_MS
    handle = f"1.{tarry_fake.intake}.0.{due_ms}.{occurrence_id(receipt.id.encode(), due_ms).decode()}"
    tarry_fake.cancel(handle)
    tarry_clock.advance(HOUR_MS)
    assert values(tarry_fake, "reports") == []
    assert [outcome for outcome, _ in ends(tarry_fake, receipt)] == ["cancelled"]


def test_a_new_schedule_of_the_name_replaces_the_old_one(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    old = tarry_fake.repeat("reports", b"old", "k", name="report", every=timedelta(minutes=1))
    tarry_clock.advance(MINUTE_MS)
    new = tarry_fake.repeat("reports", b"new", "k", name="report", cron="*/2 * * * *")
    tarry_clock.advance(4 * MINUTE_MS)
    assert values(tarry_fake, "reports") == [b"old", b"new", b"new"]
    assert [outcome for outcome, _ in ends(tarry_fake, old)] == ["replaced"]
    assert ends(tarry_fake, new) == []


def test_a_deploy_that_sends_its_schedule_again_changes_nothing(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("reports")
    every = timedelta(minutes=10)
    first = tarry_fake.repeat("reports", b"1", "k", name="report", every=every, only_if="absent")
    tarry_clock.advance(13 * MINUTE_MS)
    second = tarry_fake.repeat("reports", b"2", "k", name="report", every=every, only_if="absent")
    tarry_clock.advance(HOUR_MS)
    assert set(values(tarry_fake, "reports")) == {b"1"}
    assert ends(tarry_fake, first) == [("scheduled", first.source)]
    assert ends(tarry_fake, second) == [("skipped", second.source)]


def test_what_was_missed_while_the_target_was_away_is_one_late_occurrence(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("reports")
    tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=1))
    tarry_clock.advance(MINUTE_MS)
    tarry_fake.broker.take_away("reports")
    tarry_clock.advance(5 * MINUTE_MS)
    tarry_fake.broker.bring_back("reports")
    tarry_clock.advance(2 * MINUTE_MS)
    records = tarry_fake.delivered("reports")
    due_ms = [int(dict(one.headers or [])["tarry-due-ms"] or b"") for one in records]
    assert [(at_ms - due_ms[0]) // MINUTE_MS for at_ms in due_ms] == [0, 1, 6, 7]
    assert records[1].timestamp_ms > due_ms[1] + 4 * MINUTE_MS
    assert [one.timestamp_ms for one in records[2:]] == due_ms[2:]


def test_a_rule_that_the_client_cannot_check_is_a_dead_letter(tarry_fake: FakeService) -> None:
    tarry_fake.make_topic("reports")
    receipt = tarry_fake.repeat("reports", b"v", "k", name="report", cron="0 9 31 2 *")
    [letter] = tarry_fake.dead()
    assert dict(letter.headers or [])["tarry-error"] == b"bad-schedule"
    assert ends(tarry_fake, receipt) == [("dead", receipt.source)]


def test_an_expiry_ends_a_schedule(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    now = datetime.fromtimestamp(tarry_clock.now_ms() / 1_000, UTC)
    receipt = tarry_fake.repeat(
        "reports", b"v", "k", name="report", every=timedelta(minutes=10), expires_at=now + timedelta(minutes=25)
    )
    tarry_clock.advance(2 * HOUR_MS)
    assert values(tarry_fake, "reports") == [b"v", b"v"]
    [(outcome, source)] = ends(tarry_fake, receipt)
    assert (outcome, source != receipt.source) == ("dead", True)
    [letter] = tarry_fake.dead()
    assert dict(letter.headers or [])["tarry-error"] == b"expired"


def test_the_end_of_a_schedule_answers_its_receipt_and_no_occurrence_does(
    tarry_fake: FakeService, tarry_clock: ManualClock
) -> None:
    tarry_fake.make_topic("reports")
    receipt = tarry_fake.repeat("reports", b"v", "k", name="report", every=timedelta(minutes=1), only_if="absent")
    tarry_clock.advance(3 * MINUTE_MS)
    tarry_fake.cancel_named("k", "report")
    log = f"{tarry_fake.intake}.results"
    found = [(one.key, one.value) for one in tarry_fake.broker.records(log, 0)]
    decision, end = Wanted(receipt, interim=True), Wanted(receipt)

    def answers(wanted: Wanted) -> list[str]:
        keys = [key for _, key in wanted.result_keys()]
        results = [wanted.answer(value) for key, value in found if key in keys]
        return [one["outcome"] for one in results if one is not None]

    assert answers(decision) == ["scheduled", "cancelled"]
    assert answers(end) == ["cancelled"]


def test_schedules_are_the_same_for_coroutines_and_for_many(tarry_fake: FakeService, tarry_clock: ManualClock) -> None:
    tarry_fake.make_topic("reports")
    every = timedelta(minutes=1)
    receipt = asyncio.run(tarry_fake.aio.repeat("reports", b"a", "k", name="a", every=every))
    assert isinstance(receipt, ScheduleReceipt)
    mixed: list[DelayedMessage | RepeatedMessage] = [
        RepeatedMessage("reports", b"b", "k", "b", every=every),
        DelayedMessage("reports", b"c", "k", delay=every),
    ]
    kinds = [type(one).__name__ for one in tarry_fake.send_many(mixed)]
    assert kinds == ["ScheduleReceipt", "Receipt"]
    tarry_clock.advance(MINUTE_MS)
    assert sorted(values(tarry_fake, "reports"), key=str) == [b"a", b"b", b"c"]
