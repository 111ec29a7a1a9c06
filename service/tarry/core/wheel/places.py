"""The places of parked messages, in the order of (due time, offset in the intake), in a few bytes each.

A place is all that is needed to read a message again when it is its turn. Idea: neighbours are similar. They are due
soon after each other and come from the same log, often at consecutive offsets. So places are packed into blocks. A
block stores each column as the differences between neighbours, minus the smallest difference, in the narrowest integer
type that holds the largest; zlib then compresses repetitions:

    due_ms    7000 7002 7002 7005     begins at 7000, steps 2 0 3       one byte each
    source    INTAKE, four times      begins at 0, steps 0 0 0          next to nothing
    size      700 900 500 700         begins at 700, steps 200 -400 200, kept as 600 0 600, two bytes each

The last places, fewer than two blocks, are not packed: a newly parked message goes after all others, except after the
clock stepped back.

Cost: 2 bytes per place for rising offsets of the intake, up to 9 for messages of buckets with random delays, and some
microseconds to pack and to unpack.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from marshal import dumps, loads
from operator import attrgetter, sub
from typing import NamedTuple
from zlib import compress, decompress

from tarry.core.message import HeldMessage, OrderKey
from tarry.core.progress.source import INTAKE, Source

BLOCK = 1_024
"""The least number of places in a block; the first block may have fewer, because places are taken from it."""

_COLUMNS = 5
"""Columns of a row in a flat array: due_ms, sequence, source, offset (0 in the intake), size_bytes."""
_LOOSE_BYTES = 8 * _COLUMNS
"""The memory of a place that is not packed."""
_BLOCK_BYTES = 240
"""The memory of a block's objects, beside the packed bytes."""
_BUCKET_BITS = 40


class ParkedPlace(NamedTuple):
    """The place of one parked message.

    Attributes:
        due_ms: its due time.
        sequence: its offset in the intake.
        source: the intake, or the bucket, to read it from again.
        offset: its offset in the log of that level.
        size_bytes: its memory when it is held.
    """

    due_ms: int
    sequence: int
    source: Source
    offset: int
    size_bytes: int


class _Block(NamedTuple):
    first: OrderKey
    many: int
    packed: bytes


_first = attrgetter("first")


class ParkedPlaces:
    """The places of parked messages, in order."""

    __slots__ = ("_blocks", "_packed", "_packed_bytes", "_tail")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._packed = self._packed_bytes = 0
        self._tail: array[int] = array("q")
        """The last places, not packed; empty only if there are no places at all."""

    def __len__(self) -> int:
        return self._packed + len(self._tail) // _COLUMNS

    def __iter__(self) -> Iterator[ParkedPlace]:
        for block in self._blocks:
            yield from _places(_unpack(block))
        yield from _places(self._tail)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of all places."""
        return self._packed_bytes + 8 * len(self._tail)

    @property
    def first(self) -> OrderKey | None:
        """Due time and sequence of the first place; None if there is none."""
        if self._blocks:
            return self._blocks[0].first
        return (self._tail[0], self._tail[1]) if self._tail else None

    def put(self, message: HeldMessage) -> None:
        """Insert the place of a message, in order."""
        tail, row = self._tail, _row(message)
        key = row[:2]
        if not tail or key >= (tail[-_COLUMNS], tail[1 - _COLUMNS]):
            tail.extend(row)
        elif not self._blocks or key >= (tail[0], tail[1]):
            _insert(tail, row)
        else:
            at = max(0, bisect_right(self._blocks, key, key=_first) - 1)
            rows = _unpack(self._blocks[at])
            _insert(rows, row)
            self._swap(at, at + 1, rows)
        self._pack_tail()

    def put_first(self, messages: Iterable[HeldMessage]) -> None:
        """Insert the places of messages that are due before all others."""
        rows = array("q", [number for message in messages for number in _row(message)])
        if self._blocks:
            self._swap(0, 1, rows + _unpack(self._blocks[0]))
        else:
            self._tail[0:0] = rows
            self._pack_tail()

    def upto(self, limit_bytes: int) -> list[ParkedPlace]:
        """Return the first places, as many as have messages that fit into `limit_bytes`; at least one."""
        places: list[ParkedPlace] = []
        for place in self:
            limit_bytes -= place.size_bytes
            if places and limit_bytes < 0:
                break
            places.append(place)
        return places

    def drop(self, many: int) -> None:
        """Remove the first `many` places."""
        whole = 0
        while whole < len(self._blocks) and many >= self._blocks[whole].many:
            many -= self._blocks[whole].many
            whole += 1
        self._swap(0, whole, array("q"))
        if self._blocks and many:
            self._swap(0, 1, _unpack(self._blocks[0])[many * _COLUMNS :])
        else:
            del self._tail[: many * _COLUMNS]

    def _pack_tail(self) -> None:
        many = len(self._tail) // _COLUMNS
        if many >= 2 * BLOCK:
            cut = (many - BLOCK) * _COLUMNS
            end = len(self._blocks)
            self._swap(end, end, self._tail[:cut])
            del self._tail[:cut]

    def _swap(self, begin: int, end: int, rows: "array[int]") -> None:
        """Replace the blocks from `begin` to before `end` by blocks of these rows."""
        new = list(_blocks_of(rows))
        for sign, blocks in ((-1, self._blocks[begin:end]), (1, new)):
            self._packed += sign * sum(block.many for block in blocks)
            self._packed_bytes += sign * sum(_BLOCK_BYTES + len(block.packed) for block in blocks)
        self._blocks[begin:end] = new


def _row(message: HeldMessage) -> tuple[int, int, int, int, int]:
    (level, bucket), in_log = message.source, message.offset if message.source != INTAKE else 0
    return message.due_ms, message.sequence, level << _BUCKET_BITS | bucket, in_log, message.size_bytes


def _places(rows: Sequence[int]) -> Iterator[ParkedPlace]:
    due_ms, sequences, logs, offsets, sizes = [rows[at::_COLUMNS] for at in range(_COLUMNS)]
    known = {log: Source(log >> _BUCKET_BITS, log & (1 << _BUCKET_BITS) - 1) for log in set(logs)}
    in_log = [offset if log else sequence for log, offset, sequence in zip(logs, offsets, sequences, strict=True)]
    return map(ParkedPlace, due_ms, sequences, map(known.__getitem__, logs), in_log, sizes)


def _insert(rows: "array[int]", row: tuple[int, ...]) -> None:
    keys = list(zip(rows[::_COLUMNS], rows[1::_COLUMNS], strict=True))
    at = bisect_right(keys, row[:2]) * _COLUMNS
    rows[at:at] = array("q", row)


def _blocks_of(rows: "array[int]") -> Iterator[_Block]:
    """Split rows into blocks of even size, each shorter than two blocks."""
    many = len(rows) // _COLUMNS
    parts = max(1, many // BLOCK)
    bounds = [many * part // parts * _COLUMNS for part in range(parts + 1)]
    for begin, end in pairwise(bounds):
        if begin < end:
            yield _Block((rows[begin], rows[begin + 1]), (end - begin) // _COLUMNS, _pack(rows[begin:end]))


def _pack(rows: "array[int]") -> bytes:
    columns = []
    for at in range(_COLUMNS):
        column = rows[at::_COLUMNS]
        steps = list(map(sub, column[1:], column))
        least = min(steps, default=0)
        span = max(steps, default=0) - least
        code = next(code for code in "BHIQ" if span < 1 << 8 * array(code).itemsize)
        columns.append((column[0], least, code, array(code, [step - least for step in steps]).tobytes()))
    return compress(dumps(columns), 1)


def _unpack(block: _Block) -> "array[int]":
    rows = array("q", bytes(_LOOSE_BYTES * block.many))
    columns = loads(decompress(block.packed))  # noqa: S302 - packed above
    for at, (first, least, code, steps) in enumerate(columns):
        rows[at::_COLUMNS] = array("q", accumulate(map(least.__add__, array(code, steps)), initial=first))
    return rows
