"""The index of the levels' logs in the journal: where the records of each bucket are.

The log is the truth. The index only saves a take-over from reading all that waits: it reads what no record of the index
covers, which is mostly the end of each log. So any record of the index may be missing or damaged: that costs time, and
nothing else.

    log of a level        low ............ A ............ B ......... end
    index                    [low, A)          [A, B)
    a take-over reads                                       [B, end)

A record of the index *covers* the offsets of a log from `begin` to `end`, and lists the runs of all records there that
may wait. If it begins where the last one ended, or before, it replaces what is known from there on. Otherwise one is
missing in between, and it does not count, until another one covers the gap.

A record may also cover nothing, and say only by its `end` how far a log reaches: so a new owner knows whether the end
that it is told is too low.
"""

import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

MOST_RUNS = 6_000
"""The most runs in one record. A run takes about 10 bytes, and 32 at worst; each journal accepts records of 262,144."""


class IndexRun(NamedTuple):
    """Records of a bucket in the log of its level, perhaps with foreign ones between them.

    Attributes:
        bucket: the bucket, as in `Source`; the last one if the run is of several closed buckets.
        first: the first offset.
        end: one above the last one.
        records: how many of them are of the bucket; 0 if it is closed.
    """

    bucket: int
    first: int
    end: int
    records: int

    def within(self, begin: int, end: int) -> "IndexRun | None":
        """Return the part between two offsets, with as many records as it may hold; None if there is none."""
        first, end = max(self.first, begin), min(self.end, end)
        return IndexRun(self.bucket, first, end, min(self.records, end - first)) if first < end else None


class IndexPart(NamedTuple):
    """What a record of the index says of one level.

    Attributes:
        level: the level.
        begin: the first offset that it covers.
        end: one above the last offset that it covers.
        runs: all records there that may wait.
    """

    level: int
    begin: int
    end: int
    runs: Sequence[IndexRun]


def index_records(parts: Iterable[IndexPart], most: int = MOST_RUNS) -> Iterator[list[IndexPart]]:
    """Divide what is to be told into records.

    Args:
        parts: what is to be told.
        most: the most runs in one record, beside those that go on from the record before.
    """
    record: list[IndexPart] = []
    runs = 0
    for part in parts:
        for piece in _pieces(part, most):
            if record and runs + len(piece.runs) > most:
                yield record
                record, runs = [], 0
            record.append(piece)
            runs += len(piece.runs)
    if record:
        yield record


def _pieces(part: IndexPart, most: int) -> Iterator[IndexPart]:
    """Divide a part by offsets; of a run that goes on behind the end of its piece, the next one has the rest."""
    if len(part.runs) <= most:
        yield part
        return
    runs = sorted(part.runs, key=attrgetter("first"))
    begin, goes_on = part.begin, list[IndexRun]()
    for at in range(0, len(runs), most):
        end = runs[at + most].first if at + most < len(runs) else part.end
        here = [*goes_on, *runs[at : at + most]]
        yield part._replace(begin=begin, end=end, runs=within(here, begin, end))
        begin, goes_on = end, within(here, end, part.end)


def within(runs: Iterable[IndexRun], begin: int, end: int) -> list[IndexRun]:
    """Return what of these runs is between two offsets."""
    return [part for run in runs if (part := run.within(begin, end)) is not None]


def encode_parts(parts: Iterable[IndexPart]) -> bytes:
    """Encode what a record of the index says: 64-bit numbers, the lowest byte first, compressed.

    For each level `level, begin, end, n`, then n times `bucket, first, end, records`.
    """
    numbers = array("q")
    for part in parts:
        numbers.extend((part.level, part.begin, part.end, len(part.runs)))
        for run in part.runs:
            numbers.extend(run)
    if sys.byteorder == "big":
        numbers.byteswap()
    return zlib.compress(numbers.tobytes(), 1)


def decode_parts(data: bytes) -> tuple[IndexPart, ...]:
    """Decode what a record of the index says.

    Raises:
        ValueError: it is damaged.
    """
    numbers = array("q")
    try:
        numbers.frombytes(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(f"a damaged record of the index: {error}") from error
    if sys.byteorder == "big":
        numbers.byteswap()
    if len(numbers) % 4:
        raise ValueError("a truncated record of the index")
    parts: list[IndexPart] = []
    rows = list(zip(*[iter(numbers)] * 4, strict=True))
    at = 0
    while at < len(rows):
        level, begin, end, count = rows[at]
        runs = [IndexRun(*row) for row in rows[at + 1 : at + 1 + count]]
        if count < 0 or len(runs) != count:
            raise ValueError("a truncated record of the index")
        parts.append(IndexPart(level, begin, end, runs))
        at += 1 + count
    return tuple(parts)


@dataclass(slots=True)
class FoundIndex:
    """What the index says of one log.

    Attributes:
        end: the log is known below this offset.
        runs: all records below it that may wait, in the order in which the index names them.
    """

    end: int
    runs: list[IndexRun] = field(default_factory=list)

    def up_to_doubt(self, first_open: int) -> "FoundIndex":
        """Return what is sure if an older checkpoint counts, in which buckets are open that were closed since.

        A run of several closed buckets has the last one's number alone. If that bucket is open again, it is not known
        which records of the run are of the buckets before it: so the log is known up to the run only.

        Args:
            first_open: the first open bucket.
        """
        doubtful = [run.first for run in self.runs if run.records == 0 and run.bucket >= first_open]
        return FoundIndex(min(doubtful), self.runs) if doubtful else self


class IndexRecords:
    """What the records of the index say together.

    Args:
        low: for each level the first offset of its log that is not done.
    """

    __slots__ = ("_found", "_low", "reached")

    def __init__(self, low: Sequence[int]) -> None:
        self._low = dict(enumerate(low, 1))
        self._found = {level: FoundIndex(at) for level, at in self._low.items()}
        self.reached: dict[int, int] = {}
        """For each level, and `PARKED`, an offset that its log must have reached, also by records that do not count."""

    @property
    def found(self) -> Mapping[int, FoundIndex]:
        """What is known, by level."""
        return self._found

    def take(self, parts: Sequence[IndexPart] | None) -> None:
        """Take a record of the index, or None for one that is unreadable. Records are taken in order."""
        for part in parts or ():
            self.reached[part.level] = max(part.end, self.reached.get(part.level, 0))
            known = self._found.get(part.level)  # None: a level of an earlier configuration
            if known is not None and part.begin <= known.end <= part.end:
                if part.begin < known.end:
                    known.runs = within(known.runs, self._low[part.level], part.begin)
                known.end = part.end
                known.runs += part.runs
