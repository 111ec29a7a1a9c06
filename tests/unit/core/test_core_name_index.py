"""The index of names against a dictionary, and its records in the journal."""

from itertools import pairwise
from random import Random

import pytest

from tarry.core.progress.journal import decode_entry, encode_names, encode_shard
from tarry.core.progress.name_index import CONTINUES, ENTRY_BYTES, HASH_BYTES, NameEntry, NameIndex, Shard
from tarry.core.progress.name_records import (
    NameRecords,
    NamesEntry,
    ShardEntry,
    continues,
    decode_shard,
    gone,
    gone_in_side,
    joined,
    put,
)

ID = bytes(range(16))


def name(number: int) -> bytes:
    return number.to_bytes(2) * (HASH_BYTES // 2)


def entry(offset: int) -> NameEntry:
    return NameEntry(offset, 1_700_000_000_000 + offset, ID)


def shards(index: NameIndex) -> list[Shard]:
    return [index.shard(number) for number in range(index.shards)]


def test_an_index_is_a_dictionary_whatever_is_put_removed_and_replaced() -> None:
    for seed in range(10):
        choose = Random(seed)
        index, known = NameIndex(choose.choice((1, 2, 3, 8))), dict[bytes, NameEntry]()
        for offset in range(200):
            one = name(choose.randrange(40))
            step = choose.random()
            if step < 0.5:
                index.put(one, entry(offset))
                known[one] = entry(offset)
            elif step < 0.9:
                guess = known[one].offset if one in known and choose.random() < 0.8 else offset
                is_there = one in known and known[one].offset == guess
                assert index.remove(one, guess) is is_there
                if is_there:
                    del known[one]
            else:
                replace_a_range(choose, index, known, offset)
            assert dict(index) == known, f"seed {seed}"
            assert [one for one, _ in index] == sorted(known)
            assert index.count == len(known)
            assert index.find(one) == known.get(one)
            ranges = shards(index)
            assert (ranges[0].first, ranges[-1].end) == (b"", b"")
            assert all(left.end == right.first for left, right in pairwise(ranges))


def replace_a_range(choose: Random, index: NameIndex, known: dict[bytes, NameEntry], offset: int) -> None:
    """Set the names of a range, as a shard of another index does."""
    bounds = sorted(choose.sample(range(1, 45), 2))
    first, end = choose.choice((b"", name(bounds[0]))), choose.choice((b"", name(bounds[1])))
    inside = [one for one in map(name, range(40)) if one >= first and (not end or one < end)]
    chosen = sorted(choose.sample(inside, choose.randint(0, len(inside))))
    entries = b"".join(one + entry(offset).packed() for one in chosen)
    index.replace(Shard(first, end, entries))
    for one in inside:
        known.pop(one, None)
    known.update({one: entry(offset) for one in chosen})


def test_shards_written_one_after_the_other_rebuild_the_index_wherever_its_pointer_lets_a_recovery_begin() -> None:
    for seed in range(10):
        choose = Random(seed)
        index, journal = NameIndex(choose.choice((1, 2, 4))), list[bytes]()
        known = dict[bytes, int]()
        for offset in range(120):
            one = name(choose.randrange(30))
            if choose.random() < 0.5 or one not in known:
                index.put(one, entry(offset))
                journal.append(encode_names(put(one, entry(offset))))
                known[one] = offset
            else:
                index.remove(one, known[one])
                journal.append(encode_names(gone(one, known.pop(one))))
            if choose.random() < 0.3:
                (number,) = index.oldest(1)
                journal.append(encode_shard(ShardEntry(offset + 1, index.shard(number))))
                index.point(number, len(journal) - 1)
            found = NameRecords(NameIndex(choose.choice((1, 3, 100))))
            for record in journal[choose.randint(0, index.pointer) :]:
                of_names = decode_entry(record)
                assert isinstance(of_names, (NamesEntry, ShardEntry))
                found.take(of_names)
            assert dict(found.index) == dict(index), f"seed {seed}"


def test_records_say_what_a_dictionary_does_whatever_changes_wait_when_a_shard_comes() -> None:
    for seed in range(30):
        choose = Random(seed)
        apart = choose.choice((1, 3, 700))  # one group of changes, some, or one for each name
        limit = choose.choice((0, 100, 500, 1 << 20))
        found, known = NameRecords(NameIndex(choose.choice((1, 3, 100))), limit), dict[bytes, NameEntry]()
        for offset in range(300):
            one = name(choose.randrange(40) * apart)
            step = choose.random()
            if step < 0.5:
                found.take(NamesEntry(put(one, entry(offset))))
                known[one] = entry(offset)
            elif step < 0.8:
                guess = known[one].offset if one in known and choose.random() < 0.7 else offset
                found.take(NamesEntry(gone(one, guess)))
                if one in known and known[one].offset == guess:
                    del known[one]
            elif step < 0.87:
                guess = known[one].offset if one in known and choose.random() < 0.7 else offset
                next_one = NameEntry(guess | CONTINUES, guess + 5, ID)
                found.take(NamesEntry(continues(one, next_one)))
                if one in known and known[one].offset | CONTINUES == next_one.offset and not known[one].continues:
                    known[one] = next_one
            elif step < 0.97:
                take_a_range(choose, found, known, apart, offset)
            else:
                assert dict(found.index) == known, f"seed {seed}"
        assert dict(found.index) == known, f"seed {seed}"
        assert found.index.count == len(known)


def take_a_range(choose: Random, found: NameRecords, known: dict[bytes, NameEntry], apart: int, offset: int) -> None:
    """Take a shard with the bounds of any names, and with any of the names between them."""
    bounds = sorted(choose.sample(range(1, 45), 2))
    first, end = choose.choice((b"", name(bounds[0] * apart))), choose.choice((b"", name(bounds[1] * apart)))
    inside = [one for one in (name(number * apart) for number in range(40)) if one >= first and (not end or one < end)]
    chosen = sorted(choose.sample(inside, choose.randint(0, len(inside))))
    entries = b"".join(one + entry(offset).packed() for one in chosen)
    found.take(ShardEntry(offset, Shard(first, end, entries)))
    for one in inside:
        known.pop(one, None)
    known.update({one: entry(offset) for one in chosen})


def test_an_entry_keeps_an_offset_of_48_bits() -> None:
    high = NameEntry((1 << 48) - 1, 5, ID)
    found = NameRecords()
    found.take(NamesEntry(put(name(1), high) + put(name(2), entry(1)) + gone(name(1), 1)))
    assert dict(found.index) == {name(1): high, name(2): entry(1)}
    found.take(NamesEntry(gone(name(1), high.offset)))
    assert dict(found.index) == {name(2): entry(1)}


def test_only_so_many_bytes_of_changes_wait() -> None:
    found = NameRecords(most_waiting_bytes=500)
    for offset in range(100):
        found.take(NamesEntry(put(name(1), entry(offset))))
        assert found.waiting_bytes <= 500
    found = NameRecords(NameIndex(), 0)
    for number in range(100):
        found.take(NamesEntry(put(name(number), entry(number))))
    assert 0 < found.waiting_bytes <= 100 * ENTRY_BYTES


def test_a_pointer_never_goes_back_and_an_index_reads_from_its_oldest_shard() -> None:
    index = NameIndex(2)
    for number in range(6):
        index.put(name(number), entry(number))
    index.point_all(7)
    while index.pointer == 7:
        index.point(index.oldest(1)[0], 9)
    index.point(0, 8)
    assert index.pointer == 9


def test_an_empty_shard_leaves_its_pointer_to_the_range_that_takes_it_over() -> None:
    for emptied in range(3):
        index = NameIndex(1)
        for number in range(3):
            index.put(name(number), entry(number))
        index.point_all(5)
        for number in range(3):
            if number != emptied:
                index.point(number, 9)
        index.remove(name(emptied), emptied)
        assert (index.shards, index.pointer) == (2, 5)


def test_records_of_names_are_read_as_they_were_written() -> None:
    changes = put(name(3), entry(70)) + gone(name(4), 8) + gone_in_side(name(5), 9)
    assert decode_entry(encode_names(changes)) == NamesEntry(changes)
    for first, end in ((b"", b""), (b"", name(9)), (name(2), b""), (name(2), name(9))):
        shard = ShardEntry(1 << 40, Shard(first, end, name(3) + entry(70).packed()))
        assert decode_entry(encode_shard(shard)) == shard


def test_a_truncated_record_of_names_is_an_error() -> None:
    changes = put(name(3), entry(70)) + gone(name(4), 8)
    whole = {0, len(put(name(3), entry(70)))}
    for length in set(range(len(changes))) - whole:
        with pytest.raises(ValueError, match="truncated"):
            decode_entry(encode_names(changes[:length]))
    shard = encode_shard(ShardEntry(5, Shard(name(2), name(9), name(3) + entry(70).packed())))
    head = len(shard) - len(name(3) + entry(70).packed())
    for length in set(range(2, len(shard))) - {head}:
        with pytest.raises(ValueError, match="truncated"):
            decode_entry(shard[:length])


def test_a_bound_of_another_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="truncated"):
        decode_shard(bytes(8) + bytes((3, 1, 2, 3)) + bytes(1))


def test_a_change_of_a_later_version_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not know"):
        decode_entry(encode_names(put(name(3), entry(70)) + b"?" + bytes(60)))


def test_changes_are_joined_to_records_and_none_is_divided() -> None:
    changes = [gone(name(number), number) for number in range(5)]
    size = len(changes[0])
    assert list(joined(changes, 2 * size)) == [b"".join(changes[:2]), b"".join(changes[2:4]), changes[4]]
    assert list(joined(changes, 1)) == changes
    assert list(joined([], 9)) == []


def test_what_a_side_transaction_removed_stays_removed_though_a_shard_that_was_written_before_comes_behind() -> None:
    found = NameRecords()
    found.take(NamesEntry(put(name(1), entry(5)) + put(name(2), entry(6))))
    found.take(NamesEntry(gone_in_side(name(1), 5)))
    found.take(ShardEntry(7, Shard(b"", b"", name(1) + entry(5).packed() + name(2) + entry(6).packed())))
    assert dict(found.index) == {name(2): entry(6)}
    assert found.below == 7


def test_the_next_message_of_a_name_stays_though_a_side_transaction_removed_the_one_before_it() -> None:
    found = NameRecords()
    found.take(NamesEntry(put(name(1), entry(5)) + gone_in_side(name(1), 5) + put(name(1), entry(8))))
    assert dict(found.index) == {name(1): entry(8)}
    assert found.below == 9
