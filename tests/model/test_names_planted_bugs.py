"""Faults planted in the names: the model must find each of them."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tarry.core.batch import Batch
from tarry.core.message import DeadMessage, HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.name_index import NameEntry, NameIndex, Shard
from tarry.core.progress.name_records import NameRecords, NamesEntry, ShardEntry
from tarry.core.request.occurrence import Occurrence
from tarry.core.request.request import Rejection
from tarry.core.window import names
from tarry.core.window.arrivals import Arrivals
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.matching import Matching
from tarry.core.window.names import Names, NameVerdict
from tarry.headers import id_bytes
from tests.support.named_owner import run


@pytest.fixture(autouse=True)
def shards_are_due_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write shards as often as with many names."""
    monkeypatch.setattr(names, "LEAST_DEBT_BYTES", 300)


Plant = Callable[[pytest.MonkeyPatch], None]


def superseded_only_from(*callers: str) -> Plant:
    """Copies are not recognised as superseded where one of some functions asks."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = Names.is_superseded

        def is_superseded(self: Names, message: HeldMessage | DeadMessage) -> bool:
            frame = sys._getframe(1)
            return frame.f_code.co_qualname not in callers and real(self, message)

        patch.setattr(Names, "is_superseded", is_superseded)

    plant.__name__ = f"not superseded for {' and '.join(callers)}"
    return plant


def a_drained_copy_is_not_dropped(patch: pytest.MonkeyPatch) -> None:
    everywhere = (
        "LevelRecords._place",
        "HotWindow._place",
        "Names.drop_first_if_superseded",
        "Placing.take_to_file",
        "_Queue.take",
    )
    superseded_only_from(*everywhere)(patch)


def a_replay_decides_again(patch: pytest.MonkeyPatch) -> None:
    real = Names.__init__

    def init(self: Names, *args: Any) -> None:
        real(self, *args)
        self.decided_below = 0

    patch.setattr(Names, "__init__", init)


def a_side_transaction_is_forgotten_after_a_shard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NameRecords, "index", property(lambda self: self._index))


def a_side_transaction_removes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "journal_of_side", lambda _self, _records, _batch=None: [])


def a_delivery_removes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "_current", lambda _self, _records, _batch=None: iter(()))


def a_name_stays_taken_after_its_message_is_dead(patch: pytest.MonkeyPatch) -> None:
    real = Names._current

    def current(
        self: Names, records: Iterable[HeldMessage | DeadMessage], batch: Batch | None = None
    ) -> Iterator[tuple[bytes, int]]:
        return real(self, [record for record in records if not isinstance(record, DeadMessage)], batch)

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
    real = Names.begin_side

    def begin_side(self: Names, records: Iterable[HeldMessage | DeadMessage]) -> None:
        real(self, records)
        self._in_flight = dict.fromkeys(self._in_flight, 1 << 62)

    patch.setattr(Names, "begin_side", begin_side)


def a_shard_lacks_its_last_name(patch: pytest.MonkeyPatch) -> None:
    real = NameIndex.shard

    def shard(self: NameIndex, number: int) -> Shard:
        whole = real(self, number)
        return whole._replace(entries=whole.entries[:-44])

    patch.setattr(NameIndex, "shard", shard)


def a_shard_does_not_say_what_is_decided(patch: pytest.MonkeyPatch) -> None:
    real = NameRecords.take

    def take(self: NameRecords, entry: NamesEntry | ShardEntry) -> None:
        real(self, ShardEntry(0, entry.shard) if isinstance(entry, ShardEntry) else entry)

    patch.setattr(NameRecords, "take", take)


def an_aborted_admission_is_lost(patch: pytest.MonkeyPatch) -> None:
    real = Names.put_back

    def put_back(self: Names, batch: Batch) -> None:
        batch.decisions = []
        real(self, batch)

    patch.setattr(Names, "put_back", put_back)


def a_refused_message_is_dropped_by_a_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Names, "rejected_name", lambda _self, _offset: None)


def a_rejected_record_is_not_decided(patch: pytest.MonkeyPatch) -> None:
    def accept_other(self: Arrivals, request: Any, offset: int, *record: Any) -> None:
        _, key, value, headers, *_ = record
        self._reject(offset, key, value, headers, request)

    real = Arrivals._accept_other
    patch.setattr(
        Arrivals,
        "_accept_other",
        lambda self, request, *record: (accept_other if type(request) is Rejection else real)(self, request, *record),
    )


def what_was_delivered_is_not_known_when_it_comes_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HotWindow, "has_delivered", lambda _self, _message: False)


def a_superseded_message_is_still_known(patch: pytest.MonkeyPatch) -> None:
    real = HotWindow._place

    def place(self: HotWindow, message: HeldMessage, now_ms: int) -> bool:
        if not self._names.is_superseded(message) and self._matching.find(message) is not None:
            return False
        return real(self, message, now_ms)

    patch.setattr(HotWindow, "_place", place)
    patch.setattr(HotWindow, "recall", lambda _self, _superseded: None)


def a_message_in_the_parked_log_is_still_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Matching, "forget_done", lambda _self, _id, _due_ms: None)


def letters_are_not_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionState, "take_letters", lambda self, *room: self.letters.take(*room))


PLANTED: list[Plant] = [
    a_drained_copy_is_not_dropped,
    superseded_only_from("_Queue.take", "Parked.take_to_file"),
    superseded_only_from("Ready._admitted_letters", "Letters.take"),
    superseded_only_from("Ready._admitted_resolutions", "HotWindow._answer"),
    superseded_only_from("Names.drop_first_if_superseded"),
    a_replay_decides_again,
    a_side_transaction_removes_nothing,
    a_delivery_removes_nothing,
    a_name_stays_taken_after_its_message_is_dead,
    what_is_not_admitted_is_filed_and_tried,
    what_is_not_admitted_fires,
    what_is_in_flight_is_decided_upon,
    the_pointer_moves_past_a_shard,
    a_shard_lacks_its_last_name,
    an_aborted_admission_is_lost,
    a_refused_message_is_dropped_by_a_replay,
    a_rejected_record_is_not_decided,
    what_was_delivered_is_not_known_when_it_comes_again,
    a_superseded_message_is_still_known,
    letters_are_not_in_flight,
]


def a_next_record_is_taken_whatever_waits(patch: pytest.MonkeyPatch) -> None:
    real = Names.decide_next

    def decide_next(self: Names, message: HeldMessage, follows: int) -> NameVerdict:
        entry = self._index.find(message.name or b"")
        if entry is None:
            return real(self, message, follows)
        self._put(message.name or b"", NameEntry(message.sequence, message.due_ms, id_bytes(message.asker)), ())
        return NameVerdict.KEEP

    patch.setattr(Names, "decide_next", decide_next)


def a_next_record_is_never_taken(patch: pytest.MonkeyPatch) -> None:
    real = Names.decide_next
    patch.setattr(Names, "decide_next", lambda self, message, _follows: real(self, message, 1 << 40))


def a_delivery_does_not_say_that_a_schedule_continues(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "continues", lambda _name, _entry: b"")


def a_side_transaction_does_not_say_that_a_schedule_continues(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(names, "continues_in_side", lambda _name, _entry: b"")


def a_shard_brings_back_what_a_side_transaction_has_delivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NameRecords, "_continue_again", lambda _self, _shard: None)


def what_is_missed_is_made_up_for(patch: pytest.MonkeyPatch) -> None:
    real = Occurrence.follower
    patch.setattr(Occurrence, "follower", lambda self, _now_ms, tick_ms: real(self, 0, tick_ms))


def an_aborted_delivery_continues(patch: pytest.MonkeyPatch) -> None:
    real = Batch.reinstate

    def reinstate(self: Batch) -> None:
        followers = self.followers
        real(self)
        self.followers = followers

    patch.setattr(Batch, "reinstate", reinstate)
    settled = Names.settle

    def settle(self: Names, batch: Batch) -> list[bytes]:
        records = settled(self, batch)
        for name, entry in self._settled.continued:
            self._index.put(name, entry)
        return records

    patch.setattr(Names, "settle", settle)


OF_SCHEDULES: list[Plant] = [
    a_next_record_is_taken_whatever_waits,
    a_next_record_is_never_taken,
    a_delivery_does_not_say_that_a_schedule_continues,
    what_is_missed_is_made_up_for,
    an_aborted_delivery_continues,
]

RARE_OF_SCHEDULES: list[Plant] = [
    a_side_transaction_does_not_say_that_a_schedule_continues,
    a_shard_brings_back_what_a_side_transaction_has_delivered,
]


RARE: list[Plant] = [
    a_side_transaction_is_forgotten_after_a_shard,
    the_pointer_moves_past_an_open_attempt,
    a_message_in_the_parked_log_is_still_known,
    a_shard_does_not_say_what_is_decided,
]
"""What shows in one of some hundred courses."""


@pytest.mark.no_cover
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(map(is_faulty, range(1, 61)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", RARE, ids=lambda plant: plant.__name__)
def test_a_planted_fault_that_shows_rarely_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(map(is_faulty, range(1, 2_001)))


@pytest.mark.no_cover
@pytest.mark.parametrize("plant", OF_SCHEDULES, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_schedules_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(is_faulty(seed, 0.4) for seed in range(1, 121))


@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", RARE_OF_SCHEDULES, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_schedules_that_shows_rarely_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(is_faulty(seed, 0.4) for seed in range(1, 2_001))


def is_faulty(seed: int, schedules: float = 0.0) -> bool:
    try:
        run(seed, schedules=schedules)
    except (AssertionError, ValueError, KeyError):
        return True
    return False
