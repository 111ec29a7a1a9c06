"""The records of `<intake>.journal`: what is done above the low watermarks, what is parked, copies of checkpoints.

A firing or filing transaction writes one *done* record for each partition that it touches. A recovery reads these and
not the results, because they are smaller and contain offsets. About once a minute, and when a partition is released, a
*copy* of the checkpoint is written, in case the group's committed offsets are lost.

While a message waits for its target, the low watermark does not move, and a recovery would need more and more of the
journal. So from time to time a *summary* is written: parked and done records that repeat all that is parked, and all
offsets done above the watermarks. The records before it are then not needed any more.

A transaction that files messages to the parked log also writes a *parked* record, which names their targets. So a
recovery knows which targets have messages there, and need not read that log.

Where the records of each bucket are, the *index* says (`index`). It is only a hint.

Which message waits under each name, changes of *names* and *shards* of them say (`name_records`).

If the log of a level, or the parked log, is found to have *lost its end*, a record says so: nothing else would, once
other records have filled it up again. No process takes the partition over then.

Form: no key; one byte for the kind (`D`, `P`, `C`, `I`, `L`, `N` or `S`), one byte for the version, then

- `D`: for each source `level, bucket, first offset, n`, then n numbers, alternating between run and gap: how many
  offsets are done, how many after them are not done, and so on. All numbers are varints. Level 0 is the intake, with
  bucket 0 (`Source`). An offset counts as done only for the bucket that is named with it.
- `P`: `+`, or `=` if nothing that was parked before this record counts any more; then for each target
  `number first messages name`, separated by commas: the number that stands for it in done records, an offset of the
  parked log below which it has no such message, how many messages, and the name. Numbers are decimal.
- `C`: the low watermark in decimal, a space, the checkpoint's text.
- `I`: as `index.encode_parts` says.
- `L`: level, the offset at which its log went on, the end that it had had before; varints.
- `N` and `S`: as `name_records` says.

    offsets 5, 6, 7, 10 of the intake  ->  D 1 | 0 0 5 3 | 3 2 1
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

from tarry.core.progress import name_records as records
from tarry.core.progress.index import IndexPart, decode_parts, encode_parts
from tarry.core.progress.name_records import NamesEntry, ShardEntry
from tarry.core.progress.source import Offsets, Source

_DONE, _PARKED, _COPY, _INDEX, _LOST, _NAMES, _SHARD, _VERSION = b"D", b"P", b"C", b"I", b"L", b"N", b"S", 1


Range = tuple[int, int]
"""Offsets from the first number, included, to the second, excluded."""


@dataclass(frozen=True, slots=True)
class DoneEntry:
    """A done record: the offsets that one transaction completed, as ascending ranges by source."""

    ranges: dict[Source, list[Range]]


class ParkedRow(NamedTuple):
    """Messages of one target in the parked log.

    Attributes:
        number: stands for the target in the sources of done records.
        first: an offset below which there is none of them.
        messages: how many they are.
        target: the target's name.
    """

    number: int
    first: int
    messages: int
    target: str


@dataclass(frozen=True, slots=True)
class ParkedEntry:
    """A parked record: messages that one transaction filed to the parked log, or that a summary found there.

    Attributes:
        rows: a row for each target.
        is_whole: whether nothing that was parked before this record counts any more.
    """

    rows: list[ParkedRow]
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy record: a checkpoint's text, and the low watermark that was committed with it."""

    low: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index record: where records are in the logs of the levels; None if it cannot be read."""

    parts: tuple[IndexPart, ...] | None


class LostEnd(NamedTuple):
    """A record that says that a log has lost its end, as by an unclean election.

    Attributes:
        level: the level; `PARKED` for the parked log.
        went_on_at: the offset of a record that was written afterwards.
        end: the end that the log had had before.
    """

    level: int
    went_on_at: int
    end: int


Entry = DoneEntry | ParkedEntry | Copy | IndexEntry | LostEnd | NamesEntry | ShardEntry
"""A record of the journal."""


def encode_done(done: Offsets) -> bytes:
    """Encode a done record.

    Args:
        done: the offsets done by source, each once, in any order; an empty list is left out.
    """
    parts = [_DONE, bytes((_VERSION,))]
    for source, offsets in done.items():
        if offsets:
            rising = sorted(offsets)
            steps = _steps(rising)
            parts.append(pack_varints((*source, rising[0], len(steps))))
            parts.append(pack_varints(steps))
    return b"".join(parts)


def encode_ranges(done: Iterable[tuple[Source, Iterable[Range]]], most: int) -> Iterator[bytes]:
    """Encode ranges as done records.

    Args:
        done: for each source ascending ranges that do not touch.
        most: the most ranges in a record.
    """
    for source, ranges in done:
        left = iter(ranges)
        while some := list(islice(left, most)):
            steps = [end - start for start, end in some]
            gaps = [after[0] - before[1] for before, after in pairwise(some)]
            numbers = [step for pair in zip(steps, gaps, strict=False) for step in pair]
            numbers.append(steps[-1])
            head = pack_varints((*source, some[0][0], len(numbers)))
            yield b"".join((_DONE, bytes((_VERSION,)), head, pack_varints(numbers)))


ROWS_A_RECORD = 1_000
"""The most targets in one parked record of a summary."""


def whole(rows: Sequence[ParkedRow]) -> Iterator[ParkedEntry]:
    """Yield parked records that say all that is in the parked log; at least one."""
    for at in range(0, max(len(rows), 1), ROWS_A_RECORD):
        yield ParkedEntry(list(rows[at : at + ROWS_A_RECORD]), is_whole=at == 0)


def encode_parked(entry: ParkedEntry) -> bytes:
    """Encode a parked record."""
    rows = ",".join(" ".join(map(str, row)) for row in entry.rows)
    return b"%b%c%b%b" % (_PARKED, _VERSION, b"=" if entry.is_whole else b"+", rows.encode())


def _decode_parked(text: str) -> ParkedEntry:
    rows = []
    for row in text[1:].split(",") if len(text) > 1 else ():
        number, first, messages, target = row.split(" ")
        rows.append(ParkedRow(int(number), int(first), int(messages), target))
    return ParkedEntry(rows, {"=": True, "+": False}[text[:1]])


def encode_copy(low: int, checkpoint: str) -> bytes:
    """Encode a copy of a checkpoint."""
    return b"%b%c%d %b" % (_COPY, _VERSION, low, checkpoint.encode())


def encode_index(parts: Iterable[IndexPart]) -> bytes:
    """Encode a record of the index."""
    return b"%b%c%b" % (_INDEX, _VERSION, encode_parts(parts))


def encode_lost_end(lost: LostEnd) -> bytes:
    """Encode a record of a log that has lost its end."""
    return b"%b%c%b" % (_LOST, _VERSION, pack_varints(lost))


def encode_names(changes: bytes) -> bytes:
    """Encode a record of changes of names."""
    return b"%b%c%b" % (_NAMES, _VERSION, changes)


def encode_shard(entry: ShardEntry) -> bytes:
    """Encode a shard of names."""
    return b"%b%c%b" % (_SHARD, _VERSION, records.encode_shard(entry))


def _decode_index(record: bytes) -> IndexEntry:
    """Decode a record of the index; it is a hint, so it may be unreadable."""
    try:
        return IndexEntry(decode_parts(record[2:]) if record[1:2] == bytes([_VERSION]) else None)
    except ValueError:
        return IndexEntry(None)


def decode_entry(record: bytes | None) -> "Entry":
    """Decode a record of the journal.

    Raises:
        ValueError: it is not a journal record, or is of a later version.
    """
    if record and record[:1] == _INDEX:
        return _decode_index(record)
    if not record or len(record) < 2 or record[:1] not in (_DONE, _PARKED, _COPY, _LOST, _NAMES, _SHARD):
        raise ValueError("not a journal record")
    if record[1] != _VERSION:
        raise ValueError(f"a journal record of version {record[1]}; this version of tarry reads version {_VERSION}")
    if record[:1] == _COPY:
        low, _, checkpoint = record[2:].decode().partition(" ")
        return Copy(int(low), checkpoint)
    if record[:1] == _PARKED:
        try:
            return _decode_parked(record[2:].decode())
        except KeyError as error:
            raise ValueError("not a parked record") from error
    if record[:1] == _LOST:
        level, went_on_at, end = unpack_varints(record[2:])
        return LostEnd(level, went_on_at, end)
    if record[:1] in (_NAMES, _SHARD):
        return records.decode_changes(record[2:]) if record[:1] == _NAMES else records.decode_shard(record[2:])
    return _decode_done(record)


def _decode_done(record: bytes) -> DoneEntry:
    numbers = unpack_varints(record[2:])
    ranges: dict[Source, list[Range]] = {}
    at = 0
    while at < len(numbers):
        level, bucket, first, count = numbers[at : at + 4]
        at += 4
        steps = numbers[at : at + count]
        if len(steps) != count:
            raise ValueError("a journal record is truncated")
        at += count
        ranges.setdefault(Source(level, bucket), []).extend(_ranges(first, steps))
    return DoneEntry(ranges)


def _steps(rising: Sequence[int]) -> list[int]:
    """Turn ascending offsets into run, gap, run, …, run."""
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


def pack_varints(numbers: Sequence[int]) -> bytes:
    """Encode integers >= 0 as unsigned LEB128 varints: seven bits per byte, the lowest bits first."""
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


def unpack_varints(data: bytes) -> list[int]:
    """Decode the output of `pack_varints`.

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
