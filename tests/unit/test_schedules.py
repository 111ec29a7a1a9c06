"""From a record with the headers of a schedule to its first occurrence, its next record, or a rejection."""

import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.murmur2 import partition_of
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition, Naming, Planned, hash_of
from tarry.core.request.reader import Header, RequestReader
from tarry.core.request.request import Rejection, Request
from tarry.core.request.schedules import ROOM_BYTES
from tarry.core.wire import batch_bytes
from tarry.headers import ErrorCode, derived_id, occurrence_id
from tarry.jitter import jitter_ms
from tarry.units import parse_instant_ms

NOW_MS = parse_instant_ms("2026-07-02T12:00:00.250Z")
QUARTER_MS = parse_instant_ms("2026-07-02T12:15:00Z")
ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
POLICY = IntakePolicy("tarry.delayed", max_delay_ms=60_000)
TARGET: Header = ("tarry-target", b"orders")
NAME: Header = ("tarry-name", b"report")
EVERY: Header = ("tarry-every", b"15m")
OWN: Header = ("tarry-id", ID)


def read(headers: list[Header], policy: IntakePolicy = POLICY, timestamp_ms: int = NOW_MS) -> object:
    return RequestReader(policy).read(3, 42, timestamp_ms, headers, NOW_MS, key=b"k", value=b"v")


def accepted(headers: list[Header], policy: IntakePolicy = POLICY, timestamp_ms: int = NOW_MS) -> Request:
    request = read(headers, policy, timestamp_ms)
    assert isinstance(request, Request), request
    return request


def rejected(headers: list[Header], policy: IntakePolicy = POLICY, timestamp_ms: int = NOW_MS) -> Rejection:
    rejection = read(headers, policy, timestamp_ms)
    assert isinstance(rejection, Rejection), rejection
    assert "\n" not in rejection.detail
    return rejection


def test_the_first_occurrence_is_due_at_the_first_time_after_the_record() -> None:
    request = accepted([TARGET, NAME, EVERY, OWN])
    planned = Planned(ID, 1, None, QUARTER_MS)
    naming = Naming(hash_of(b"k", b"report"), Condition.ALWAYS, planned)
    assert request == Request(QUARTER_MS, "orders", -1, occurrence_id(ID, QUARTER_MS), False, naming=naming)


def test_the_id_of_an_occurrence_is_a_uuid_of_the_schedule_and_its_due_time() -> None:
    expected = uuid.uuid5(uuid.UUID(ID.decode()), str(QUARTER_MS))
    assert occurrence_id(ID, QUARTER_MS) == str(expected).encode()
    assert occurrence_id(ID, 1_782_994_500_000) == b"cbc477d0-bf92-547e-b9fd-1fc5ddd2f09f"


def test_a_schedule_without_an_id_has_one_of_its_place() -> None:
    request = accepted([TARGET, NAME, EVERY])
    assert request.naming is not None
    assert request.naming.planned is not None
    assert request.naming.planned.schedule == derived_id("tarry.delayed", 3, 42)


def test_a_schedule_is_due_later_than_the_longest_delay_if_its_rule_says_so() -> None:
    cron: list[Header] = [TARGET, NAME, ("tarry-cron", b"0 9 1 JAN *"), ("tarry-zone", b"Europe/Berlin")]
    horizon = replace(POLICY, horizon_ms=1_000)
    assert accepted(cron, horizon).due_ms == parse_instant_ms("2027-01-01T08:00:00Z")
    first: Header = ("tarry-deliver-at", b"2030-01-01T00:00:00Z")
    assert accepted([TARGET, NAME, EVERY, first]).due_ms == parse_instant_ms("2030-01-01T00:00:00Z")


def test_a_window_shifts_each_occurrence_by_the_same_time() -> None:
    shift_ms = jitter_ms(ID, 60_000)
    window: Header = ("tarry-window-ms", b"60000")
    for timestamp_ms in (QUARTER_MS - 1, QUARTER_MS, QUARTER_MS + shift_ms - 1):
        # The time of the rule may be over, but not that with the shift.
        request = accepted([TARGET, NAME, EVERY, OWN, window], timestamp_ms=timestamp_ms)
        assert request.due_ms == QUARTER_MS + shift_ms
    later = accepted([TARGET, NAME, EVERY, OWN, window], timestamp_ms=QUARTER_MS + shift_ms)
    assert later.due_ms == QUARTER_MS + 900_000 + shift_ms


def test_due_times_are_rounded_up_to_the_tick() -> None:
    request = accepted([TARGET, NAME, ("tarry-every", b"1001ms"), OWN], replace(POLICY, tick_ms=50))
    assert request.due_ms % 50 == 0
    assert request.id == occurrence_id(ID, request.due_ms)


def test_a_next_record_has_its_due_time_and_says_what_it_follows() -> None:
    request = accepted([TARGET, NAME, EVERY, OWN, ("tarry-next", b"17 %d 5" % QUARTER_MS)], timestamp_ms=1)
    assert request.naming is not None
    assert request.naming.planned == Planned(ID, 5, 17, QUARTER_MS)
    assert (request.due_ms, request.id) == (QUARTER_MS, occurrence_id(ID, QUARTER_MS))


def test_a_next_record_is_taken_in_whatever_partition_it_is() -> None:
    reader = RequestReader(POLICY)
    reader.partitions = 8
    own = partition_of(b"k", 8)
    following: list[Header] = [TARGET, NAME, EVERY, OWN, ("tarry-next", b"17 %d 5" % QUARTER_MS)]
    assert isinstance(reader.read(own - 1, 42, NOW_MS, following, NOW_MS, key=b"k"), Request)
    first = reader.read(own - 1, 42, NOW_MS, following[:-1], NOW_MS, key=b"k")
    assert isinstance(first, Rejection)
    assert first.code == ErrorCode.WRONG_PARTITION


@pytest.mark.parametrize("value", [None, b"", b"1 2", b"1 2 3 4", b"-1 2 3", b"1 x 3", b"1 253402300800000 3"])
def test_a_bad_next_header_is_a_bad_schedule(value: bytes | None) -> None:
    rejection = rejected([TARGET, NAME, EVERY, OWN, ("tarry-next", value)])
    assert rejection.code == ErrorCode.BAD_SCHEDULE
    assert rejection.detail.startswith("only the service writes tarry-next")
    assert rejection.planned is None


def test_a_rejected_next_record_says_what_it_follows_so_that_it_ends_its_schedule() -> None:
    following: Header = ("tarry-next", b"17 %d 5" % QUARTER_MS)
    no_right = replace(POLICY, schedule_bytes=None)
    narrower = replace(POLICY, targets=("bills",))
    for headers, policy in (
        ([TARGET, NAME, EVERY, OWN, following], no_right),
        ([TARGET, NAME, EVERY, OWN, following], narrower),
        ([TARGET, NAME, OWN, following], POLICY),
        ([TARGET, NAME, EVERY, OWN, following, ("tarry-expires-at", b"%d" % (QUARTER_MS - 1))], POLICY),
    ):
        rejection = rejected(headers, policy)
        assert rejection.planned == Planned(ID, 5, 17, QUARTER_MS), headers
        assert (rejection.name, rejection.id) == (hash_of(b"k", b"report"), ID)


CASES: dict[str, tuple[list[Header], ErrorCode]] = {
    "no name": ([TARGET, EVERY], ErrorCode.BAD_NAME),
    "a delay, too": ([TARGET, NAME, EVERY, ("tarry-delay-ms", b"5")], ErrorCode.TWO_DELAYS),
    "two rules": ([TARGET, NAME, EVERY, ("tarry-cron", b"0 9 * * *")], ErrorCode.BAD_SCHEDULE),
    "a zone alone": ([TARGET, NAME, ("tarry-zone", b"UTC"), ("tarry-delay-ms", b"5")], ErrorCode.TWO_DELAYS),
    "a zone and no delay": ([TARGET, NAME, ("tarry-zone", b"UTC")], ErrorCode.BAD_SCHEDULE),
    "too short": ([TARGET, NAME, ("tarry-every", b"10ms")], ErrorCode.BAD_SCHEDULE),
    "a bad window": ([TARGET, NAME, EVERY, ("tarry-window-ms", b"0")], ErrorCode.BAD_DELAY),
    "a bad id": ([TARGET, NAME, EVERY, ("tarry-id", b"x")], ErrorCode.BAD_ID),
    "no target": ([NAME, EVERY], ErrorCode.NO_TARGET),
    "twice": ([TARGET, NAME, EVERY, EVERY], ErrorCode.REPEATED_HEADER),
    "expires first": ([TARGET, NAME, EVERY, ("tarry-expires-at", b"2026-07-02T12:14:59Z")], ErrorCode.EXPIRED),
    "after 9999": (
        [TARGET, NAME, EVERY, ("tarry-deliver-at", b"9999-12-31T23:59:59.999Z"), ("tarry-window-ms", b"999999")],
        ErrorCode.BAD_SCHEDULE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_with_a_schedule(case: str) -> None:
    headers, code = CASES[case]
    rejection = rejected(headers)
    assert rejection.code == code
    assert rejection.planned is None or rejection.planned.follows is None


def test_a_record_without_a_timestamp_begins_no_schedule() -> None:
    assert rejected([TARGET, NAME, EVERY], timestamp_ms=-1).code == ErrorCode.BAD_SCHEDULE


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (IntakePolicy("in", fixed_delay_ms=5, fixed_target="orders"), "it has a fixed delay"),
        (IntakePolicy("in", dialect="karafka"), "its records are in the dialect karafka"),
        (IntakePolicy("in", schedule_bytes=None), "the service has no right to write to it (WRITE)"),
    ],
)
def test_some_intakes_accept_no_schedules(policy: IntakePolicy, why: str) -> None:
    rejection = rejected([TARGET, NAME, EVERY, OWN, ("schedule_target_topic", b"orders")], policy)
    assert rejection.code == ErrorCode.SCHEDULES_NOT_ACCEPTED
    assert rejection.detail.startswith(f"no schedules in in: {why}")


def test_a_schedule_leaves_room_for_the_headers_of_its_next_records() -> None:
    headers = [TARGET, NAME, EVERY]
    size = batch_bytes(b"k", b"v", headers)
    assert accepted(headers, replace(POLICY, schedule_bytes=size + ROOM_BYTES))
    rejection = rejected(headers, replace(POLICY, schedule_bytes=size + ROOM_BYTES - 1))
    assert rejection.code == ErrorCode.TOO_LARGE
    # The next record is larger, and was accepted by the limit of then.
    following = [*headers, OWN, ("tarry-next", b"17 %d 5" % QUARTER_MS)]
    assert accepted(following, replace(POLICY, schedule_bytes=size + ROOM_BYTES - 1))


@given(
    st.dictionaries(
        st.sampled_from(["every", "cron", "zone", "next", "name", "if", "deliver-at", "window-ms", "expires-at", "id"]),
        st.binary(max_size=20) | st.sampled_from([b"15m", b"0 9 * * *", b"UTC", b"1 2 3", b"absent", b"60000"]),
    )
)
def test_any_headers_are_a_schedule_or_a_rejection(values: dict[str, bytes]) -> None:
    read([TARGET, *((f"tarry-{name}", value) for name, value in values.items())])
