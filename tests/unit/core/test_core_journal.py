"""The journal's records: any offsets come back as ranges, and no bytes do more than raise ValueError."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.journal import (
    Copy,
    DoneEntry,
    IndexEntry,
    LostEnd,
    Range,
    decode_entry,
    encode_copy,
    encode_done,
    encode_lost_end,
)
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.source import INTAKE, PARKED, Source

sources = st.builds(Source, st.integers(0, 6), st.integers(0, 300))
offsets = st.lists(st.integers(0, 2**40) | st.integers(0, 400), unique=True)


def spread(ranges: list[Range]) -> list[int]:
    return [offset for start, end in ranges for offset in range(start, end)]


def test_the_example_of_the_module() -> None:
    record = encode_done({INTAKE: [10, 6, 5, 7]})
    assert record == b"D\x01" + bytes([0, 0, 5, 3, 3, 2, 1])
    assert decode_entry(record) == DoneEntry({INTAKE: [(5, 8), (10, 11)]})


def test_consecutive_offsets_are_one_range_however_many() -> None:
    record = encode_done({INTAKE: list(range(1_000_000, 1_005_000))})
    assert decode_entry(record) == DoneEntry({INTAKE: [(1_000_000, 1_005_000)]})
    assert len(record) < 12


@settings(max_examples=200)
@given(st.dictionaries(sources, offsets, max_size=4))
def test_done_offsets_come_back_by_source(done: dict[Source, list[int]]) -> None:
    found = decode_entry(encode_done(done))
    assert isinstance(found, DoneEntry)
    assert {source: spread(ranges) for source, ranges in found.ranges.items()} == {
        source: sorted(given_offsets) for source, given_offsets in done.items() if given_offsets
    }
    for ranges in found.ranges.values():
        assert all(start < end for start, end in ranges)
        assert all(before[1] < after[0] for before, after in pairwise(ranges))


def test_gaps_and_runs_beyond_a_byte_come_back() -> None:
    done = [*range(200), *range(1_000, 1_500), 70_000]
    found = decode_entry(encode_done({Source(2, 21): done}))
    assert found == DoneEntry({Source(2, 21): [(0, 200), (1_000, 1_500), (70_000, 70_001)]})


def test_nothing_done_is_a_record_without_ranges() -> None:
    assert decode_entry(encode_done({})) == DoneEntry({})
    assert decode_entry(encode_done({INTAKE: []})) == DoneEntry({})


@settings(max_examples=100)
@given(st.integers(0, 2**63), st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_a_copy_comes_back_with_its_watermark(low: int, checkpoint: str) -> None:
    assert decode_entry(encode_copy(low, checkpoint)) == Copy(low, checkpoint)


@pytest.mark.parametrize("lost", [LostEnd(1, 0, 1), LostEnd(PARKED, 2**40, 2**41)])
def test_a_lost_end_comes_back(lost: LostEnd) -> None:
    record = encode_lost_end(lost)
    assert decode_entry(record) == lost
    with pytest.raises(ValueError, match=r"not enough values|cut off"):
        decode_entry(record[:-1])
    with pytest.raises(ValueError, match="of version 2"):
        decode_entry(b"L\x02" + record[2:])


def test_a_journal_says_which_log_has_lost_its_end_last() -> None:
    journal = JournalState()
    assert journal.lost_end is None
    for lost in (LostEnd(2, 5, 9), LostEnd(1, 3, 4)):
        journal.take(lost)
    assert journal.lost_end == LostEnd(1, 3, 4)


def test_a_source_named_twice_has_the_ranges_of_both() -> None:
    once, again = encode_done({INTAKE: [1]}), encode_done({INTAKE: [5, 6]})
    assert decode_entry(once + again[2:]) == DoneEntry({INTAKE: [(1, 2), (5, 7)]})


@settings(max_examples=60)
@given(st.dictionaries(sources, offsets.filter(bool), min_size=1, max_size=3))
def test_a_record_cut_off_anywhere_is_refused_or_says_less_and_never_other(done: dict[Source, list[int]]) -> None:
    record = encode_done(done)
    for length in range(len(record)):
        try:
            found = decode_entry(record[:length])
        except ValueError:
            continue
        assert isinstance(found, DoneEntry)
        # Between two sources there is nothing to tell a cut by: what is left is whole.
        for source, ranges in found.ranges.items():
            assert spread(ranges) == sorted(done[source])


def test_a_copy_cut_off_anywhere_is_refused_or_a_shorter_copy() -> None:
    record = encode_copy(123, "1|0|4e20,a,0||||7||a")
    kept = []
    for length in range(len(record)):
        try:
            kept.append(decode_entry(record[:length]))
        except ValueError:
            assert length < 3
    assert len(kept) == len(record) - 3
    assert all(isinstance(copy, Copy) and "123".startswith(str(copy.low)) for copy in kept)


@pytest.mark.parametrize("record", [None, b"", b"D", b"C", b"X\x01", b"\x00\x01", b"d\x01\x00", b"{}"])
def test_a_malformed_record_of_the_journal_is_refused(record: bytes | None) -> None:
    with pytest.raises(ValueError, match="not a journal record"):
        decode_entry(record)


@pytest.mark.parametrize("kind", [b"D", b"C"])
@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_by_its_number(kind: bytes, version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version}; this version of tarry reads version 1"):
        decode_entry(kind + bytes([version]) + b"\x00\x00\x05\x01\x01")


@settings(max_examples=300)
@given(st.binary(max_size=30) | st.binary(max_size=30).map(lambda data: b"D\x01" + data))
def test_any_bytes_are_a_record_or_a_value_error(data: bytes) -> None:
    try:
        found = decode_entry(data)
    except ValueError:
        return
    assert isinstance(found, DoneEntry | Copy | IndexEntry)
