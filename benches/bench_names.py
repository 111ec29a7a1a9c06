"""What names cost: memory and journal a name, and the time of a take-over: `python -m benches.bench_names`.

No broker: named messages are decided and admitted in batches, as firing transactions do it. The journal's records are
kept in a list.

- memory: of the index, by the growth of the process without the journal.
- written: bytes of the journal for each name, shards included.
- retained: bytes from the journal pointer on, which a take-over reads.
- take-over: the time to decode those records and to rebuild the index, and the growth of the process by it.
- replace: bytes written for each replace, and its time from decision to admission.
"""

import gc
import resource
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from tarry.core.batch import Batch
from tarry.core.message import HeldMessage
from tarry.core.progress.journal import decode_entry
from tarry.core.progress.name_records import NameRecords, NamesEntry, ShardEntry
from tarry.core.request.naming import Condition, hash_of
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names
from tarry.headers import id_text

A_BATCH: Final = 5_000
PAGE: Final = resource.getpagesize()


def rss_bytes() -> int:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def messages(first: int, count: int, names: int) -> Iterator[HeldMessage]:
    """Yield named messages, one for each name in turn."""
    for offset in range(first, first + count):
        message = HeldMessage(10**12 + offset, offset, None, None, None, False, "t", -1, id_text(offset.to_bytes(16)))
        message.name = hash_of(b"key-%d" % (offset % names), b"timer")
        yield message


class Journal:
    """The records of a journal, and what was written to it."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.written_bytes = 0

    def admit(self, names: Names, sent: Iterator[HeldMessage]) -> None:
        """Decide messages and admit them, a batch at a time."""
        while some := list(islice(sent, A_BATCH)):
            names.note_journal_end(len(self.records))
            for message in some:
                names.decide(message, Condition.ALWAYS)
            batch = Batch()
            names.take(batch, 1 << 40, 1 << 60)
            records = names.settle(batch)
            names.confirm(batch)
            self.records += records
            self.written_bytes += sum(map(len, records))


def take_over(records: list[bytes], names: Names) -> None:
    """Read the retained journal as a take-over does, and print what it takes."""
    gc.collect()
    before = rss_bytes()
    began = time.perf_counter()
    found = NameRecords()
    for record in records:
        entry = decode_entry(record)
        if isinstance(entry, NamesEntry | ShardEntry):
            found.take(entry)
    if found.index.count != names.count:
        raise RuntimeError(f"a take-over finds {found.index.count} of {names.count} names")
    took_s, grown = time.perf_counter() - began, rss_bytes() - before
    print(f"take-over: {took_s:.2f} s, memory {grown / names.count:.0f} B a name")


def main() -> None:
    """Measure, and print one figure a line."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--names", type=int, default=1_000_000)
    count = parser.parse_args().names
    names, journal = Names(("in", 0), NameRecords(), None, 0, 0, Memory()), Journal()
    gc.collect()
    before = rss_bytes()
    began = time.perf_counter()
    journal.admit(names, messages(0, count, count))
    took_s = time.perf_counter() - began
    retained = journal.records[names.pointer or 0 :]
    kept_bytes = sum(map(len, journal.records))
    gc.collect()
    grown = rss_bytes() - before - kept_bytes
    print(f"{names.count:,} names: memory {grown / count:.0f} B a name (the index says {names.size_bytes / count:.0f})")
    print(f"admit: {took_s / count * 1e6:.1f} us a name")
    print(f"written: {journal.written_bytes / count:.0f} B a name, retained {sum(map(len, retained)) / count:.0f} B")
    take_over(retained, names)
    journal.written_bytes = 0
    began = time.perf_counter()
    journal.admit(names, messages(count, count // 5, count))
    took_s = time.perf_counter() - began
    many = count // 5
    print(f"replace: {took_s / many * 1e6:.1f} us, {journal.written_bytes / many:.0f} B written")
    retained = journal.records[names.pointer or 0 :]
    print(f"after the replaces: retained {sum(map(len, retained)) / count:.0f} B a name")
    take_over(retained, names)


if __name__ == "__main__":
    main()
