"""Ledger, journal and pointer together against a plain set: whatever order offsets are done in, none is forgotten.

A crash leaves the committed watermark with its pointer, and the journal. What a new owner works out from these must be
all that was done at or above the watermark, and no more; however often that owner crashes as well.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.journal import DoneEntry, Range, decode_entry, encode_done, encode_ranges
from tarry.core.progress.journal_pointer import JournalPointer
from tarry.core.progress.ledger import Ledger
from tarry.core.progress.source import INTAKE, Source

BUCKET = Source(1, 3)


class Journal(RuleBasedStateMachine):
    """A partition that is nothing but offsets."""

    @initialize(first=st.integers(0, 300), journalled=st.integers(0, 5))
    def start(self, first: int, journalled: int) -> None:
        self.done: set[int] = set()
        self.records: dict[int, bytes] = {}
        self.journal_start = self.journal_end = journalled
        self.intake_end = first
        self.intake: list[int] = []
        self.committed = (first, journalled)
        self.take_over()

    def take_over(self) -> None:
        low, pointer = self.committed
        assert self.journal_start <= pointer <= self.journal_end
        ranges: list[Range] = []
        for offset, record in self.records.items():
            if offset >= pointer:
                found = decode_entry(record)
                assert isinstance(found, DoneEntry)
                ranges += found.ranges.get(INTAKE, [])
        self.found = DoneSet(ranges, low)
        # What is no record, a marker, counts as done in a summary.
        assert [o for o in self.intake if o >= low and o in self.found] == sorted(o for o in self.done if o >= low)
        self.ledger = Ledger(low)
        self.pointer = JournalPointer(low, pointer, self.found.end)
        self.held: set[int] = set()

    @rule(many=st.integers(1, 8), gap=st.integers(0, 3))
    def append(self, many: int, gap: int) -> None:
        self.intake_end += gap
        self.intake += range(self.intake_end, self.intake_end + many)
        self.intake_end += many

    @rule(most=st.integers(1, 10))
    def read(self, most: int) -> None:
        for offset in [offset for offset in self.intake if offset >= self.ledger.position][:most]:
            if offset in self.found:
                self.ledger.reach(offset + 1)
            else:
                self.ledger.read(offset)
                self.held.add(offset)

    @rule()
    def read_to_the_end(self) -> None:
        self.read(len(self.intake))
        self.ledger.reach(self.intake_end)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), also=st.lists(st.integers(0, 500), unique=True, max_size=3))
    def commit(self, data: st.DataObject, also: list[int]) -> None:
        self.commit_these(self.choose(data), also)

    @precondition(lambda self: self.held)
    @rule()
    def commit_all_that_is_held(self) -> None:
        self.commit_these(sorted(self.held, reverse=True), [])

    def commit_these(self, offsets: list[int], also: list[int]) -> None:
        self.ledger.mark(offsets)
        low = self.ledger.low
        self.records[self.journal_end] = encode_done({INTAKE: offsets, BUCKET: also})
        self.committed = (low, self.pointer.at(low))
        self.journal_end += 2
        self.ledger.make_final()
        self.pointer.drop_below(low)
        self.held.difference_update(offsets)
        self.done.update(offsets)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        offsets = self.choose(data)
        low = self.ledger.low
        self.ledger.mark(offsets)
        self.journal_end += 2
        self.ledger.unmark(offsets)
        assert self.ledger.low == low

    def choose(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True, min_size=1))

    @rule(asked_before=st.integers(0, 4))
    def note(self, asked_before: int) -> None:
        self.pointer.note(self.ledger.position, max(self.journal_start, self.journal_end - asked_before))

    @precondition(lambda self: self.ledger.position >= self.found.end)
    @rule(asked_before=st.integers(0, 4))
    def sum_up(self, asked_before: int) -> None:
        known_end = max(self.journal_start, self.committed[1], self.journal_end - asked_before)
        for record in encode_ranges([(INTAKE, list(self.ledger.ranges())), (BUCKET, [(1, 3)])], most=2):
            self.records[self.journal_end] = record
            self.journal_end += 1
        self.pointer.sum_up(known_end)
        self.committed = (self.ledger.low, self.pointer.at(self.ledger.low))
        assert self.committed[1] >= known_end
        self.journal_end += 1

    @rule()
    def trim_the_journal(self) -> None:
        below = self.committed[1]
        self.records = {offset: record for offset, record in self.records.items() if offset >= below}
        self.journal_start = max(self.journal_start, below)

    @rule()
    def crash(self) -> None:
        self.take_over()

    @rule(most=st.integers(1, 3))
    def crash_and_note_the_journals_end_early_in_the_replay(self, most: int) -> None:
        self.take_over()
        self.read(most)
        self.pointer.note(self.ledger.position, self.journal_end)

    @invariant()
    def the_watermark_is_the_first_that_is_held(self) -> None:
        assert self.ledger.low == min(self.held, default=self.ledger.position)

    @invariant()
    def a_crash_now_would_find_all_that_is_done(self) -> None:
        low, pointer = self.committed
        needed = {offset for offset in self.done if offset >= low}
        for offset, record in self.records.items():
            found = decode_entry(record)
            assert isinstance(found, DoneEntry)
            if offset >= pointer:
                for start, end in found.ranges.get(INTAKE, []):
                    needed.difference_update(range(start, end))
        assert not needed


TestJournal = Journal.TestCase
TestJournal.settings = settings(max_examples=150, stateful_step_count=40)
