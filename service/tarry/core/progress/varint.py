"""Unsigned LEB128 varints, in which the journal's numbers are encoded."""

from collections.abc import Sequence


def pack(numbers: Sequence[int]) -> bytes:
    """Encode integers >= 0 one after the other, with seven bits per byte, the lowest bits first."""
    if not numbers:
        return b""
    if max(numbers) < 128:  # the common case, at the speed of C: one byte per number
        return bytes(numbers)
    out = bytearray()
    for number in numbers:
        rest = number
        while rest > 127:
            out.append(rest & 127 | 128)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def unpack(data: bytes) -> list[int]:
    """Decode the output of `pack`.

    Raises:
        ValueError: the last number is truncated.
    """
    if data.isascii():
        return list(data)
    numbers: list[int] = []
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        if byte & 128:
            shift += 7
        else:
            numbers.append(value)
            value = shift = 0
    if shift:
        raise ValueError("a number is cut off")
    return numbers
