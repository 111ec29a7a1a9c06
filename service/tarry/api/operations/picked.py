"""Exactly which records an operation is about, and which of them are handled; pure."""

import binascii
import zlib
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

MOST_OFFSET = 2**63 - 1


class Picked:
    """Records, by partition and offset. Each has a number, from 0, in the order of partitions and offsets.

    Args:
        places: the offsets of each partition, in ascending order, each once.
    """

    def __init__(self, places: Mapping[int, Iterable[int]]) -> None:
        self._offsets = {partition: array("q", places[partition]) for partition in sorted(places)}
        sizes = [len(one) for one in self._offsets.values()]
        self._firsts = dict(zip(self._offsets, accumulate(sizes, initial=0), strict=False))
        self._size = sum(sizes)

    @classmethod
    def of(cls, places: Iterable[tuple[int, int]]) -> "Picked":
        """Return the records at these partitions and offsets, in any order."""
        found: dict[int, list[int]] = {}
        for partition, offset in sorted(set(places)):
            found.setdefault(partition, []).append(offset)
        return cls(found)

    def __len__(self) -> int:
        return self._size

    @property
    def partitions(self) -> Mapping[int, Sequence[int]]:
        """The offsets of each partition, in ascending order."""
        return self._offsets

    def number(self, partition: int, offset: int) -> int | None:
        """Return the number of a record; None if it is none of them."""
        offsets = self._offsets.get(partition)
        if offsets is None:
            return None
        at = bisect_left(offsets, offset)
        return self._firsts[partition] + at if at < len(offsets) and offsets[at] == offset else None

    def encoded(self) -> list[Any]:
        """Return it as JSON has it: for each partition its number, the first offset, and the steps to the others."""
        return [[partition, *_steps(offsets)] for partition, offsets in self._offsets.items()]

    @classmethod
    def decoded(cls, found: Any) -> "Picked":
        """Read what `encoded` returned.

        Raises:
            ValueError: it is something else.
        """
        places = {}
        for one in found if isinstance(found, list) else [None]:
            if not isinstance(one, list) or len(one) < 2 or not all(type(each) is int and each >= 0 for each in one):
                raise ValueError("no list of records")
            offsets = list(accumulate(one[1:]))
            if one[0] in places or 0 in one[2:] or offsets[-1] > MOST_OFFSET:
                raise ValueError("a list of records that are not in order")
            places[one[0]] = offsets
        return cls(places)


def _steps(offsets: Sequence[int]) -> Iterator[int]:
    before = 0
    for offset in offsets:
        yield offset - before
        before = offset


class Bits:
    """One bit for each of so many numbers.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._bits = bytearray(-(-size // 8))

    def add(self, number: int) -> None:
        """Set the bit of a number; others than those from 0 to the size are ignored."""
        if 0 <= number < self._size:
            self._bits[number >> 3] |= 1 << (number & 7)

    def update(self, numbers: Iterable[int]) -> None:
        """Set the bits of numbers."""
        for number in numbers:
            self.add(number)

    def __contains__(self, number: int) -> bool:
        return 0 <= number < self._size and bool(self._bits[number >> 3] & (1 << (number & 7)))

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def copy(self) -> "Bits":
        """Return the same bits, to be changed apart from these."""
        copied = Bits(self._size)
        copied._bits[:] = self._bits
        return copied

    def text(self) -> str:
        """Return the bits as text."""
        return b64encode(zlib.compress(bytes(self._bits), 1)).decode()

    @classmethod
    def of(cls, text: str, size: int) -> "Bits":
        """Read what `text` returned.

        Raises:
            ValueError: it is something else, or of another size.
        """
        found = cls(size)
        try:
            raw = zlib.decompressobj().decompress(b64decode(text, validate=True), len(found._bits) + 1)
        except (zlib.error, binascii.Error) as error:
            raise ValueError("no bits") from error
        if len(raw) != len(found._bits):
            raise ValueError("bits of another size")
        found._bits[:] = raw
        return found
