"""Messages that expire: judged when they fire, wherever they waited."""

import pytest

from tarry.core.batch import Batch
from tarry.core.expiry import NO_EXPIRY_MS, expired
from tarry.core.message import FiledMessage, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import INTAKE, Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.translated import TranslatedMessage
from tarry.core.wheel.filed import filed_headers, read_filed
from tarry.headers import DELIVER_AT, EXPIRES_AT, NAME, TARGET, ErrorCode
from tarry.timer import TimingWheel

NOW_MS = 1_700_000_000_000
EXPIRES_MS = NOW_MS + 100
BUCKET = Source(1, 7)
Headers = list[tuple[str, bytes | None]]


def taken_over(dialect: str | None = None, levels: int = 0) -> PartitionState:
    checkpoint = Checkpoint(("writer",), False, Geometry(1_000, 10, levels), (NOW_MS,) * levels)
    reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9, dialect=dialect))
    recovered = Recovered(0, checkpoint, DoneSet(), 0)
    return PartitionState("in", 0, reader, False, lambda start_ms: TimingWheel(1, 64, start_ms), recovered, NOW_MS)


def headers_of(due_ms: int, expires: bytes | None = b"%d" % EXPIRES_MS, *others: tuple[str, bytes | None]) -> Headers:
    expiry: Headers = [] if expires is None else [(EXPIRES_AT, expires)]
    return [(TARGET, b"orders"), (DELIVER_AT, b"%d" % due_ms), *others, *expiry]


def accept(state: PartitionState, offset: int, headers: Headers) -> Headers:
    state.arrivals.accept(offset, NOW_MS, b"k", b"v%d" % offset, headers, NOW_MS)
    return headers


def filed(message: HeldMessage) -> Headers:
    """Return the headers of a record of a bucket, as they are read."""
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in filed_headers(message)]


def take(state: PartitionState, now_ms: int) -> Batch:
    """Take what is due, as the firing transaction does."""
    state.collect(now_ms)
    batch = state.take(100, now_ms)
    batch.expire(now_ms)
    return batch


def confirm(state: PartitionState, batch: Batch) -> None:
    state.settle(batch)
    state.confirm(batch)


@pytest.mark.parametrize(("late_ms", "is_dead"), [(-1, False), (0, False), (1, True)])
def test_a_message_is_delivered_at_its_expiry_and_dead_after_it(late_ms: int, is_dead: bool) -> None:
    state = taken_over()
    headers = accept(state, 0, headers_of(NOW_MS + 50))
    batch = take(state, EXPIRES_MS + late_ms)
    assert (len(batch.due), len(batch.dead)) == (0, 1) if is_dead else (1, 0)
    for dead in batch.dead:
        assert (dead.code, dead.headers, dead.key, dead.value) == (ErrorCode.EXPIRED, headers, b"k", b"v0")
        assert dead.detail == "expired 2023-11-14T22:13:20.100Z, and was to be delivered 2023-11-14T22:13:20.101Z"
        assert (dead.due_ms, dead.target) == (NOW_MS + 50, "orders")
    confirm(state, batch)
    assert (state.low, state.held, state.held_bytes) == (1, 0, 0)


def test_only_what_has_expired_is_dead_and_the_others_keep_their_order() -> None:
    state = taken_over()
    for offset, expires in enumerate((None, b"%d" % EXPIRES_MS, None, b"2023-11-14T22:13:21Z", b"%d" % EXPIRES_MS)):
        accept(state, offset, headers_of(NOW_MS + 50 - offset, expires))
    batch = take(state, EXPIRES_MS + 1)
    assert [one.sequence for one in batch.due] == [3, 2, 0]
    assert [one.sequence for one in batch.dead] == [4, 1]
    assert batch.offsets() == {INTAKE: [3, 2, 0, 4, 1]}


def test_what_had_expired_in_an_aborted_transaction_is_due_again_in_its_place() -> None:
    state = taken_over()
    for offset in range(3):
        accept(state, offset, headers_of(NOW_MS + offset, b"%d" % EXPIRES_MS if offset == 1 else None))
    batch = take(state, EXPIRES_MS + 1)
    assert len(batch.dead) == 1
    state.settle(batch)
    state.put_back(batch)
    # The clock stepped back: it is judged anew.
    again = take(state, EXPIRES_MS)
    assert ([one.sequence for one in again.due], again.dead) == ([0, 1, 2], [])


@pytest.mark.parametrize("name", [None, b"lease"])
@pytest.mark.parametrize("dialect", [None, "timebridge"])
def test_a_bucket_keeps_an_expiry(name: bytes | None, dialect: str | None) -> None:
    named: Headers = [] if name is None else [(NAME, name)]
    headers = headers_of(NOW_MS + 60_000, b"2023-11-14T22:15:00.250+00:00", *named)
    headers += [("X-Timebridge-When", b"2023-11-14T22:14:20Z"), ("X-Timebridge-Where", b"orders")] * bool(dialect)
    state = taken_over(dialect, levels=2)
    accept(state, 0, headers)
    confirm(state, take(state, NOW_MS))  # the decision on the name
    ((message, _),) = state.take_to_file(100, NOW_MS).records
    assert message.expires_ms == NOW_MS + 100_250
    back = read_filed(BUCKET, 5, message.original_key, message.value, filed(message))
    assert isinstance(back, TranslatedMessage) is (dialect is not None)
    assert (back.expires_ms, back.name, back.headers) == (message.expires_ms, message.name, message.headers)
    assert back.original_headers == headers
    again = read_filed(BUCKET, 5, back.original_key, back.value, filed(back))
    assert again.expires_ms == message.expires_ms


def test_what_has_no_expiry_is_filed_as_before_and_never_expires() -> None:
    message = FiledMessage(NOW_MS, 3, b"k", b"v", [(TARGET, b"orders")], False, "orders", -1, b"%036d" % 3)
    assert (filed(message)[-1][1] or b"")[21] == 0
    assert read_filed(BUCKET, 5, b"k", b"v", filed(message)).expires_ms == NO_EXPIRY_MS


def test_a_parked_message_that_has_expired_is_dead_when_it_is_tried() -> None:
    state = taken_over()
    for offset in range(2):
        accept(state, offset, headers_of(NOW_MS, None if offset else b"%d" % EXPIRES_MS))
    state.collect(NOW_MS)
    assert not state.take(100, NOW_MS, {"orders"})
    batch = state.take_parked("orders", 100, EXPIRES_MS + 1)
    batch.expire(EXPIRES_MS + 1)
    assert ([one.sequence for one in batch.due], [one.sequence for one in batch.dead]) == ([1], [0])
    state.park_again("orders", batch)
    batch = state.take_parked("orders", 100, EXPIRES_MS + 1)
    assert [one.sequence for one in batch.due] == [0, 1]
    batch.expire(EXPIRES_MS + 1)
    state.confirm_parked(batch)
    assert (state.low, state.held, state.held_bytes) == (2, 0, 0)


def test_a_name_is_free_once_its_message_has_expired() -> None:
    state = taken_over()
    accept(state, 0, headers_of(NOW_MS, b"%d" % EXPIRES_MS, (NAME, b"lease")))
    batch = take(state, EXPIRES_MS + 1)
    assert [one.name is not None for one in batch.dead] == [True]
    confirm(state, batch)
    assert state.names.count == 0


def test_the_error_names_both_times() -> None:
    code, detail = expired(EXPIRES_MS, EXPIRES_MS + 1)
    assert (code, detail.count("2023-11-14T22:13:20.10")) == ("expired", 2)


def test_a_message_never_expires_by_itself() -> None:
    message = HeldMessage(NOW_MS, 0, None, None, None, False, "orders", -1, b"%036d" % 0)
    batch = Batch([message])
    batch.expire(1 << 61)
    assert (batch.due, batch.dead) == ([message], [])
