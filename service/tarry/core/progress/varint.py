"""Unsigned LEB128: small whole numbers in few bytes, the journal's alphabet."""

from collections.abc import Sequence


def pack(numbers: Sequence[int]) -> bytes:
    """Write whole numbers >= 0 one behind the other, seven bits a byte, lowest first."""
    if not numbers:
        return b""
    if max(numbers) < 128:  # the common case, at the speed of C: one byte a number
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
    """Read what `pack` wrote.

    Raises:
        ValueError: the last number is cut off.
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
