"""What the index of the levels' logs must not do: courses that lost or doubled a message, or stopped a partition."""

from random import Random
from typing import Any

import pytest

from tarry.core.batch import FiledRun
from tarry.core.message import FiledMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.index import IndexPart, IndexRecords, IndexRun, index_records
from tarry.core.progress.journal import IndexEntry
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.recovery import Recovery
from tarry.core.progress.source import Source
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.core.wheel.overflow import Upkeep
from tarry.errors import LogError
from tarry.kafka.refusals import shortfall
from tarry.timer import TimingWheel
from tests.support.level_bench import LevelBench

# -- what is done behind a bucket that is not -------------------------------------------------------------------------


def with_a_later_bucket_done() -> LevelBench:
    """A bucket that waits for its target, and a later one, far behind it in the log, of which all has left.

    After a crash: the next owner has the whole index, which leaves out what has left.
    """
    bench = LevelBench()
    bench.file(1, 4_100)
    bench.file(1, *[7_100] * 1_200)  # more records of an open bucket than runs are joined over
    later = [(1, offset) for offset in bench.file(1, 5_100, 5_200, 5_300)]
    bench.file(1, *[7_200] * 1_200)
    bench.close(5_000)
    assert bench.read() == [(1, 0), *later]
    bench.fire(*later)
    bench.rest()
    bench.life()
    bench.read()
    return bench


def not_told(bench: LevelBench) -> list[tuple[int, int]]:
    """What the next owner reads of level 1: at least the marker of the last transaction, which is no record."""
    return [run for one in bench.wheel.to_read(10**9, 1) if one.level == 1 for run in one.runs]


@pytest.mark.parametrize("damaged", [False, True])
def test_what_was_done_behind_a_bucket_that_waits_stays_done_if_the_index_is_lost_after_a_summary(
    damaged: bool,
) -> None:
    bench = with_a_later_bucket_done()
    bench.rest(sums_up=True)
    bench.life((lambda _: None) if damaged else (lambda record: record))
    assert bench.read() == [(1, 0)]


# -- a checkpoint that is committed without the journal ---------------------------------------------------------------


def commit_alone(bench: LevelBench) -> None:
    """Commit a checkpoint alone, as after a change of transactional ids."""
    bench.progress.note_journal_end(bench.store.journal_end)
    bench.store.offset = bench.progress.plain_checkpoint(released=False)
    bench.progress.confirm()


def pointer_of(bench: LevelBench) -> int | None:
    assert bench.store.offset is not None
    return decode_checkpoint(bench.store.offset[1]).index_pointer


def test_what_a_checkpoint_alone_does_not_write_is_still_to_be_told() -> None:
    bench = LevelBench(upkeep=Upkeep(index_after=1_000))
    bench.file(1, 5_000, 6_000)
    before = bench.wheel.news()
    assert before
    commit_alone(bench)
    assert bench.wheel.news() == before


def test_the_pointer_in_a_checkpoint_alone_is_of_a_whole_index_that_is_written() -> None:
    bench = LevelBench()
    bench.file(1, 5_000, 6_000)
    bench.rest()
    pointed = pointer_of(bench)
    assert pointed
    commit_alone(bench)
    assert pointer_of(bench) == pointed
    bench.life()
    assert not_told(bench) == [(2, 3)]


# -- an older checkpoint ----------------------------------------------------------------------------------------------


def test_a_run_of_which_only_the_last_bucket_is_open_in_an_older_copy_loses_nothing() -> None:
    bench = LevelBench(Geometry(1_000, 4, 1), (4_000,), Upkeep(tell_from=1, index_after=1_000))
    bench.file(1, 4_100)
    bench.close(3_900)
    bench.rest()  # its copy lists bucket 4 as closed, and bucket 5 as open
    bench.file(1, 5_100)
    bench.close(4_900)
    bench.store.abort()  # the commit with the copy
    bench.fire()
    bench.life()
    bench.read()
    bench.file(1, 9_000)
    bench.file(1, 9_100)  # tells of the first of them, and of the run of buckets 4 and 5
    bench.store.offset = None  # the group's offsets are lost
    bench.life()
    found = bench.read()
    bench.close(20_000)
    assert sorted(found + bench.read()) == [(1, 0), (1, 2), (1, 4), (1, 6)]


def test_a_run_of_several_closed_buckets_loses_nothing_if_an_older_copy_lists_them_as_open() -> None:
    bench = LevelBench(Geometry(1_000, 4, 1), (4_000,), Upkeep(tell_from=1, index_after=1_000))
    bench.file(1, 4_100, 5_100)
    bench.close(4_900)
    bench.store.abort()  # the commit with the copy
    bench.fire()  # the group has the new checkpoint, and no copy says so
    bench.life()
    assert bench.read() == [(1, 0), (1, 1)]
    bench.file(1, 9_000)
    bench.file(1, 9_100)  # tells of the closed range, which has both buckets
    bench.store.offset = None
    bench.life()
    assert bench.wheel.levels.closed_ms == (4_000,), "the copy counts"
    found = bench.read()
    bench.close(20_000)
    assert sorted(found + bench.read()) == [(1, 0), (1, 1), (1, 3), (1, 5)]


# -- a message in a gap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closes", [False, True])
def test_a_filed_message_in_a_gap_is_an_error_also_while_its_bucket_is_read_elsewhere(closes: bool) -> None:
    base = Checkpoint(("w",), False, Geometry(1_000, 4, 1), (4_000,))
    recovered = Recovered(0, base, DoneSet(), 0, Buckets({1: (0, 0)}, {}, 0))
    reader = RequestReader(IntakePolicy("orders.delayed"))
    one = PartitionState("orders.delayed", 0, reader, False, lambda at: TimingWheel(1, 64, at), recovered, 4_300)
    one.arrivals.reach(0)
    one.overflow.filed([FiledRun(Source(1, 4), 3, 5, 2)])
    if closes:
        assert one.close_buckets(10**6, 4_300)
    reading = one.level_records.to_read(10**6)
    assert reading[0].runs == [(0, 3)], "the gap"
    headers = filed_headers(FiledMessage(4_500, 1, b"k", b"v", [], False, "orders", -1, b"0" * 36))
    with pytest.raises(LogError, match="does not know of"):
        one.level_records.accept(reading, 0, b"k", b"v", headers, 4_300)  # type: ignore[arg-type]  # all are bytes


# -- a large index ----------------------------------------------------------------------------------------------------

LEAST_LIMIT = 262_144
"""The least size of records that a journal takes."""


def bench_with(buckets: int, filings: int, **upkeep: Any) -> LevelBench:
    """Filings of a few messages to each of many buckets, as with delays of years."""
    bench = LevelBench(Geometry(20_000, 16, 1), (20_000,), Upkeep(**upkeep))
    log, random = bench.levels[1], Random(1)
    for _ in range(filings):
        runs = []
        for bucket in range(buckets):
            many = random.randint(5, 21)
            runs.append(FiledRun(Source(1, 10 + bucket), log.end, log.end + many, many))
            log.end += many
        bench.wheel.filed(runs)
        log.end += 1
    return bench


@pytest.mark.parametrize("index_after", [1, 10**9], ids=["a whole index", "news"])
def test_however_much_is_told_each_record_fits_and_the_next_owner_knows_all(index_after: int) -> None:
    bench = bench_with(385, 60, index_after=index_after)
    bench.progress.note_journal_end(bench.store.journal_end)
    counts = bench.wheel.in_buckets
    records = bench.progress.settle_checkpoint(released=False, sums_up=False).before
    assert len(records) > 1
    assert max(map(len, records)) <= LEAST_LIMIT
    bench.rest()
    bench.life()
    assert not_told(bench) == [(bench.levels[1].end - 1, bench.levels[1].end)]
    assert bench.wheel.in_buckets == {1: counts[1] + 1}


def test_the_journal_is_trimmed_also_while_a_strange_record_waits_for_its_dead_letter() -> None:
    bench = LevelBench()
    bench.file(1, 5_000, 6_000)
    strange = bench.levels[1].end
    bench.levels[1].end += 3
    bench.file(1, 5_000, 6_000)
    assert bench.wheel.meet(1, strange)
    for _ in range(100):
        bench.store.commit_without_offset(b"D\x01")
    bench.rest(sums_up=True)
    bench.rest(sums_up=True)
    assert bench.progress.reads_from >= 100
    bench.life()
    [to_read] = bench.wheel.to_read(10**9, 1)
    assert to_read.runs[0][0] <= strange, "the next owner meets the strange record again"


def test_what_is_known_is_not_copied_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over reads thousands of records; copied for each of them, they took minutes."""
    looked_at = 0
    real = IndexRun.within

    def counted(run: IndexRun, begin: int, end: int) -> IndexRun | None:
        nonlocal looked_at
        looked_at += 1
        return real(run, begin, end)

    monkeypatch.setattr(IndexRun, "within", counted)
    index, end = IndexRecords((0,)), 0
    for _ in range(500):
        runs = [IndexRun(bucket, end + 35 * bucket, end + 35 * bucket + 30, 30) for bucket in range(31)]
        index.take([IndexPart(1, end, end + 1_100, runs)])
        end += 1_100
    assert len(index.found[1].runs) == 500 * 31
    assert looked_at <= 500 * 31


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_an_index_in_many_records_says_what_it_says_in_one(most: int) -> None:
    choose = Random(most)
    for _ in range(200):
        begin = choose.randrange(50)
        ends = [choose.randrange(begin, begin + 200) for _ in range(12)]
        runs = [IndexRun(choose.randrange(4), at, at + choose.randrange(1, 60), 1) for at in ends]
        parts = [IndexPart(1, begin, begin + 300, runs), IndexPart(2, 3, 9, runs[:1])]
        many = IndexRecords((begin, 3))
        for record in index_records(parts, most):
            many.take(record)
        assert {level: found.end for level, found in many.found.items()} == {1: begin + 300, 2: 9}
        for bucket in range(4):
            offsets = {at for run in runs if run.bucket == bucket for at in range(run.first, run.end)}
            told = [run for run in many.found[1].runs if run.bucket == bucket]
            assert {at for run in told for at in range(run.first, run.end)} == offsets


# -- a log that lost its end ------------------------------------------------------------------------------------------

FIRST, SECOND = IndexPart(1, 0, 10, [IndexRun(5, 0, 10, 10)]), IndexPart(1, 10, 30, [IndexRun(5, 10, 30, 20)])
LAST = IndexPart(1, 30, 100, [IndexRun(5, 30, 100, 70)])


@pytest.mark.parametrize("second", [SECOND, None])
def test_a_log_that_is_shorter_than_any_record_of_the_index_says_is_refused(second: IndexPart | None) -> None:
    recovery = Recovery(0, Checkpoint(("w",), False, Geometry(1_000, 4, 1), (4_000,)), ("v",))
    for record in (FIRST, second, LAST):
        recovery.journal.take(IndexEntry(None if record is None else (record,)))
    refusal = shortfall(("orders.delayed", 0), recovery, 0, {1: (0, 50)})
    assert refusal is not None
    assert "knows of records up to 100" in refusal


def notices_an_end_that_is_too_low_by(offsets: int, bench: LevelBench) -> bool:
    """Whether the next owner notices it, of the log of level 1."""
    recovery = bench.store.begin("w")
    bench.store.read_into(recovery, lambda record: record)
    end = bench.levels[1].end
    refusal = shortfall(("orders.delayed", 0), recovery, 0, {1: (0, end - offsets), 2: (0, 0)})
    assert refusal is None or f"knows of records up to {end - 1}" in refusal
    return refusal is not None


def test_an_end_that_is_too_low_by_the_last_filing_alone_is_noticed() -> None:
    bench = LevelBench()
    bench.file(1, 5_000, 6_000)
    bench.file(1, 7_000)
    assert [notices_an_end_that_is_too_low_by(offsets, bench) for offsets in (0, 1)] == [False, False], "the marker"
    assert notices_an_end_that_is_too_low_by(2, bench)


def test_a_whole_index_that_must_wait_for_a_gap_says_how_far_the_log_reaches() -> None:
    bench = LevelBench()
    bench.file(1, 5_000, 6_000)
    bench.levels[1].write([], commit=False)  # an aborted transaction
    bench.file(1, 7_000)
    bench.rest()
    assert bench.wheel.news() == []
    assert not notices_an_end_that_is_too_low_by(1, bench)
    assert notices_an_end_that_is_too_low_by(2, bench)


def test_a_whole_index_that_is_written_while_a_filing_is_open_leaves_what_the_filing_says_of_itself() -> None:
    bench = LevelBench()
    bench.file(1, 5_000, 6_000)
    bench.rest()
    bench.file(1, 7_000, meanwhile=bench.rest)
    bench.fire()
    for rests in (False, True):
        if rests:
            bench.rest()
        assert bench.store.offset is not None
        pointer = decode_checkpoint(bench.store.offset[1]).index_pointer
        assert pointer is not None
        bench.store.journal = [one for one in bench.store.journal if one[0] >= pointer]  # the other pointers went on
        assert notices_an_end_that_is_too_low_by(2, bench)
