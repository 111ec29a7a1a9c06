"""The index of a partition's names: which message waits under each name, in 44 bytes each.

Entries are sorted by the name's hash and packed into *shards*, each a range of hashes. A shard is what a record of the
journal repeats at once (`name_records`), so it is also the unit of the journal pointers:

    shard        [00…, 4a…)   [4a…, b1…)   [b1…, …)
    entries          1 210          890       1 387
    pointer          4 020        4 410       3 870        a recovery reads the journal from 3 870 on

    entry        hash 16 | offset 6 | due time 6 | id 16

A dictionary takes 171 bytes a name. Here a look-up takes a few microseconds, and memory is what the journal has.
"""

from bisect import bisect_right
from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

HASH_BYTES = 16
ENTRY_BYTES = 44

CONTINUES = 1 << 47
"""In an entry's offset: the occurrence at this offset was delivered, and the next one is in the intake behind it."""

MOST_ENTRIES = 1_400
"""The most entries in a shard: its record stays below 64 KiB."""

_OFFSET = HASH_BYTES


class NameEntry(NamedTuple):
    """The message that waits under a name.

    Attributes:
        offset: its offset in the intake; with `CONTINUES`, the offset of the occurrence that it follows.
        due_ms: its due time.
        id: the 16 bytes of its id; of an occurrence, those of its schedule's.
    """

    offset: int
    due_ms: int
    id: bytes

    @property
    def continues(self) -> bool:
        """Whether the next occurrence of a schedule is in the intake, and not decided yet."""
        return self.offset >= CONTINUES

    @property
    def place(self) -> int:
        """The offset in the intake by which results name the message."""
        return self.offset & ~CONTINUES

    def packed(self) -> bytes:
        """Return the part of the entry behind the hash."""
        return self.offset.to_bytes(6) + self.due_ms.to_bytes(6) + self.id


class Shard(NamedTuple):
    """A range of hashes with its entries.

    Attributes:
        first: the first hash of the range; empty for the first range.
        end: the first hash behind the range; empty for the last range.
        entries: packed entries, ascending.
    """

    first: bytes
    end: bytes
    entries: bytes


class NameIndex:
    """The names of one partition.

    Args:
        most: the most entries in a shard.
    """

    __slots__ = ("_firsts", "_most_bytes", "_pointers", "_shards", "count")

    def __init__(self, most: int = MOST_ENTRIES) -> None:
        self._most_bytes = most * ENTRY_BYTES
        self._shards = [bytearray()]
        self._firsts = [b""]
        self._pointers = [0]
        self.count = 0
        """The number of names."""

    @property
    def size_bytes(self) -> int:
        """The memory of the entries."""
        return self.count * (ENTRY_BYTES + ENTRY_BYTES // 8)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self._shards)

    def __iter__(self) -> Iterator[tuple[bytes, NameEntry]]:
        """Yield hashes and entries, in the order of the hashes."""
        for shard in self._shards:
            for at in range(0, len(shard), ENTRY_BYTES):
                yield bytes(shard[at : at + HASH_BYTES]), _entry(shard, at)

    def find(self, name: bytes) -> NameEntry | None:
        """Return the entry of a hash; None if no message of the name waits."""
        shard = self._shards[bisect_right(self._firsts, name) - 1]
        at = _place(shard, name)
        return _entry(shard, at) if shard[at : at + HASH_BYTES] == name else None

    def put(self, name: bytes, entry: NameEntry) -> None:
        """Set the entry of a hash."""
        self.put_packed(name, entry.packed())

    def put_packed(self, name: bytes, entry: bytes) -> None:
        """Set the entry of a hash, which is packed already."""
        number = bisect_right(self._firsts, name) - 1
        shard = self._shards[number]
        at = _place(shard, name)
        if shard[at : at + HASH_BYTES] == name:
            shard[at + HASH_BYTES : at + ENTRY_BYTES] = entry
            return
        shard[at:at] = name + entry
        self.count += 1
        if len(shard) > self._most_bytes:
            self._split(number)

    def remove(self, name: bytes, offset: int) -> bool:
        """Remove the entry of a hash, if it is that of the message at an offset; return whether it was."""
        number = bisect_right(self._firsts, name) - 1
        shard = self._shards[number]
        at = _place(shard, name)
        if shard[at : at + HASH_BYTES] != name or _entry(shard, at).offset != offset:
            return False
        del shard[at : at + ENTRY_BYTES]
        self.count -= 1
        if not shard and len(self._shards) > 1:
            self._join(number)
        return True

    def entries(self, first: bytes, end: bytes) -> bytes:
        """Return the packed entries of a range of hashes, with bounds as a shard has them."""
        one, other = self._within(first, end)
        shards = self._shards[one : other + 1]
        if end:
            shards[-1] = shards[-1][: _place(shards[-1], end)]
        shards[0] = shards[0][_place(shards[0], first) :]
        return b"".join(shards)

    def _within(self, first: bytes, end: bytes) -> tuple[int, int]:
        """Return the numbers of the first and the last shard that a range of hashes has a part of."""
        one = bisect_right(self._firsts, first) - 1
        if not end:
            return one, len(self._shards) - 1
        other = bisect_right(self._firsts, end) - 1
        return one, other - (self._firsts[other] == end)

    def replace(self, shard: Shard) -> None:
        """Set all entries of a range of hashes."""
        first, last = self._within(shard.first, shard.end)
        before, after = self._shards[first], self._shards[last]
        left = before[: _place(before, shard.first)] if shard.first else b""
        right = after[_place(after, shard.end) :] if shard.end else b""
        merged = bytearray(b"".join((left, shard.entries, right)))
        self.count += (len(merged) - sum(map(len, self._shards[first : last + 1]))) // ENTRY_BYTES
        pointer = min(self._pointers[first : last + 1])
        self._shards[first : last + 1] = [merged]
        self._pointers[first : last + 1] = [pointer]
        del self._firsts[first + 1 : last + 1]
        if len(merged) > self._most_bytes:
            self._split(first)
        elif not merged and len(self._shards) > 1:
            self._join(first)

    def _split(self, number: int) -> None:
        whole, pointer = self._shards[number], self._pointers[number]
        pieces = -(-len(whole) // self._most_bytes)
        each = -(-len(whole) // ENTRY_BYTES // pieces) * ENTRY_BYTES
        parts = [whole[at : at + each] for at in range(0, len(whole), each)]
        self._shards[number : number + 1] = parts
        self._firsts[number : number + 1] = [self._firsts[number], *(bytes(part[:HASH_BYTES]) for part in parts[1:])]
        self._pointers[number : number + 1] = [pointer] * len(parts)

    def _join(self, number: int) -> None:
        """Give the range of an empty shard to the one before it, or of the first one to the second one."""
        del self._shards[number]
        del self._firsts[number or 1]
        pointer = self._pointers.pop(number)
        heir = max(number - 1, 0)
        self._pointers[heir] = min(self._pointers[heir], pointer)

    # -- the journal --------------------------------------------------------------------------------------------------

    @property
    def pointer(self) -> int:
        """The journal offset from which a recovery must read."""
        return min(self._pointers)

    def point_all(self, pointer: int) -> None:
        """Set the pointer of all shards."""
        self._pointers = [pointer] * len(self._shards)

    def oldest(self, most: int) -> list[int]:
        """Return the numbers of the shards with the lowest pointers, the lowest first; at most `most` of them."""
        return nsmallest(most, range(len(self._pointers)), key=self._pointers.__getitem__)

    def point(self, number: int, pointer: int) -> None:
        """Set the pointer of a shard, which is in the journal from there on."""
        self._pointers[number] = max(self._pointers[number], pointer)

    def shard(self, number: int) -> Shard:
        """Return a shard."""
        last = number + 1 == len(self._firsts)
        return Shard(self._firsts[number], b"" if last else self._firsts[number + 1], bytes(self._shards[number]))


def _place(shard: bytearray, name: bytes) -> int:
    """Return where a hash is in a shard, or would be."""
    low, high = 0, len(shard) // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        at = middle * ENTRY_BYTES
        if shard[at : at + HASH_BYTES] < name:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_BYTES


def _entry(shard: bytearray, at: int) -> NameEntry:
    packed = bytes(shard[at + _OFFSET : at + ENTRY_BYTES])
    return NameEntry(int.from_bytes(packed[:6]), int.from_bytes(packed[6:12]), packed[12:])
