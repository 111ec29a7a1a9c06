"""Parked messages: filed to the parked log head first, read again in order, and known to a take-over by the journal."""

import random
from collections.abc import Callable, Iterable

import pytest

from tarry.core.batch import Batch, FiledRun, Filing
from tarry.core.message import FiledMessage, HeldMessage, HeldPurge
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import (
    DoneEntry,
    Entry,
    ParkedEntry,
    ParkedRow,
    decode_entry,
    encode_done,
    encode_parked,
    encode_ranges,
    whole,
)
from tarry.core.progress.parked_records import ParkedRecords
from tarry.core.progress.source import INTAKE, PARKED, Source
from tarry.core.request.naming import Condition, hash_of
from tarry.core.wheel.filed import filed_headers
from tarry.core.wheel.runs import JOIN
from tarry.core.window.memory import Memory
from tarry.core.window.parked import FILINGS, PARK_AFTER_MS, Parked
from tarry.core.window.parked_log import ParkedLog, TargetLog
from tests.support.naming import no_names

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + PARK_AFTER_MS
SIZE = 1_000


def message(offset: int, target: str = "out", due_ms: int | None = None) -> FiledMessage:
    due = NOW_MS + offset if due_ms is None else due_ms
    made = FiledMessage(due, offset, b"k", bytes(400), None, False, target, -1, b"%036d" % offset)
    made.source, made.offset = INTAKE, offset
    return made


class Shelf:
    """Parked messages over a log in memory, and the journal that tells of it."""

    def __init__(self) -> None:
        self.records: dict[int, HeldMessage] = {}
        self.start = self.end = 0
        self.journal: list[Entry] = []
        self.let_go: list[int] = []
        self.passed = 0
        """How many offsets were read, or read over."""
        self.take_over()

    def take_over(self) -> None:
        found = self.found()
        self.log = ParkedLog(found.found, (self.start, self.end), 0, len(self.journal))
        self.memory = Memory()
        self.names = no_names(self.memory)
        self.parked = Parked(
            self.memory, lambda gone: self.let_go.extend(one.sequence for one in gone), self.log, self.names
        )

    def found(self) -> ParkedRecords:
        """What the journal says."""
        found = ParkedRecords()
        for entry in self.journal:
            assert isinstance(entry, DoneEntry | ParkedEntry)
            found.take(entry)
        return found

    def park(self, *offsets: int, target: str = "out") -> None:
        for offset in offsets:
            self.parked.park(message(offset, target))

    def take_to_file(self, now_ms: int = LATER_MS, limit: int = 100, limit_bytes: int = 1 << 40) -> Filing:
        filing = Filing(self.parked.take_to_file(limit, now_ms, limit_bytes))
        if filing:
            self.log.begin_filing()
        return filing

    def commit(self, filing: Filing) -> None:
        for one, source in filing.records:
            self.records[self.end] = one
            filing.runs.append(FiledRun(source, self.end, self.end + 1, 1))
            self.end += 1
        self.end += 1
        self.journal.append(decode_entry(encode_parked(self.log.entry(filing.runs))))
        for run in filing.runs:
            self.log.filed(run)
        self.log.end_filing()
        self.parked.filed(filing.parked)

    def file(self, now_ms: int = LATER_MS, limit: int = 100) -> list[int]:
        filing = self.take_to_file(now_ms, limit)
        if filing:
            self.commit(filing)
        return [one.sequence for one, _ in filing.records]

    def read(
        self,
        target: str = "out",
        limit_bytes: int = 1 << 40,
        missing: int = 0,
        meanwhile: Callable[[int], None] = lambda _position: None,
    ) -> list[int]:
        """Read the next messages of a target; `meanwhile` is called between any two offsets."""
        wanted = self.parked.wanted(target, limit_bytes)
        if wanted is None:
            return []
        while not wanted.is_complete:
            meanwhile(wanted.position)
            if (one := self.records.get(wanted.position)) is None:
                wanted.reach(next((at for at in sorted(self.records) if at > wanted.position), self.end))
            else:
                headers = filed_headers(one)
                wanted.accept(wanted.position, one.key, one.value, headers)  # type: ignore[arg-type]  # all are bytes
        self.passed += wanted.position - wanted.start
        assert self.parked.restore(wanted) == missing
        return [one.sequence for one in wanted.messages]

    def deliver(self, target: str = "out", limit: int = 100, now_ms: int = LATER_MS) -> list[int]:
        batch = self.parked.take(target, limit, now_ms)
        self.done(batch)
        self.parked.end_try()
        return sequences(batch.due)

    def done(self, batch: Batch) -> None:
        offsets = {source: of for source, of in batch.offsets().items() if source.level == PARKED}
        for source, of in offsets.items():
            self.log.mark(source, of)
        self.log.make_final()
        self.journal.append(decode_entry(encode_done(offsets)))

    def deliver_all(self, target: str = "out") -> list[int]:
        found: list[int] = []
        while target in self.parked:
            self.read(target)
            found += self.deliver(target, limit=2)
        return found

    def sum_up(self) -> None:
        self.log.sum_up(0)
        records = [*map(encode_parked, self.log.summary()), *encode_ranges(self.log.done_ranges(), 10)]
        self.journal += map(decode_entry, records)


def sequences(messages: Iterable[HeldMessage]) -> list[int]:
    return [one.sequence for one in messages]


def test_a_target_of_which_only_superseded_messages_are_parked_is_forgotten() -> None:
    shelf = Shelf()
    one = message(0)
    one.name = b"h" * 16  # no message waits under this name
    shelf.parked.park(one)
    assert list(shelf.parked.targets) == ["out"]
    assert not shelf.parked.take("out", 100, LATER_MS)
    assert list(shelf.parked.targets) == []


# -- filing -----------------------------------------------------------------------------------------------------------


def test_a_message_is_filed_once_it_was_parked_for_long_and_not_more_often_than_that_needs() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 5_000)
    assert not shelf.parked.has_to_file(LATER_MS - 1)
    assert shelf.parked.has_to_file(LATER_MS)
    assert shelf.file(LATER_MS + 1) == [0, 1]
    later_ms = LATER_MS + 1 + PARK_AFTER_MS // FILINGS
    assert not shelf.parked.has_to_file(later_ms - 1)
    assert shelf.file(later_ms) == [5_000]
    assert (shelf.let_go, len(shelf.parked), shelf.parked.by_target()) == ([0, 1, 5_000], 0, {"out": 3})


def test_what_exceeds_its_share_of_memory_is_filed_at_once_the_largest_queue_first() -> None:
    shelf = Shelf()
    shelf.park(0, target="small")
    shelf.park(1, 2, 3)
    size = message(0).size_bytes
    shelf.parked.limit_bytes = 2 * size
    assert shelf.file(NOW_MS) == [1, 2]
    assert not shelf.parked.has_to_file(NOW_MS)


def test_a_filing_is_bounded_in_messages_and_bytes_and_the_next_one_goes_on_at_once() -> None:
    shelf = Shelf()
    shelf.park(*range(6))
    assert shelf.file(LATER_MS + 10, limit=2) == [0, 1]
    filing = shelf.take_to_file(LATER_MS + 10, limit_bytes=1)
    assert sequences(filing.parked) == [2]
    shelf.commit(filing)
    assert shelf.file(LATER_MS + 10) == [3, 4, 5]


def test_nothing_is_filed_while_a_transaction_tries_to_deliver_some() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    tried = shelf.parked.take("out", 1, LATER_MS + 10)
    assert not shelf.parked.has_to_file(LATER_MS + 10)
    assert not shelf.take_to_file(LATER_MS + 10)
    shelf.parked.park_again("out", tried)
    assert shelf.file(LATER_MS + 10) == [0, 1, 2]


def test_messages_that_came_late_are_put_back_in_the_order_of_the_log_and_none_is_lost_when_they_are_left() -> None:
    shelf = Shelf()
    shelf.park(10)
    shelf.file(LATER_MS + 10)
    shelf.parked.park(message(20, due_ms=NOW_MS - 60_000))
    shelf.file(LATER_MS + PARK_AFTER_MS)
    shelf.read()
    tried = shelf.parked.take("out", 10, LATER_MS)
    assert sequences(tried.due) == [10, 20]
    shelf.parked.park_again("out", tried)
    shelf.parked.leave("out")
    assert (shelf.log.low, shelf.parked.by_target()) == (0, {"out": 2})
    assert shelf.deliver_all() == [10, 20]


def test_what_is_read_behind_the_last_message_that_memory_has_room_for_is_read_again() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    shelf.file(LATER_MS + 10)
    wanted = shelf.parked.wanted("out", 1)
    assert wanted is not None
    for offset, one in shelf.records.items():  # as one fetch brings them
        wanted.accept(offset, one.key, one.value, filed_headers(one))  # type: ignore[arg-type]  # all are bytes
    wanted.reach(shelf.end)
    assert shelf.parked.restore(wanted) == 0
    assert shelf.deliver() == [0]
    assert shelf.read() == [1, 2]


def test_what_a_take_over_found_done_behind_a_message_that_is_held_stays_done_through_a_summary() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    shelf.file(LATER_MS + 10)
    shelf.read()
    shelf.done(Batch(shelf.parked.take("out", 10, LATER_MS).due[1:2]))  # 0 and 2 are not delivered
    shelf.take_over()
    assert shelf.read() == [0, 2]
    shelf.sum_up()
    shelf.take_over()
    assert shelf.parked.by_target() == {"out": 2}
    assert shelf.read(limit_bytes=1) == [0]
    assert shelf.deliver() == [0]
    assert shelf.deliver_all() == [2]
    shelf.take_over()
    assert shelf.parked.by_target() == {}


def test_a_message_that_is_done_between_messages_that_are_read_again_is_not_read_again() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    shelf.file(LATER_MS + 10)
    shelf.read()
    tried = shelf.parked.take("out", 10, LATER_MS)
    letter = tried.due.pop(1)  # it is too large for the batch, and has a transaction of its own
    shelf.parked.park_again("out", tried)
    shelf.parked.leave("out")
    shelf.log.mark(letter.source, [letter.offset])
    shelf.log.make_final()
    assert shelf.log.low == 0
    shelf.sum_up()
    assert shelf.parked.by_target() == {"out": 2}
    assert shelf.deliver_all() == [0, 2]
    shelf.take_over()
    assert not shelf.parked


def purge(offset: int, due_ms: int, target: str = "out") -> HeldPurge:
    return HeldPurge(due_ms, offset, None, None, None, False, target, -1, b"%036d" % offset)


def purged(shelf: Shelf, target: str = "out", limit: int = 100) -> Batch:
    batch = shelf.parked.take_purged(target, limit)
    shelf.done(batch)
    shelf.parked.end_try()
    return batch


def letters(batch: Batch) -> list[tuple[int, str]]:
    return [(dead.sequence, dead.code) for dead in batch.dead]


def answers(batch: Batch) -> list[tuple[str, int]]:
    return [(one.outcome, one.message.sequence) for one in batch.resolutions]


def test_a_purge_takes_what_is_before_it_in_the_log_and_in_memory_and_nothing_else() -> None:
    shelf = Shelf()
    shelf.park(0, 1)
    shelf.park(2, target="other")
    shelf.file(LATER_MS + 10)
    shelf.park(3, 4, 5)
    assert shelf.parked.purge(purge(9, NOW_MS + 4))
    assert shelf.parked.purged == ["out"]
    assert not purged(shelf), "the first ones are in the log"
    assert shelf.read() == [0, 1]
    assert letters(purged(shelf, limit=1)) == [(0, "purged")]
    assert letters(purged(shelf)) == [(1, "purged"), (3, "purged"), (4, "purged")]
    last = purged(shelf)
    assert (letters(last), answers(last)) == ([], [("purged", 9)])
    assert (shelf.parked.purged, shelf.parked.by_target()) == ([], {"out": 1, "other": 1})


def test_an_aborted_purge_is_put_back_with_its_messages() -> None:
    shelf = Shelf()
    shelf.park(0)
    shelf.parked.purge(purge(8, NOW_MS + 1))
    shelf.parked.purge(purge(9, NOW_MS + 1))
    for _ in range(2):
        tried = shelf.parked.take_purged("out", 10)
        assert letters(tried) == [(0, "purged")]
        shelf.parked.park_again("out", tried)
    assert letters(purged(shelf)) == [(0, "purged")]
    shelf.parked.park_again("out", shelf.parked.take_purged("out", 10))
    assert [answers(purged(shelf)) for _ in range(2)] == [[("purged", 8)], [("purged", 9)]]
    assert not shelf.parked


def test_a_purge_waits_for_what_is_being_filed_and_for_a_try() -> None:
    shelf = Shelf()
    shelf.park(0, 1)
    shelf.parked.purge(purge(9, NOW_MS + 1))
    filing = shelf.take_to_file(LATER_MS + 10)
    assert not shelf.parked.take_purged("out", 10)
    shelf.commit(filing)
    assert not shelf.parked.take_purged("out", 10)
    shelf.read()
    shelf.parked.leave("out")
    assert letters(purged(shelf)) == [(0, "purged"), (1, "purged")], "what is read for a purge is not dropped"


def test_no_purge_waits_for_a_target_that_has_nothing_parked() -> None:
    shelf = Shelf()
    shelf.park(0, target="other")
    assert not shelf.parked.purge(purge(9, NOW_MS))
    assert not shelf.parked.take_purged("out", 10)
    assert not shelf.parked.take_purged("other", 10)


def test_a_purge_is_not_done_before_a_message_in_front_of_it_that_must_not_be_tried_yet() -> None:
    shelf, named = Shelf(), message(5)
    named.name = hash_of(b"k", b"n")
    shelf.names.decide(named, Condition.ALWAYS)
    shelf.parked.park(named)
    assert shelf.parked.purge(purge(9, NOW_MS + 9))
    assert not shelf.parked.take_purged("out", 10), "the decision on it is not committed"
    commit_decisions(shelf)
    assert letters(purged(shelf)) == [(5, "purged")]


def commit_decisions(shelf: Shelf) -> None:
    batch = Batch()
    shelf.names.take(batch, 100, 1 << 40)
    shelf.names.settle(batch)
    shelf.names.confirm(batch)


def test_nothing_is_delivered_that_stands_behind_what_is_being_filed() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 20_000)
    filing = shelf.take_to_file(LATER_MS + 10)
    assert sequences(filing.parked) == [0, 1]
    assert shelf.deliver() == []
    assert "out" in shelf.parked
    shelf.log.end_filing()
    shelf.parked.put_back_filed(filing.parked, ())
    assert shelf.deliver(now_ms=NOW_MS + 50_000) == [0, 1, 20_000]


def test_a_message_that_the_log_refuses_is_not_put_back_and_all_others_are_filed() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    filing = shelf.take_to_file(LATER_MS + 10)
    shelf.log.end_filing()
    shelf.parked.put_back_filed(filing.parked, {1})
    assert shelf.file(LATER_MS + 10) == [0, 2]
    assert shelf.deliver_all() == [0, 2]
    assert not shelf.parked


def test_a_message_that_came_late_holds_up_no_filing() -> None:
    shelf = Shelf()
    shelf.park(10, 20)
    shelf.file(LATER_MS + 50)
    shelf.parked.park(message(30, due_ms=NOW_MS - 5))
    shelf.park(40, 50)
    assert shelf.file(LATER_MS + 100_000) == [30, 40, 50]
    assert sorted(shelf.deliver_all()) == [10, 20, 30, 40, 50]


# -- order ------------------------------------------------------------------------------------------------------------


def test_what_is_in_the_log_comes_before_what_was_parked_since() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2, 3)
    shelf.file(LATER_MS + 10, limit=3)
    shelf.park(4)
    assert shelf.deliver() == [], "it must be read first"
    assert shelf.read(limit_bytes=SIZE) == [0, 1]
    assert shelf.read() == [], "what was read comes first"
    assert shelf.deliver() == [0, 1]
    assert shelf.deliver_all() == [2, 3, 4]
    assert not shelf.parked
    assert shelf.log.low == shelf.end - 1, "all but the last marker may be trimmed"


def test_a_new_owner_deletes_nothing_before_its_first_commit() -> None:
    shelf = Shelf()
    shelf.end = 7  # of another process, which has filed them since the journal was read
    shelf.take_over()
    assert (shelf.log.low, shelf.log.committed_low) == (7, 0)
    shelf.log.note()
    assert shelf.log.committed_low == 7


def test_a_batch_that_is_put_back_is_the_next_one_again() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2, 3)
    shelf.file(LATER_MS + 10, limit=2)
    shelf.read()
    tried = shelf.parked.take("out", 3, LATER_MS)
    assert sequences(tried.due) == [0, 1, 2], "of the log, and of memory"
    tried.give_up({1: ("too-large", "")})
    shelf.parked.park_again("out", tried)
    assert shelf.deliver_all() == [0, 1, 2, 3]


def test_a_message_in_memory_is_delivered_before_those_in_the_log_that_are_due_later() -> None:
    shelf = Shelf()
    shelf.park(10, 20, 30)
    shelf.file(LATER_MS + 50)
    shelf.parked.park(message(40, due_ms=NOW_MS + 15))
    shelf.parked.park(message(41, due_ms=NOW_MS + 35))
    assert shelf.deliver_all() == [10, 40, 20, 30, 41]


def test_what_was_read_is_dropped_if_the_target_is_still_away_and_read_again_later() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2, 3, 4)
    shelf.file(LATER_MS + 10, limit=4)
    for limit_bytes in (SIZE, 1 << 40):
        shelf.read(limit_bytes=limit_bytes)
        tried = shelf.parked.take("out", 1, LATER_MS)
        shelf.parked.leave("out")
        assert len(shelf.parked) > 1, "not while some are tried"
        shelf.parked.park_again("out", tried)
        shelf.parked.leave("out")
        assert (len(shelf.parked), shelf.memory.held_bytes, shelf.parked.by_target()) == (1, 0, {"out": 5})
    assert shelf.deliver_all() == [0, 1, 2, 3, 4]


def test_a_dead_letter_of_a_message_that_was_read_is_not_read_again_with_the_others() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    shelf.file(LATER_MS + 10)
    shelf.read()
    tried = shelf.parked.take("out", 3, LATER_MS)
    letter = tried.due.pop(1)
    shelf.parked.park_again("out", tried)
    shelf.parked.leave("out")
    assert shelf.read() == [0, 2]
    shelf.done(Batch([letter]))
    assert shelf.log.low == 0
    assert shelf.deliver_all() == [0, 2]
    assert not shelf.parked


def test_a_target_that_is_over_since_a_try_was_aborted_stops_no_other_from_being_done() -> None:
    shelf = Shelf()
    shelf.park(0)
    shelf.park(1, target="other")
    shelf.file(LATER_MS + 10)
    shelf.read()
    shelf.read("other")
    tried = shelf.parked.take("out", 1, LATER_MS)
    source = tried.due[0].source
    shelf.log.mark(source, [tried.due[0].offset])
    shelf.log.unmark(source, [tried.due[0].offset])
    shelf.parked.park_again("out", tried)
    shelf.parked.leave("out")
    shelf.records = {offset: one for offset, one in shelf.records.items() if one.target == "other"}  # deleted by others
    assert shelf.read(missing=1) == []
    assert shelf.log.of("out") is None
    assert shelf.deliver("other") == [1]
    assert not shelf.parked


def test_nothing_is_taken_that_is_not_due_any_more() -> None:
    shelf = Shelf()
    shelf.park(0, 100)
    shelf.file(LATER_MS + 100)
    shelf.read()
    assert shelf.deliver(now_ms=NOW_MS + 99) == [0]
    assert shelf.deliver(now_ms=NOW_MS + 100) == [100]


# -- take-overs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sums_up", [False, True])
def test_a_take_over_knows_from_the_journal_what_waits_and_reads_only_that(sums_up: bool) -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2, 3)
    shelf.park(4, 5, target="other")
    shelf.file(LATER_MS + 10)
    shelf.read()
    assert shelf.deliver(limit=2) == [0, 1]
    if sums_up:
        shelf.sum_up()
        shelf.journal = shelf.journal[-1:]
    shelf.take_over()
    assert shelf.parked.by_target() == {"out": 2, "other": 2}
    assert shelf.deliver_all("other") == [4, 5]
    assert shelf.deliver_all() == [2, 3]
    shelf.take_over()
    assert not shelf.parked


def test_what_is_done_behind_the_first_that_is_not_stays_done_through_summaries() -> None:
    """As where a dead letter is refused, and its record stays."""
    shelf = Shelf()
    shelf.park(0, 1, 2, 3)
    shelf.file(LATER_MS + 10)
    shelf.read()
    batch = shelf.parked.take("out", 4, LATER_MS)
    batch.due.pop(0)
    shelf.done(batch)
    for _ in range(2):
        shelf.sum_up()
        shelf.journal = shelf.journal[-2:]
        shelf.take_over()
        assert shelf.parked.by_target() == {"out": 1}
    assert shelf.deliver_all() == [0]
    assert shelf.log.pointer is None


def test_a_target_that_comes_again_is_told_from_what_was_done_before() -> None:
    shelf = Shelf()
    for first in (0, 10):
        shelf.park(first, first + 1)
        shelf.file(LATER_MS + 20_000 * first + 10)
        assert shelf.deliver_all() == [first, first + 1]
        shelf.take_over()
        assert not shelf.parked
    shelf.park(20)
    shelf.file(LATER_MS + 10**6)
    shelf.take_over()
    assert shelf.deliver_all() == [20]


def test_after_a_take_over_the_log_is_read_to_its_end_so_that_it_can_be_trimmed() -> None:
    shelf = Shelf()
    shelf.park(5)
    shelf.park(6, target="other")
    assert shelf.file(LATER_MS + 10) == [5, 6]
    shelf.take_over()
    read = []
    while "out" in shelf.parked:
        read += shelf.read("out", limit_bytes=1)
        shelf.deliver("out")
    assert read == [5]
    assert shelf.log.of("out") is None


def test_nothing_is_read_behind_the_last_message_of_a_target_while_its_dead_letter_is_under_way() -> None:
    """When that is committed, nothing keeps the log from being trimmed."""
    shelf = Shelf()
    shelf.park(5)
    shelf.park(6, target="other")
    shelf.file(LATER_MS + 10)
    shelf.take_over()
    assert shelf.read(limit_bytes=1) == [5]
    tried = shelf.parked.take("out", 1, LATER_MS)
    letter = tried.due.pop()
    shelf.parked.park_again("out", tried)
    shelf.park(7)
    assert shelf.log.of("out") is not None
    assert shelf.parked.wanted("out", 1) is None
    shelf.done(Batch([letter]))
    assert shelf.log.of("out") is None


def test_after_a_take_over_the_log_is_read_once_for_all_targets_and_not_by_each() -> None:
    shelf = Shelf()
    targets = [f"out-{number}" for number in range(20)]
    sent: dict[str, list[int]] = {target: [] for target in targets}
    for number in range(400):
        target = targets[number % 20]
        shelf.park(number, target=target)
        assert shelf.file(LATER_MS + PARK_AFTER_MS * (number + 1)) == [number]
        sent[target].append(number)
        shelf.end += JOIN  # messages of other targets
    shelf.take_over()
    late_ms = LATER_MS + PARK_AFTER_MS * 1_000
    shelf.read(targets[0])
    assert shelf.passed == shelf.end
    for target in targets:
        found = []
        while target in shelf.parked:
            shelf.read(target)
            found += shelf.deliver(target, now_ms=late_ms)
        assert found == sent[target]
    assert shelf.passed < 1.1 * shelf.end


def test_what_is_done_is_not_read_again_where_another_reading_has_passed() -> None:
    shelf = Shelf()
    for number in range(6):
        shelf.park(number, target="out" if number else "other")
        shelf.file(LATER_MS + PARK_AFTER_MS * (number + 1))
        shelf.end += JOIN
    for number in (1, 2, 3):
        assert shelf.read() == [number]
        assert shelf.deliver() == [number]
    shelf.take_over()
    log = shelf.log.of("out")
    assert log is not None
    first = next(offset for offset, one in shelf.records.items() if one.sequence == 4)
    assert log.low < first
    shelf.read("other")
    assert (log.low, log.next_run()) == (first, (first, first + 1))


def test_a_target_of_which_nothing_is_left_in_the_log_is_missed_also_after_another_was_read() -> None:
    shelf = Shelf()
    for number, target in enumerate(("out", "gone", "out")):
        shelf.park(number, target=target)
        shelf.file(LATER_MS + PARK_AFTER_MS * (number + 1))
    del shelf.records[2]  # somebody has deleted it
    shelf.take_over()
    assert shelf.read("out") == [0, 2]
    assert shelf.parked.by_target() == {"out": 2, "gone": 1}
    assert shelf.read("gone", missing=1) == []
    assert list(shelf.parked.targets) == ["out"]


def test_what_a_target_left_while_another_was_read_is_read_again() -> None:
    shelf = Shelf()
    for number, target in enumerate(("other", "out", "out", "other", "out")):
        shelf.park(number, target=target)
        shelf.file(LATER_MS + PARK_AFTER_MS * (number + 1))
    shelf.take_over()
    assert shelf.read("out", limit_bytes=2 * SIZE) == [1, 2, 4]

    def leave(position: int) -> None:
        if position == 7:  # the others' records that are held then were passed
            shelf.parked.leave("out")

    assert shelf.read("other", meanwhile=leave) == [0, 3]
    assert shelf.parked.by_target() == {"out": 3, "other": 2}
    assert shelf.deliver_all("out") == [1, 2, 4]
    assert shelf.deliver_all("other") == [0, 3]
    shelf.take_over()
    assert not shelf.parked


@pytest.mark.parametrize("case", range(60))
def test_whatever_is_read_of_whom_in_which_order_each_target_gets_all_of_its_messages_in_order(
    case: int, seed: int
) -> None:
    choose = random.Random(f"{seed} {case}")
    shelf = Shelf()
    targets = [f"out-{number}" for number in range(choose.randint(1, 5))]
    sent: dict[str, list[int]] = {target: [] for target in targets}
    found: dict[str, list[int]] = {target: [] for target in targets}
    now_ms, number = LATER_MS, 0
    deliver_ms = LATER_MS + PARK_AFTER_MS * 10_000

    def file() -> None:
        nonlocal now_ms, number
        for _ in range(choose.randint(1, 6)):
            target = choose.choice(targets)
            shelf.park(number, target=target)
            sent[target].append(number)
            number += 1
        now_ms += PARK_AFTER_MS
        shelf.file(now_ms)
        shelf.end += choose.choice((0, 0, 3 * JOIN))

    def read() -> None:
        def go_on(_: int) -> None:
            if choose.random() < share:
                choose.choice((file, deliver, leave))()

        share = choose.choice((0, 0.1, 0.3))
        shelf.read(choose.choice(targets), choose.choice((1, 3 * SIZE, 1 << 40)), meanwhile=go_on)

    def leave() -> None:
        shelf.parked.leave(choose.choice(targets))

    def deliver() -> None:
        target = choose.choice(targets)
        found[target] += shelf.deliver(target, choose.choice((1, 2, 100)), deliver_ms)

    for _ in range(60):
        steps = (file, file, read, read, read, deliver, deliver, leave)
        choose.choice(steps)()
        if choose.random() < 0.15:
            filed = {one.sequence for one in shelf.records.values()}
            for target in targets:  # what is not in the log comes again from where it was
                sent[target] = [one for one in sent[target] if one in filed]
            shelf.take_over()
    for target in targets:
        for _ in range(1_000):
            if target not in shelf.parked:
                break
            shelf.read(target, choose.choice((1, 1 << 40)))
            found[target] += shelf.deliver(target, 100, deliver_ms)
    assert found == sent
    assert number > 5


def test_messages_that_are_not_in_the_log_any_more_are_counted() -> None:
    shelf = Shelf()
    shelf.park(0, 1, 2)
    shelf.file(LATER_MS + 10)
    wanted = shelf.parked.wanted("out", 1 << 40)
    assert wanted is not None
    one = shelf.records[0]
    wanted.accept(0, one.key, one.value, filed_headers(one))  # type: ignore[arg-type]  # all are bytes
    wanted.reach(wanted.end)
    assert shelf.parked.restore(wanted) == 2


def test_the_pointer_stays_before_the_records_of_a_filing_until_all_it_filed_is_done() -> None:
    shelf = Shelf()
    shelf.log.note_journal_end(30)
    assert shelf.log.pointer is None
    shelf.park(0)
    filing = shelf.take_to_file(LATER_MS + 10)
    shelf.log.note_journal_end(40)
    pointers = [shelf.log.pointer]
    shelf.commit(filing)
    shelf.log.note_journal_end(50)
    pointers.append(shelf.log.pointer)
    shelf.log.sum_up(50)
    pointers.append(shelf.log.pointer)
    shelf.deliver_all()
    assert [*pointers, shelf.log.pointer] == [30, 30, 50, None], "its record may be at 30 or later"


def test_runs_far_from_each_other_are_read_one_by_one() -> None:
    shelf = Shelf()
    shelf.park(0)
    shelf.file(LATER_MS + 10)
    shelf.end += 5_000
    shelf.park(1)
    shelf.file(LATER_MS + 20_000)
    wanted = shelf.parked.wanted("out", 1 << 40)
    assert wanted is not None
    assert (wanted.start, wanted.end) == (0, 1)
    assert shelf.deliver_all() == [0, 1]


# -- the journal's records --------------------------------------------------------------------------------------------

ROW = ParkedRow(3, 40, 5, "out.a-b_c")


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("rows", [[], [ROW], [ROW, ROW._replace(number=4, target="x")]])
def test_a_parked_record_is_read_as_it_was_written(rows: list[ParkedRow], is_whole: bool) -> None:
    entry = ParkedEntry(rows, is_whole)
    assert decode_entry(encode_parked(entry)) == entry


@pytest.mark.parametrize("record", [b"P\x01", b"P\x01?", b"P\x01+1 2 3", b"P\x01+a 0 1 x", b"P\x01+\xff"])
def test_what_is_no_parked_record_is_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_entry(record)


def test_a_summary_of_many_targets_is_split_and_only_its_first_record_begins_anew() -> None:
    rows = [ROW._replace(number=number, target=f"t{number}") for number in range(2_500)]
    found = ParkedRecords()
    found.take(ParkedEntry([ROW._replace(number=9_999, target="gone")]))
    entries = list(whole(rows))
    assert [entry.is_whole for entry in entries] == [True, False, False]
    for entry in entries:
        found.take(entry)
    assert [one.row for one in found.found.values()] == rows


def test_a_number_that_another_target_has_now_stands_for_that_target_alone() -> None:
    found = ParkedRecords()
    found.take(ParkedEntry([ROW]))
    other = ROW._replace(target="other", first=ROW.first + 100, messages=2)
    found.take(ParkedEntry([other]))
    assert [one.row for one in found.found.values()] == [other]
    assert list(found.by_target()) == ["other"]


def test_messages_that_somebody_deleted_are_missed_once_and_refuse_no_take_over() -> None:
    shelf = Shelf()
    shelf.park(*range(10))
    assert shelf.file(LATER_MS + 10) == list(range(10))
    shelf.start = 7
    shelf.take_over()
    shelf.sum_up()
    assert shelf.found().reached <= shelf.end, "a take-over believes that records of the log are lost"
    shelf.take_over()
    assert shelf.read(missing=shelf.parked.by_target()["out"] - 3) == [7, 8, 9]
    assert shelf.parked.by_target() == {"out": 3}
    shelf.sum_up()
    assert shelf.found().reached <= shelf.end
    shelf.take_over()
    assert shelf.read() == [7, 8, 9]
    assert shelf.deliver() == [7, 8, 9]
    assert not shelf.parked


def test_filings_that_are_near_each_other_in_the_log_are_read_as_one_run_and_others_are_not() -> None:
    log = TargetLog("out", 1, 0)
    log.add(10, 20, 10)
    log.add(20 + JOIN, 30 + JOIN, 10)
    assert log.next_run() == (10, 30 + JOIN)
    log.add(31 + 2 * JOIN, 40 + 2 * JOIN, 9)
    assert log.next_run() == (10, 30 + JOIN)
    log.reach(30 + JOIN)
    assert log.next_run() == (31 + 2 * JOIN, 40 + 2 * JOIN)


def test_the_log_must_have_reached_the_last_message_of_any_target() -> None:
    found = ParkedRecords()
    assert found.reached == 0
    found.take(ParkedEntry([ROW, ROW._replace(number=4, target="other", first=90, messages=7)]))
    assert found.reached == 97


def test_a_filing_says_how_far_the_log_reaches_with_all_its_messages() -> None:
    found = ParkedRecords()
    found.take(ParkedEntry([ROW, ROW._replace(number=4, target="other", first=45, messages=7)]))
    assert found.reached == 52
    found.take(DoneEntry({Source(PARKED, 3): [(40, 45)], Source(PARKED, 4): [(45, 52)]}))
    assert (dict(found.found), found.reached) == ({}, 52), "also when all of them are done"
    found.take(ParkedEntry([ROW], is_whole=True))
    assert found.reached == 52


def test_a_done_record_below_the_first_offset_takes_nothing_away() -> None:
    """It is of messages that were done while these were filed."""
    found = ParkedRecords()
    found.take(ParkedEntry([ROW]))
    found.take(DoneEntry({Source(PARKED, 3): [(30, 41)], Source(PARKED, 4): [(40, 45)], Source(1, 3): [(40, 45)]}))
    assert found.found[3].row.messages == 4
    assert found.reached == 45
    assert [found.by_target()["out.a-b_c"].holds(offset) for offset in (39, 40, 41)] == [False, False, True]
    assert "other" not in found.by_target()


def test_a_message_that_is_missing_where_a_range_had_one_is_looked_for_there_alone() -> None:
    """What is below was done, and nothing tells that any more: it would be delivered again."""
    log = TargetLog("out", 1, 0)
    log.recover(10, 11, 1, DoneSet())
    log.learn(0, 20, [])
    assert (log.next_run(), log.low) == ((10, 11), 10)
