"""What the journal says of a partition's names: changes of single names, and shards, which repeat a range of them.

    N    changes: what firing and side transactions did, in their order
    S    shard: all names of a range of hashes, as they are after the changes before it

A recovery reads from before the oldest shard that counts, and takes the records in order. One thing is not in order: a
side transaction may have written that a message is gone *before* a shard was written that still has it, and committed
after it. So what a side transaction has removed stays removed: an offset is never given twice. In the same way, what a
side transaction has continued does not wait again.

Nothing is inserted one by one: a million names are found again in about a second. Changes wait, by the first 12 bits of
their hashes, until they are needed or are many. Then the entries of those bits are taken out, changed, sorted, and put
back together. A shard discards the changes of its range that wait, because they are older:

    waiting     0x31f  + + -        shard [31f4…, 32b0…):  those of 0x320 to 0x32a go, and some of 0x31f and 0x32b
                0x320  +
                0x32b  + ~
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tarry.core.progress.name_index import CONTINUES, ENTRY_BYTES, HASH_BYTES, NameEntry, NameIndex, Shard

_PUT, _GONE, _GONE_IN_SIDE, _CONTINUES, _CONTINUES_IN_SIDE = b"+", b"-", b"~", b">", b"}"
_GONE_BYTES = 1 + HASH_BYTES + 6
_PUT_BYTES = 1 + ENTRY_BYTES
_SIZES = {
    _PUT[0]: _PUT_BYTES,
    _GONE[0]: _GONE_BYTES,
    _GONE_IN_SIDE[0]: _GONE_BYTES,
    _CONTINUES[0]: _PUT_BYTES,
    _CONTINUES_IN_SIDE[0]: _PUT_BYTES,
}
"""The size of each change, by its first byte."""

_PREFIXES = 1 << 12
"""How many groups the changes that wait have."""

MOST_WAITING_BYTES = 4 << 20
"""So many bytes of changes may wait in a small index."""


@dataclass(frozen=True, slots=True)
class NamesEntry:
    """A record of changes.

    Attributes:
        changes: from `put`, `gone`, `continues` and the two of side transactions, one after the other.
    """

    changes: bytes


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A record of a shard.

    Attributes:
        below: every named record of the intake below this offset was decided.
        shard: the range and its entries.
    """

    below: int
    shard: Shard


def put(name: bytes, entry: NameEntry) -> bytes:
    """Return the change that a message waits under a name from now on."""
    return _PUT + name + entry.packed()


def gone(name: bytes, offset: int) -> bytes:
    """Return the change that the message at an offset of the intake waits under its name no more."""
    return _GONE + name + offset.to_bytes(6)


def gone_in_side(name: bytes, offset: int) -> bytes:
    """Return the same change of a side transaction."""
    return _GONE_IN_SIDE + name + offset.to_bytes(6)


def continues(name: bytes, entry: NameEntry) -> bytes:
    """Return the change that an occurrence was delivered, and that its schedule continues behind it."""
    return _CONTINUES + name + entry.packed()


def continues_in_side(name: bytes, entry: NameEntry) -> bytes:
    """Return the same change of a side transaction."""
    return _CONTINUES_IN_SIDE + name + entry.packed()


def encode_shard(entry: ShardEntry) -> bytes:
    """Return the content of a record of a shard: `below`, each bound with its length before it, the entries."""
    shard = entry.shard
    bounds = b"".join(bytes((len(bound),)) + bound for bound in (shard.first, shard.end))
    return entry.below.to_bytes(8) + bounds + shard.entries


def decode_shard(data: bytes) -> ShardEntry:
    """Parse the content of a record of a shard.

    Raises:
        ValueError: it is truncated.
    """
    bounds, at = list[bytes](), 8
    for _ in range(2):
        length = data[at] if at < len(data) else -1
        bounds.append(data[at + 1 : at + 1 + length])
        at += 1 + length
        if length not in (0, HASH_BYTES) or at > len(data):
            raise ValueError("a truncated record of names")
    if (len(data) - at) % ENTRY_BYTES:
        raise ValueError("a truncated record of names")
    return ShardEntry(int.from_bytes(data[:8]), Shard(bounds[0], bounds[1], data[at:]))


def decode_changes(data: bytes) -> NamesEntry:
    """Parse the content of a record of changes.

    Raises:
        ValueError: it is truncated, or has a change that this version of tarry does not know.
    """
    at = 0
    while at < len(data):
        size = _SIZES.get(data[at])
        if size is None:
            raise ValueError("a change of names that this version of tarry does not know")
        at += size
    if at > len(data):
        raise ValueError("a truncated record of names")
    return NamesEntry(data)


def _changes(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield for each change what it is, the name's hash, and the rest."""
    at = 0
    while at < len(data):
        kind = data[at]
        rest, end = at + 1 + HASH_BYTES, at + _SIZES[kind]
        yield kind, data[at + 1 : rest], data[rest:end]
        at = end


def _prefix(name: bytes) -> int:
    """Return the first 12 bits of a hash."""
    return name[0] << 4 | name[1] >> 4


def _first_of(prefix: int) -> bytes:
    """Return a bound in front of all hashes with these 12 bits, and behind those with less; empty if they are over."""
    return (prefix << 4).to_bytes(2) if prefix < _PREFIXES else b""


def _followed(entry: bytes) -> bytes:
    """Return the offset, packed, of the occurrence behind which a schedule continues."""
    return (int.from_bytes(entry[:6]) & ~CONTINUES).to_bytes(6)


class NameRecords:
    """What the records of names say together.

    Args:
        index: an empty index.
        most_waiting_bytes: so many bytes of changes may wait, or as many as the index has if that is more.

    Attributes:
        below: every named record of the intake below this offset was decided.
        waiting_bytes: the size of the changes that are not in the index yet.
    """

    __slots__ = (
        "_continued",
        "_gone",
        "_index",
        "_is_stale",
        "_most_waiting_bytes",
        "_waiting",
        "below",
        "waiting_bytes",
    )

    def __init__(self, index: NameIndex | None = None, most_waiting_bytes: int = MOST_WAITING_BYTES) -> None:
        self._index = NameIndex() if index is None else index
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: defaultdict[int, bytearray] = defaultdict(bytearray)
        """By the first bits of the hash: changes that are not in the index yet, in their order."""
        self.waiting_bytes = 0
        self._gone: list[tuple[bytes, int]] = []
        """Names and offsets that side transactions have removed."""
        self._continued: dict[bytes, bytes] = {}
        """By name: the last change by which a side transaction has continued a schedule."""
        self._is_stale = False
        """Whether a shard may have brought one of them back."""
        self.below = 0

    def take(self, entry: NamesEntry | ShardEntry) -> None:
        """Take a record. The records are taken in the order of the journal."""
        if isinstance(entry, ShardEntry):
            self._discard(entry.shard)
            self._index.replace(entry.shard)
            self._is_stale = bool(self._gone)
            self._continue_again(entry.shard)
            self.below = max(self.below, entry.below)
            return
        data, waiting = entry.changes, self._waiting
        put_kind, side_kind, continued_kind = _PUT[0], _GONE_IN_SIDE[0], _CONTINUES_IN_SIDE[0]
        at, last = 0, b""
        while at < len(data):
            kind = data[at]
            end = at + _SIZES[kind]
            waiting[data[at + 1] << 4 | data[at + 2] >> 4] += data[at:end]
            if kind == put_kind:
                last = max(last, data[at + 1 + HASH_BYTES : at + 1 + HASH_BYTES + 6])
            elif kind == side_kind:
                change = data[at + 1 : end]
                self._gone.append((change[:HASH_BYTES], int.from_bytes(change[HASH_BYTES:])))
            elif kind == continued_kind:
                self._continued[data[at + 1 : at + 1 + HASH_BYTES]] = data[at:end]
            at = end
        self.below = max(self.below, int.from_bytes(last) + 1 if last else 0)
        self.waiting_bytes += len(data)
        if self.waiting_bytes > max(self._most_waiting_bytes, self._index.count * ENTRY_BYTES):
            self._fold()

    def _discard(self, shard: Shard) -> None:
        """Forget the changes of a range that wait: a shard repeats what they have left."""
        low = _prefix(shard.first) if shard.first else 0
        high = _prefix(shard.end) if shard.end else _PREFIXES
        for prefix in [prefix for prefix in self._waiting if low <= prefix <= high]:
            changes = self._waiting.pop(prefix)
            self.waiting_bytes -= len(changes)
            if prefix in {low, high}:
                kept = bytearray()
                for kind, name, rest in _changes(bytes(changes)):
                    if name < shard.first or name >= shard.end > b"":
                        kept += bytes((kind,)) + name + rest
                if kept:
                    self._waiting[prefix] = kept
                    self.waiting_bytes += len(kept)

    def _fold(self) -> None:
        """Bring the changes that wait into the index."""
        put_kind, continues_kinds = _PUT[0], (_CONTINUES[0], _CONTINUES_IN_SIDE[0])
        for prefix in sorted(self._waiting):
            first, end = _first_of(prefix), _first_of(prefix + 1)
            packed = self._index.entries(first, end)
            steps = range(0, len(packed), ENTRY_BYTES)
            entries = {packed[at : at + HASH_BYTES]: packed[at + HASH_BYTES : at + ENTRY_BYTES] for at in steps}
            for kind, name, rest in _changes(bytes(self._waiting.pop(prefix))):
                if kind == put_kind:
                    entries[name] = rest
                elif (known := entries.get(name)) is None:
                    continue
                elif kind in continues_kinds:
                    if known[:6] == _followed(rest):
                        entries[name] = rest
                elif known[:6] == rest:
                    del entries[name]
            self._index.replace(Shard(first, end, b"".join([name + entries[name] for name in sorted(entries)])))
        self.waiting_bytes = 0

    def _continue_again(self, shard: Shard) -> None:
        """Let what side transactions have continued wait again: a shard may have brought an occurrence back."""
        for name, change in self._continued.items():
            if shard.first <= name and (not shard.end or name < shard.end):
                self._waiting[_prefix(name)] += change
                self.waiting_bytes += len(change)

    @property
    def index(self) -> NameIndex:
        """The names, as far as the records were taken."""
        if self._waiting:
            self._fold()
        if self._is_stale:
            for name, offset in self._gone:
                self._index.remove(name, offset)
            self._is_stale = False
        return self._index

    def is_superseded(self, name: bytes, offset: int, complete_from: int) -> bool:
        """Whether the message at an offset of the intake, which was decided, was replaced or cancelled by name.

        Args:
            name: the hash of its name.
            offset: its offset in the intake.
            complete_from: an older message without an entry may wait.
        """
        entry = self.index.find(name)
        return offset >= complete_from if entry is None else entry.offset != offset


def joined(changes: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    """Join changes to contents of records of at most this many bytes each; a change is never divided."""
    record: list[bytes] = []
    size = 0
    for change in changes:
        if size + len(change) > most_bytes and record:
            yield b"".join(record)
            record, size = [], 0
        record.append(change)
        size += len(change)
    if record:
        yield b"".join(record)
