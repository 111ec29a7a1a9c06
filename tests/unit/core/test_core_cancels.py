"""A cancel takes all messages with its id and due time before it in the intake, in any order of reading."""

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from tarry.core.batch import Batch, FiledRun
from tarry.core.message import FiledMessage, HeldCancel
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.headers import CANCEL, DELIVER_AT, ID, TARGET
from tarry.timer import TimingWheel

if TYPE_CHECKING:
    from tarry.core.wheel.overflow import ToRead

START_MS = 1_700_000_000_000
DUE_MS = START_MS + 500
WIDTH_MS = 1_000
ONE_LEVEL = Geometry(WIDTH_MS, 10, 1)
SOURCE = Source(1, START_MS // WIDTH_MS)
NAMED = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
SIZE = 520
"""About what a message takes."""

Record = tuple[str, int]
"""`A`, a message of the name, `C`, a cancel of it, or `x`, any other message; and its offset in the intake."""


def filed(record: Record, size: int = 20) -> tuple[bytes | None, bytes | None, Any]:
    kind, offset = record
    if kind == "C":
        return None, None, filed_headers(HeldCancel(DUE_MS, offset, None, None, None, False, "", -1, NAMED))
    id_ = NAMED if kind == "A" else b"%036d" % offset
    value = b"x" * size
    return None, value, filed_headers(FiledMessage(DUE_MS, offset, None, value, None, False, "orders", -1, id_))


class Owner:
    """A partition, with one bucket that is closed, and what becomes of its records."""

    def __init__(
        self, bucket: Sequence[Record], *, found: bool = False, done: Iterable[int] = (), low: int = 0
    ) -> None:
        self.bucket = bucket
        self.told: dict[int, str] = {}
        self.cancelled_by: dict[int, int] = {}
        self.done_in_bucket: set[int] = set(done)
        closed_ms = (START_MS + found * WIDTH_MS,)
        checkpoint = Checkpoint(("writer",), False, ONE_LEVEL, closed_ms, (START_MS,), (0,))
        in_buckets = {SOURCE: DoneSet([(at, at + 1) for at in self.done_in_bucket])}
        buckets = Buckets({1: (0, len(bucket))}, in_buckets) if found else Buckets()
        self.state = PartitionState(
            "in",
            0,
            RequestReader(IntakePolicy("in", max_delay_ms=10**9)),
            False,
            lambda start_ms: TimingWheel(1, 64, start_ms),
            Recovered(low, checkpoint, DoneSet(), low, buckets),
            START_MS,
        )
        self.scan: list[ToRead] = []

    def close(self) -> None:
        """File the records, and close the bucket."""
        self.state.overflow.filed([FiledRun(SOURCE, 0, len(self.bucket), len(self.bucket))])
        assert self.state.close_buckets(10**6, START_MS)

    def open(self, room_bytes: int = 10**6) -> None:
        self.scan = self.state.level_records.to_read(room_bytes)

    def offsets(self) -> list[int]:
        """Return the offsets to read: what is to be known of the log, and the bucket's."""
        return sorted({at for one in self.scan for run in one.runs for at in range(*run)})

    def read(self, offset: int, size: int = 20) -> None:
        self.state.level_records.accept(self.scan, offset, *filed(self.bucket[offset], size), START_MS)

    def reach_end(self) -> None:
        for to_read in self.scan:
            self.state.level_records.reach_end(to_read, START_MS)

    def read_bucket(self, room_bytes: int = 10**6) -> bool:
        """Once to its end, if it is to be read; whether it was."""
        self.open(room_bytes)
        for offset in self.offsets():
            self.read(offset)
        self.reach_end()
        return bool(self.scan)

    def send(self, record: Record) -> None:
        """A record of the intake."""
        kind, offset = record
        handle = f"1.in.0.{DUE_MS}.{NAMED.decode()}".encode()
        headers: Any = [(TARGET, b"orders"), (DELIVER_AT, b"%d" % DUE_MS), (ID, NAMED)]
        self.state.arrivals.accept(
            offset, START_MS, None, b"x", [(CANCEL, handle)] if kind == "C" else headers, START_MS
        )

    def fire(self, now_ms: int, limit: int = 1_000) -> Batch:
        self.state.collect(now_ms)
        batch = self.state.take(limit, now_ms)
        if len(batch):
            self.state.settle(batch)
            self.done_in_bucket.update(batch.offsets().get(SOURCE, ()))
            for message in batch.due:
                self.tell(message.sequence, "fired")
            for resolution in batch.resolutions:
                for record in resolution.records:
                    self.tell(record.sequence, resolution.outcome.value)
                if resolution.cancel is not None:
                    self.cancelled_by[resolution.message.sequence] = resolution.cancel.sequence
            self.state.confirm(batch)
        return batch

    def tell(self, offset: int, outcome: str) -> None:
        assert offset not in self.told, "one outcome each"
        self.told[offset] = outcome

    def all_outcomes(self, room_bytes: int = 10**6, now_ms: int = DUE_MS + 10) -> dict[int, str]:
        """Read and fire until nothing is left; what became of each record, by its offset in the intake."""
        for _ in range(200):
            self.read_bucket(room_bytes)
            while len(self.fire(now_ms)):
                pass  # and once more when nothing is ready
            if not self.state.held and self.state.overflow.done_ms[0] == START_MS + WIDTH_MS:
                assert self.state.held_bytes == 0
                return self.told
        raise AssertionError("it does not come to an end")


def named(told: dict[int, str], bucket: Sequence[Record]) -> list[str]:
    return [told[offset] for kind, offset in sorted(bucket, key=lambda one: one[1]) if kind != "x"]


@pytest.mark.parametrize("found", [False, True], ids=["closed", "found-by-a-take-over"])
@pytest.mark.parametrize("fill", [0, 3, 9, 10, 11, 30])
def test_a_cancel_takes_a_message_that_was_sent_twice_whichever_pass_brings_it(fill: int, found: bool) -> None:
    """All is due in one millisecond, so that a pass may end between any two of it."""
    others: list[Record] = [("x", 10 + number) for number in range(fill)]
    bucket: list[Record] = [("A", 1), *others, ("A", 100), ("C", 101), ("x", 102)]
    owner = Owner(bucket, found=found)
    if not found:
        owner.close()
    told = owner.all_outcomes(10 * SIZE)
    assert named(told, bucket) == ["cancelled", "duplicate", "cancelled"]
    assert all(told[offset] == "fired" for kind, offset in bucket if kind == "x")


@pytest.mark.parametrize("order", list(permutations((("A", 1), ("A", 2), ("C", 3), ("A", 4)))))
def test_a_message_behind_a_cancel_is_new_in_any_order_of_reading(order: Sequence[Record]) -> None:
    owner = Owner(order)
    owner.close()
    told = owner.all_outcomes()
    assert sorted(named(told, order)[:2]) == ["cancelled", "duplicate"]
    assert named(told, order)[2:] == ["cancelled", "fired"]


@pytest.mark.parametrize("order", list(permutations((("A", 1), ("C", 2), ("C", 3), ("A", 4), ("C", 5)))))
def test_each_cancel_has_one_answer_in_whatever_order_they_are_read(order: Sequence[Record]) -> None:
    owner = Owner(order)
    owner.close()
    told = owner.all_outcomes()
    first, *of_first, second, of_second = named(told, order)
    assert (first, sorted(of_first), second, of_second) == (
        "cancelled",
        ["cancel-too-late", "cancelled"],
        "cancelled",
        "cancelled",
    )


@pytest.mark.parametrize("at", range(4))
def test_a_message_of_the_intake_behind_a_cancel_in_a_bucket_is_no_duplicate_of_what_that_takes(at: int) -> None:
    """It is read while the bucket is: before the cancel, or before both."""
    bucket: list[Record] = [("A", 1), ("C", 2), ("x", 3)]
    owner = Owner(bucket, low=9)
    owner.close()
    owner.open()
    for offset in range(3):
        if offset == at:
            owner.send(("A", 9))
        owner.read(offset)
        owner.state.collect(START_MS)
    if at == 3:
        owner.send(("A", 9))
    owner.reach_end()
    assert owner.all_outcomes() == {1: "cancelled", 2: "cancelled", 3: "fired", 9: "fired"}


def test_a_cancel_of_the_intake_takes_what_a_bucket_still_brings() -> None:
    """It is read before any of the messages, and a take-over may read the bucket by passes."""
    bucket: list[Record] = [("A", 1), *(("x", 10 + number) for number in range(20)), ("A", 50)]
    owner = Owner(bucket, found=True, low=60)
    owner.send(("C", 60))
    assert owner.fire(START_MS).resolutions == []
    told = owner.all_outcomes(10 * SIZE)
    assert [told[offset] for offset in (1, 50, 60)] == ["cancelled", "duplicate", "cancelled"]
    assert owner.cancelled_by == {1: 60}


@pytest.mark.parametrize("crash_after", range(8))
def test_no_crash_separates_a_cancel_from_the_messages_that_it_takes(crash_after: int) -> None:
    """Messages committed before the crash are not read again; the others match the cancel, or it has its answer."""
    bucket: list[Record] = [("A", 1), *(("x", 10 + number) for number in range(12)), ("A", 50), ("C", 51)]
    first = Owner(bucket, found=True)
    for _ in range(crash_after):
        first.read_bucket(10 * SIZE)
        first.fire(DUE_MS + 10, limit=1 + crash_after % 3)
    second = Owner(bucket, found=True, done=first.done_in_bucket)
    second.told, second.cancelled_by = first.told, first.cancelled_by
    told = second.all_outcomes(10 * SIZE)
    assert sorted(named(told, bucket)[:2]) == ["cancelled", "duplicate"]
    assert told[51] == "cancelled"


def test_a_cancel_in_front_of_its_message_takes_nothing_and_is_told_so_at_once() -> None:
    owner = Owner([("x", 0)], found=True, low=1)
    owner.read_bucket()
    owner.send(("C", 1))
    assert owner.state.next_due_ms() == 0, "the answer is not put off"
    owner.fire(START_MS)
    assert owner.told == {1: "cancel-too-late"}
    owner.send(("A", 2))
    assert owner.all_outcomes() == {0: "fired", 1: "cancel-too-late", 2: "fired"}


def test_a_cancelled_message_keeps_no_content_in_memory() -> None:
    """A bucket larger than memory is due in one millisecond, and all its messages are cancelled."""
    bucket = [*(("A", number) for number in range(40)), ("C", 50)]
    owner = Owner(bucket, found=True)
    most = 0
    for _ in range(100):
        owner.open(10 * SIZE)
        for offset in owner.offsets():
            owner.read(offset, size=5_000)
        owner.reach_end()
        owner.fire(DUE_MS)
        most = max(most, owner.state.held_bytes)
    assert most < 4 * SIZE
    assert (owner.told[50], owner.state.held, owner.state.held_bytes) == ("cancelled", 0, 0)


@pytest.mark.parametrize("found", [False, True], ids=["closed", "found-by-a-take-over"])
@pytest.mark.parametrize("late_ms", [10, 100_000])
def test_one_like_a_message_of_the_same_bucket_is_a_duplicate_however_late_the_bucket_is_read(
    late_ms: int, found: bool
) -> None:
    bucket = [("A", 0), *(("x", offset) for offset in range(1, 40)), ("A", 40)]
    owner = Owner(bucket, found=found)
    if not found:
        owner.close()
    told = owner.all_outcomes(10 * SIZE, DUE_MS + late_ms)
    assert named(told, bucket) == ["fired", "duplicate"]
