"""The records of `<intake>.journal`: what is done above the low watermarks, and copies of the checkpoint.

A firing or filing transaction writes one *done* record for each partition it touches. Recovery reads these, never the
results: they are smaller, and they speak of offsets. At least once a minute, and when a partition is released, a
*copy* of the checkpoint goes along, for the day on which the group's offsets are lost.

Where the low watermark stands still behind a message that waits for its target, the journal would grow for as long.
So a *summary* is written now and then, done records that say again all that is done above the watermarks: what stands
before it is not needed any more.

Form: no key; one byte for the kind, `D` or `C`, one for the version, then

- `D`: for each source `level, slot, first offset, n`, then n numbers, run and gap in turn: how many offsets from there
  are done, how many follow that are not, and so on. All numbers are varints. Level 0 is the intake (slot 0).
- `C`: the low watermark in decimal, a space, the checkpoint's text.

    offsets 5, 6, 7, 10 of the intake  ->  D 1 | 0 0 5 3 | 3 2 1
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from tarry.core.progress import varint
from tarry.core.progress.source import Offsets, Source

_DONE, _COPY, _VERSION = b"D", b"C", 1


Range = tuple[int, int]
"""Offsets from the first to below the second."""


@dataclass(frozen=True, slots=True)
class Done:
    """What one transaction did, by source: ranges in rising order."""

    ranges: dict[Source, list[Range]]


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the checkpoint and of the offset that it was committed with."""

    low: int
    checkpoint: str


def encode_done(done: Offsets) -> bytes:
    """Write a done record.

    Args:
        done: for each source the offsets done, each once, in any order; an empty list is left out.
    """
    parts = [_DONE, bytes((_VERSION,))]
    for source, offsets in done.items():
        if offsets:
            rising = sorted(offsets)
            steps = _steps(rising)
            parts.append(varint.pack((*source, rising[0], len(steps))))
            parts.append(varint.pack(steps))
    return b"".join(parts)


def encode_ranges(done: Mapping[Source, Iterable[Range]], most: int) -> Iterator[bytes]:
    """Write what is done as done records of up to so many ranges.

    Args:
        done: for each source ranges in rising order that do not touch.
        most: ranges a record.
    """
    for source, ranges in done.items():
        left = iter(ranges)
        while some := list(islice(left, most)):
            steps = [end - start for start, end in some]
            gaps = [after[0] - before[1] for before, after in pairwise(some)]
            numbers = [step for pair in zip(steps, gaps, strict=False) for step in pair]
            numbers.append(steps[-1])
            head = varint.pack((*source, some[0][0], len(numbers)))
            yield b"".join((_DONE, bytes((_VERSION,)), head, varint.pack(numbers)))


def encode_copy(low: int, checkpoint: str) -> bytes:
    """Write a copy of a checkpoint."""
    return b"%b%c%d %b" % (_COPY, _VERSION, low, checkpoint.encode())


def decode(record: bytes | None) -> Done | Copy:
    """Read a record of the journal.

    Raises:
        ValueError: it is none of ours, or of a version that is not known here.
    """
    if not record or len(record) < 2 or record[:1] not in (_DONE, _COPY):
        raise ValueError("not a journal record")
    if record[1] != _VERSION:
        raise ValueError(f"a journal record of version {record[1]}, and only {_VERSION} is known here")
    if record[:1] == _COPY:
        low, _, checkpoint = record[2:].decode().partition(" ")
        return Copy(int(low), checkpoint)
    numbers = varint.unpack(record[2:])
    ranges: dict[Source, list[Range]] = {}
    at = 0
    while at < len(numbers):
        level, slot, first, count = numbers[at : at + 4]
        at += 4
        steps = numbers[at : at + count]
        if len(steps) != count:
            raise ValueError("a journal record is cut off")
        at += count
        ranges.setdefault(Source(level, slot), []).extend(_ranges(first, steps))
    return Done(ranges)


def _steps(rising: Sequence[int]) -> list[int]:
    """Turn rising offsets into run, gap, run, …, run."""
    if rising[-1] - rising[0] + 1 == len(rising):
        return [len(rising)]
    steps: list[int] = []
    run, last = 1, rising[0]
    for offset in rising[1:]:
        gap = offset - last - 1
        if gap:
            steps.append(run)
            steps.append(gap)
            run = 1
        else:
            run += 1
        last = offset
    steps.append(run)
    return steps


def _ranges(first: int, steps: Iterable[int]) -> list[Range]:
    found: list[Range] = []
    at, is_run = first, True
    for step in steps:
        if is_run:
            found.append((at, at + step))
        at += step
        is_run = not is_run
    return found
