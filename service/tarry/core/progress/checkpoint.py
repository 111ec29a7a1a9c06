"""The checkpoint of an intake partition: all that a new owner must know, in the metadata of the committed offset.

The committed offset is the partition's low watermark; this text, of at most 4,095 characters, says the rest. It is
committed in every transaction that touches the partition, so it is never older than what was delivered.

Form, version 1: fields split by `|`, lists by `,`, parts of an entry by `.`, numbers in hexadecimal:

    1|released|width,size,levels|closed,…|draining,…|emptying,…|pointer|due|id,id,…|cluster,intake,journal,level,…

    closed     one for each overflow level, in widths of that level
    draining   level.slot.done below.end - done below.journal pointer, and .turns where it began in an earlier turn
    emptying   level.slot.end
    pointer    the intake's: all that is done above the low watermark was journalled at or after it
    due        of an intake with a fixed delay: the due time of the record just below the low watermark, or empty
    id         the writer's transactional ids, with `%`, `,` and `|` as %25, %2C, %7C
    cluster …  the ids of the cluster and the topics that the offsets are of (`origin`); the field is not there where
               none is known, as in what was written before there was one

A field that a later version adds stands behind these, and who does not know it passes over it; a later version reads
this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tarry.core.progress.origin import UNKNOWN, Origin

LIMIT = 4095
"""Kafka's default bound on the metadata of an offset, in characters (`offset.metadata.max.bytes` less one)."""

_VERSION = "1"


class CheckpointError(ValueError):
    """A text that is no checkpoint, or one of a version that is not known here."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of the overflow wheel: the width of a level-1 bucket, buckets that make one above, levels."""

    width_ms: int
    size: int
    levels: int

    def width_of(self, level: int) -> int:
        """Milliseconds that a bucket of a level (1, 2, …) covers."""
        return int(self.width_ms * self.size ** (level - 1))


@dataclass(frozen=True, slots=True)
class DrainingSlot:
    """A bucket that is being drained: its records below `done_below` are done, and it is read to `end`.

    It began so many `turns` of the ring before the last one for which its slot was closed.
    """

    level: int
    slot: int
    done_below: int
    end: int
    pointer: int
    turns: int = 0


@dataclass(frozen=True, slots=True)
class EmptyingSlot:
    """A bucket that is done up to `end` and not emptied yet."""

    level: int
    slot: int
    end: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a new owner of the partition must know beside the low watermark.

    Attributes:
        writer: the transactional ids of the process that wrote it, all of which a new owner fences.
        released: whether that process has given the partition up.
        geometry: of the overflow wheel; `levels` 0 where there is none.
        closed_ms: for each overflow level the start of its first open bucket, a multiple of the level's width.
        draining: buckets being drained, one entry a slot.
        emptying: done buckets not emptied yet, one entry a slot.
        pointer: the intake's journal pointer.
        due_below_ms: of a fixed-delay intake: the due time of the record just below the low watermark.
        origin: what its offsets are offsets of.
    """

    writer: tuple[str, ...]
    released: bool
    geometry: Geometry
    closed_ms: tuple[int, ...] = ()
    draining: tuple[DrainingSlot, ...] = ()
    emptying: tuple[EmptyingSlot, ...] = ()
    pointer: int = 0
    due_below_ms: int | None = None
    origin: Origin = UNKNOWN

    @property
    def reads_from(self) -> int:
        """Where a recovery begins to read the journal: what stands below says nothing that is still asked."""
        return min([self.pointer, *(one.pointer for one in self.draining)])

    def encode(self) -> str:
        """Write the text.

        Raises:
            CheckpointError: it would be longer than Kafka takes.
        """
        text = self._text()
        if len(text) > LIMIT:
            raise CheckpointError(f"a checkpoint of {len(text)} characters, and Kafka takes {LIMIT}")
        return text

    @property
    def length(self) -> int:
        """How many characters the text has, be they more than Kafka takes."""
        return len(self._text())

    def _text(self) -> str:
        geometry = self.geometry
        return "|".join(
            (
                _VERSION,
                "1" if self.released else "0",
                f"{geometry.width_ms:x},{geometry.size:x},{geometry.levels:x}",
                ",".join(f"{at // geometry.width_of(i):x}" for i, at in enumerate(self.closed_ms, 1)),
                ",".join(
                    f"{d.level:x}.{d.slot:x}.{d.done_below:x}.{d.end - d.done_below:x}.{d.pointer:x}"
                    + (f".{d.turns:x}" if d.turns else "")
                    for d in self.draining
                ),
                ",".join(f"{e.level:x}.{e.slot:x}.{e.end:x}" for e in self.emptying),
                f"{self.pointer:x}",
                "" if self.due_below_ms is None else f"{self.due_below_ms:x}",
                ",".join(_escape(name) for name in self.writer),
                *([",".join(_escape(one) for one in self.origin.ids())] if any(self.origin.ids()) else []),
            )
        )


def decode(text: str) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: the text is none, or of a version that is not known here.
    """
    version, *fields = text.split("|")
    if version != _VERSION:
        known = f"version {_VERSION} is known here"
        raise CheckpointError(f"not a checkpoint that can be read ({text[:40]!r}; {known})")
    try:
        released, shape, closed, draining, emptying, pointer, due, writer = fields[:8]
        origin = fields[8] if len(fields) > 8 else ""
        width_ms, size, levels = _numbers(shape, ",")
        geometry = Geometry(width_ms, size, levels)
        return Checkpoint(
            writer=tuple(_unescape(name) for name in _split(writer)),
            released={"0": False, "1": True}[released],
            geometry=geometry,
            closed_ms=tuple(int(at, 16) * geometry.width_of(i) for i, at in enumerate(_split(closed), 1)),
            draining=tuple(_draining(entry) for entry in _split(draining)),
            emptying=tuple(EmptyingSlot(*_numbers(entry, ".")) for entry in _split(emptying)),
            pointer=int(pointer, 16),
            due_below_ms=int(due, 16) if due else None,
            origin=Origin.of([_unescape(one) for one in _split(origin)]) if origin else UNKNOWN,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"not a checkpoint that can be read ({text[:40]!r})") from error


def is_checkpoint(text: str) -> bool:
    """Whether a text is a checkpoint that can be read here."""
    try:
        decode(text)
    except CheckpointError:
        return False
    return True


def _draining(entry: str) -> DrainingSlot:
    level, slot, done_below, more, pointer, *turns = _numbers(entry, ".")
    return DrainingSlot(level, slot, done_below, done_below + more, pointer, *turns)


def _split(text: str) -> list[str]:
    return text.split(",") if text else []


def _numbers(text: str, separator: str) -> Iterator[int]:
    return (int(part, 16) for part in text.split(separator))


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace(",", "%2C").replace("|", "%7C")


def _unescape(name: str) -> str:
    return name.replace("%7C", "|").replace("%2C", ",").replace("%25", "%")
