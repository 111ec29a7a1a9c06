"""The key hash of the Java client's default partitioner (murmur2) as a Spark expression; see `tarry.core.murmur2`.

All numbers are longs below 2^32, so that no product overflows a long.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
_NIBBLES: Final = 0x0F0F0F0F


def positive_murmur2(key: Column) -> Column:
    """The 31-bit hash of a key; null for null. The partition is this hash modulo the number of partitions.

    Args:
        key: bytes.
    """
    return _with(f.hex(key), _of_digits)


def _of_digits(digits: Column) -> Column:
    length = f.floor(f.length(digits) / 2)
    words = f.floor(length / 4).cast("int")
    # Spark's sequence from 0 to -1 would have two numbers.
    numbers = f.when(words > 0, f.sequence(f.lit(0), words - 1)).otherwise(f.array().cast("array<int>"))
    backwards = f.transform(numbers, lambda number: _backwards(digits.substr(number * 8 + 1, f.lit(8))))

    def mixed(code: Column, back: Column) -> Column:
        word = _times_m(_turned(back))
        return _times_m(code).bitwiseXOR(_times_m(word.bitwiseXOR(f.shiftright(word, 24))))

    def with_rest(code: Column) -> Column:
        rest = _turned(_backwards(digits.substr(words * 8 + 1, f.lit(8))))
        return f.when(length % 4 > 0, _times_m(code.bitwiseXOR(rest))).otherwise(code)

    def last(code: Column) -> Column:
        code = _times_m(code.bitwiseXOR(f.shiftright(code, 13)))
        return code.bitwiseXOR(f.shiftright(code, 15)).bitwiseAND(f.lit(0x7FFFFFFF))

    whole = f.aggregate(backwards, f.lit(_SEED).cast("long").bitwiseXOR(length), mixed)
    return _with(whole, lambda code: _with(with_rest(code), last))


def _with(value: Column, then: Callable[[Column], Column]) -> Column:
    """An expression of a value that Spark evaluates once, although the expression uses it several times."""
    return f.get(f.transform(f.array(value), then), f.lit(0))


def _backwards(digits: Column) -> Column:
    """The number that hexadecimal digits give, read from the last digit to the first."""
    return f.conv(f.reverse(digits), 16, 10).cast("long")


def _turned(backwards: Column) -> Column:
    """Swap the two digits of each byte, which were reversed as well. The result has the lowest byte first."""
    low, high = (part.bitwiseAND(f.lit(_NIBBLES).cast("long")) for part in (backwards, f.shiftright(backwards, 4)))
    return f.shiftleft(low, 4).bitwiseOR(high)


def _times_m(number: Column) -> Column:
    return (number * f.lit(_M).cast("long")).bitwiseAND(f.lit(_MASK).cast("long"))
