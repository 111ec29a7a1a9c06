"""What the journal says of a partition's names: changes of single names, and shards, which repeat a range of them.

    N    changes: what firing and side transactions did, in their order
    S    shard: all names of a range of hashes, as they are after the changes before it

A recovery reads from before the oldest shard that counts, and takes the records in order. One thing is not in order: a
side transaction may have written that a message is gone *before* a shard was written that still has it, and committed
after it. So what a side transaction has removed stays removed: an offset is never given twice. In the same way, what a
side transaction has continued does not wait again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tarry.core.progress.name_index import CONTINUES, ENTRY_BYTES, HASH_BYTES, NameEntry, NameIndex, Shard

_PUT, _GONE, _GONE_ASIDE, _CONTINUES, _CONTINUES_ASIDE = b"+", b"-", b"~", b">", b"}"
_GONE_BYTES = 1 + HASH_BYTES + 6
_PUT_BYTES = 1 + ENTRY_BYTES
_SIZES = {
    _PUT[0]: _PUT_BYTES,
    _GONE[0]: _GONE_BYTES,
    _GONE_ASIDE[0]: _GONE_BYTES,
    _CONTINUES[0]: _PUT_BYTES,
    _CONTINUES_ASIDE[0]: _PUT_BYTES,
}
"""The size of each change, by its first byte."""


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


def gone_aside(name: bytes, offset: int) -> bytes:
    """Return the same change of a side transaction."""
    return _GONE_ASIDE + name + offset.to_bytes(6)


def continues(name: bytes, entry: NameEntry) -> bytes:
    """Return the change that an occurrence was delivered, and that its schedule continues behind it."""
    return _CONTINUES + name + entry.packed()


def continues_aside(name: bytes, entry: NameEntry) -> bytes:
    """Return the same change of a side transaction."""
    return _CONTINUES_ASIDE + name + entry.packed()


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


def _changes(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield for each change what it is, the name's hash, and the rest."""
    at = 0
    while at < len(data):
        kind = data[at : at + 1]
        size = _SIZES[data[at]]
        yield kind, data[at + 1 : at + 1 + HASH_BYTES], data[at + 1 + HASH_BYTES : at + size]
        at += size


class NameRecords:
    """What the records of names say together.

    Args:
        index: an empty index.

    Attributes:
        below: every named record of the intake below this offset was decided.
    """

    __slots__ = ("_continued", "_gone", "_index", "_is_stale", "below")

    def __init__(self, index: NameIndex | None = None) -> None:
        self._index = NameIndex() if index is None else index
        self._gone: list[tuple[bytes, int]] = []
        """Names and offsets that side transactions have removed."""
        self._continued: dict[bytes, bytes] = {}
        """The last entry of each name that a side transaction has continued, packed."""
        self._is_stale = False
        """Whether a shard may have brought one of them back."""
        self.below = 0

    def take(self, entry: NamesEntry | ShardEntry) -> None:
        """Take a record. The records are taken in the order of the journal."""
        if isinstance(entry, ShardEntry):
            self._index.replace(entry.shard)
            self._is_stale = bool(self._gone)
            for name, packed in self._continued.items():
                self._continue(name, packed)
            self.below = max(self.below, entry.below)
            return
        for kind, name, rest in _changes(entry.changes):
            offset = int.from_bytes(rest[:6])
            if kind == _PUT:
                self._index.put_packed(name, rest)
                self.below = max(self.below, offset + 1)
            elif kind in (_CONTINUES, _CONTINUES_ASIDE):
                self._continue(name, rest)
                if kind == _CONTINUES_ASIDE:
                    self._continued[name] = rest
            else:
                self._index.remove(name, offset)
                if kind == _GONE_ASIDE:
                    self._gone.append((name, offset))

    def _continue(self, name: bytes, packed: bytes) -> None:
        """Continue a schedule, if its entry is still that of the occurrence that was delivered."""
        entry = self._index.find(name)
        if entry is not None and entry.offset | CONTINUES == int.from_bytes(packed[:6]) and not entry.continues:
            self._index.put_packed(name, packed)

    @property
    def index(self) -> NameIndex:
        """The names, as far as the records were taken."""
        if self._is_stale:
            for name, offset in self._gone:
                self._index.remove(name, offset)
            self._is_stale = False
        return self._index

    def is_superseded(self, name: bytes | None, offset: int, complete_from: int, *, is_filed: bool) -> bool:
        """Whether the message at an offset of the intake was replaced or cancelled by name.

        Args:
            name: the hash of its name; None if it has none.
            offset: its offset in the intake.
            complete_from: an older message without an entry may wait.
            is_filed: whether it is in a level or in the parked log: then it was decided.
        """
        if name is None or (offset >= self.below and not is_filed):
            return False
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
