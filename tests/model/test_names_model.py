"""Named messages of one partition against an oracle that knows what was sent, and what was committed.

Many records of few names: replaced, skipped, cancelled by name and by handle, sent twice; with crashes before and after
every commit, aborts of each kind of transaction, an older copy of the checkpoint, buckets of three levels, passes,
records that are filed again, targets that are away, attempts that stay open while they are replaced, and dead letters
that are refused. Of a name at most one message waits; what a result says to be gone is never delivered; all else is,
once; each record gets one outcome.

Each planted fault must be found within the seeds that the suite runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tarry.core.batch import Batch
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.name_index import NameIndex
from tarry.core.progress.name_records import NameRecords, NamesEntry, ShardEntry
from tarry.core.window import names
from tarry.core.window.arrivals import Arrivals
from tarry.core.window.deferred import Deferred
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.matching import Matching
from tarry.core.window.names import Names
from tarry.headers import Outcome
from tests.support.named_owner import NamedOwner

RECORDS = 60
SEEDS = range(1, 61)
PLANTED_SEEDS = range(1, 401)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write shards as often as with a million names."""
    monkeypatch.setattr(names, "LEAST_DEBT_BYTES", 300)


def run(seed: int) -> NamedOwner:
    owner = NamedOwner(seed, RECORDS)
    try:
        owner.run()
        assert (owner.state.held, owner.state.held_bytes) == (0, 0)
        assert owner.state.names.count == 0
        assert owner.state.names.pointer is None, "the journal is read for names that are gone"
        assert owner.state.low == owner.intake_end
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return owner


@pytest.mark.no_cover
def test_names_keep_all_promises() -> None:
    seen: Counter[str] = Counter()
    lives = copies = 0
    for seed in SEEDS:
        owner = run(seed)
        seen += owner.oracle.seen
        lives, copies = lives + owner.lives, copies + owner.copies_used
    # Or they would have seen nothing.
    all_of = {*Outcome} - {Outcome.CANCEL_FILED}
    assert all_of | {"waiting", "not-waiting", "dropped", "wanted back", "letters wanted back"} <= set(seen)
    assert (lives > 200, copies > 20, seen["dropped"] > 500) == (True, True, True)


@pytest.mark.exhaustive
def test_names_keep_all_promises_in_new_courses(seed: int, soak_for_s: float) -> None:
    for at in range(round(soak_for_s * 10)):
        run(seed + at)


# -- planted faults ------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def superseded_only_from(*callers: str) -> Plant:
    """Copies are not recognised as superseded where one of some functions asks."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        import sys

        real = Names.is_superseded

        def is_superseded(self: Names, message: HeldMessage | DeadMessage) -> bool:
            frame = sys._getframe(1)
            return frame.f_code.co_qualname not in callers and real(self, message)

        patch.setattr(Names, "is_superseded", is_superseded)

    return plant


def a_drained_copy_is_not_dropped(patch: pytest.MonkeyPatch) -> None:
    everywhere = ("DrainedRecords._place", "HotWindow._place", "Names.drops", "Placing.take_to_file", "_Queue.take")
    superseded_only_from(*everywhere)(patch)


def a_replay_decides_again(patch: pytest.MonkeyPatch) -> None:
    real = Names.__init__

    def init(self: Names, *args: Any) -> None:
        real(self, *args)
        self.decided_below = 0

    patch.setattr(Names, "__init__", init)


def a_replay_does_not_drop(patch: pytest.MonkeyPatch) -> None:
    def found(self: Arrivals, *_: object) -> None:
        raise AssertionError

    superseded_only_from("Arrivals._verdict", "HotWindow._place", "Names.drops", "_Queue.take")(patch)


def a_side_transaction_is_forgotten_after_a_shard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NameRecords, "index", property(lambda self: self._index))


def a_side_transaction_removes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "journal_aside", lambda _self, _records: [])


def a_delivery_removes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "_current", lambda _self, _records: iter(()))


def a_name_stays_taken_after_its_message_is_dead(patch: pytest.MonkeyPatch) -> None:
    real = Names._current

    def current(self: Names, records: Iterable[HeldMessage | DeadMessage]) -> Iterator[tuple[bytes, int]]:
        return real(self, [record for record in records if not isinstance(record, DeadMessage)])

    patch.setattr(Names, "_current", current)


def what_is_not_admitted_is_filed_and_tried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "is_admitted", lambda _self, _message: True)


def what_is_not_admitted_fires(patch: pytest.MonkeyPatch) -> None:
    real = Names.take

    def take(self: Names, batch: Batch, limit: int, limit_bytes: int) -> int:
        real(self, batch, limit, limit_bytes)
        return 1 << 62

    patch.setattr(Names, "take", take)


def what_is_in_flight_is_decided_upon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "_is_in_flight", lambda _self, _entry: False)


def the_pointer_moves_past_a_shard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NameIndex, "pointer", property(lambda self: max(self._pointers)))


def the_pointer_moves_past_an_open_attempt(patch: pytest.MonkeyPatch) -> None:
    real = Names.begin_aside

    def begin_aside(self: Names, records: Iterable[HeldMessage | DeadMessage]) -> None:
        real(self, records)
        self._in_flight = dict.fromkeys(self._in_flight, 1 << 62)

    patch.setattr(Names, "begin_aside", begin_aside)


def a_shard_lacks_its_last_name(patch: pytest.MonkeyPatch) -> None:
    real = NameIndex.shard

    def shard(self: NameIndex, number: int) -> object:
        whole = real(self, number)
        return whole._replace(entries=whole.entries[:-44])

    patch.setattr(NameIndex, "shard", shard)


def a_shard_does_not_say_what_is_decided(patch: pytest.MonkeyPatch) -> None:
    real = NameRecords.take

    def take(self: NameRecords, entry: NamesEntry | ShardEntry) -> None:
        real(self, ShardEntry(0, entry.shard) if isinstance(entry, ShardEntry) else entry)

    patch.setattr(NameRecords, "take", take)


def no_names_are_said_to_be_clear_too_early(patch: pytest.MonkeyPatch) -> None:
    real = Names.rest
    patch.setattr(Names, "rest", lambda self, _low: real(self, 1 << 62))


def an_aborted_admission_is_lost(patch: pytest.MonkeyPatch) -> None:
    real = Names.put_back

    def put_back(self: Names, batch: Batch) -> None:
        batch.decisions = []
        real(self, batch)

    patch.setattr(Names, "put_back", put_back)


def deferred_records_hold_nothing_back(patch: pytest.MonkeyPatch) -> None:
    real = Deferred.add

    def add(self: Deferred, record: Any) -> None:
        real(self, record)
        self.gate = (1 << 62, -1)

    patch.setattr(Deferred, "add", add)


def a_refused_message_is_dropped_by_a_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "was_refused", lambda _self, _message: False)


def a_superseded_message_is_still_known(patch: pytest.MonkeyPatch) -> None:
    real = HotWindow._place

    def place(self: HotWindow, message: HeldMessage, now_ms: int) -> bool:
        if not self._names.is_superseded(message) and self._matching.find(message) is not None:
            return False
        return real(self, message, now_ms)

    patch.setattr(HotWindow, "_place", place)


def a_message_in_the_parked_log_is_still_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Matching, "forget_done", lambda _self, _id, _due_ms: None)


def an_older_checkpoint_knows_no_names(patch: pytest.MonkeyPatch) -> None:
    real = Names.__init__

    def init(self: Names, place: Any, found: Any, pointer: int | None, *args: Any) -> None:
        is_older = found.below and pointer is not None
        real(self, place, found, None if is_older and not found.index.count else pointer, *args)

    patch.setattr(Names, "__init__", init)


def letters_are_not_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionState, "take_letters", lambda self, *room: self.letters.take(*room))


PLANTED: list[Plant] = [
    a_drained_copy_is_not_dropped,
    superseded_only_from("_Queue.take", "Parked.take_to_file"),
    superseded_only_from("Ready._admitted_letters", "Letters.take"),
    superseded_only_from("Ready._admitted_resolutions", "HotWindow._answer"),
    superseded_only_from("Names.drops"),
    a_replay_decides_again,
    a_side_transaction_is_forgotten_after_a_shard,
    a_side_transaction_removes_nothing,
    a_delivery_removes_nothing,
    a_name_stays_taken_after_its_message_is_dead,
    what_is_not_admitted_is_filed_and_tried,
    what_is_not_admitted_fires,
    what_is_in_flight_is_decided_upon,
    the_pointer_moves_past_a_shard,
    the_pointer_moves_past_an_open_attempt,
    a_shard_lacks_its_last_name,
    a_shard_does_not_say_what_is_decided,
    no_names_are_said_to_be_clear_too_early,
    an_aborted_admission_is_lost,
    deferred_records_hold_nothing_back,
    a_refused_message_is_dropped_by_a_replay,
    a_superseded_message_is_still_known,
    a_message_in_the_parked_log_is_still_known,
    an_older_checkpoint_knows_no_names,
    letters_are_not_in_flight,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in PLANTED_SEEDS:
        try:
            run(seed)
        except (AssertionError, ValueError, KeyError, IndexError):
            return
    raise AssertionError("not found")
