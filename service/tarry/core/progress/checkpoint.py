"""The checkpoint of an intake partition: all that a new owner must know, in the metadata of the committed offset.

The committed offset is the partition's low watermark. The metadata is the checkpoint, a text of at most 4,095
characters. Every transaction that touches the partition commits it, so it is never older than the deliveries.

Form, version 1: fields separated by `|`, list items by `,`, parts of an entry by `.`, numbers in hexadecimal:

    1|released|width,size,levels|closed,…|draining,…|emptying,…|pointer|due|id,id,…|cluster,intake,journal,level,…

    closed     for each overflow level the start of its first open bucket, in widths of that level
    draining   level.slot.done below.end - done below.journal pointer, and .turns if the range began in an earlier turn
    emptying   level.slot.end
    pointer    the intake's: all offsets done above the low watermark were journalled at or after it
    due        for an intake with a fixed delay: the due time of the record just below the low watermark, or empty
    id         the writer's transactional ids, with `%`, `,` and `|` as %25, %2C, %7C
    cluster …  the ids of the cluster and of the topics that the offsets belong to (`origin`); the field is missing if
               no id is known, as in checkpoints of versions of tarry that did not write it

A later version of tarry may add fields after these. A reader ignores fields that it does not know; a later version of
tarry reads this form.
"""

from dataclasses import dataclass

from tarry.core.progress.origin import UNKNOWN, Origin

LIMIT = 4095
"""The most characters of offset metadata that Kafka accepts by default (`offset.metadata.max.bytes` minus one)."""

_VERSION = "1"


class CheckpointError(ValueError):
    """A text is not a checkpoint, or is a checkpoint of a later version, or would be too long."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of the overflow wheel.

    Attributes:
        width_ms: the width of a bucket of level 1, in milliseconds.
        size: how many buckets of a level are as wide as one bucket of the next level.
        levels: the number of levels; 0 if there is no overflow wheel.
    """

    width_ms: int
    size: int
    levels: int

    def width_of(self, level: int) -> int:
        """Return the width of a bucket of a level (1, 2, …), in milliseconds."""
        return int(self.width_ms * self.size ** (level - 1))


@dataclass(frozen=True, slots=True)
class DrainingSlot:
    """The entry of a slot that is closed and not done.

    Attributes:
        level: the slot's level, from 1 on.
        slot: the slot's number.
        done_below: the low watermark: records below it are done.
        end: the end of the slot's log when it was closed.
        pointer: the slot's journal pointer.
        turns: how many turns of the ring its range began before the turn for which the slot was closed last.
    """

    level: int
    slot: int
    done_below: int
    end: int
    pointer: int
    turns: int = 0


@dataclass(frozen=True, slots=True)
class EmptyingSlot:
    """The entry of a slot that is done up to `end` and not emptied yet."""

    level: int
    slot: int
    end: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The data that a new owner of the partition needs in addition to the low watermark.

    Attributes:
        writer: the transactional ids of the process that wrote it; a new owner fences all of them.
        released: whether that process has released the partition.
        geometry: the shape of the overflow wheel.
        closed_ms: for each overflow level the start of its first open bucket, a multiple of the level's width.
        draining: slots that are closed and not done, one entry each.
        emptying: slots that are done and not emptied yet, one entry each.
        pointer: the intake's journal pointer.
        due_below_ms: for an intake with a fixed delay, the due time of the record just below the low watermark.
        origin: the cluster and the topics that the offsets belong to.
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
        """The journal offset from which a recovery reads: it needs no record before the smallest pointer."""
        return min([self.pointer, *[one.pointer for one in self.draining]])

    def encode(self) -> str:
        """Return the text.

        Raises:
            CheckpointError: the text would be longer than Kafka accepts.
        """
        text = self._text()
        if len(text) > LIMIT:
            raise CheckpointError(f"the checkpoint has {len(text)} characters, but Kafka accepts at most {LIMIT}")
        return text

    @property
    def length(self) -> int:
        """The number of characters of the text, even if Kafka would not accept it."""
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


def decode_checkpoint(text: str) -> Checkpoint:
    """Parse a checkpoint.

    Raises:
        CheckpointError: the text is not a checkpoint, or is of a later version.
    """
    version, *fields = text.split("|")
    if version != _VERSION:
        raise CheckpointError(
            f"not a checkpoint that this version of tarry can read ({text[:40]!r}; it reads version {_VERSION})"
        )
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
        raise CheckpointError(f"not a checkpoint that this version of tarry can read ({text[:40]!r})") from error


def is_checkpoint(text: str) -> bool:
    """Whether a text is a checkpoint that this version of tarry can read."""
    try:
        decode_checkpoint(text)
    except CheckpointError:
        return False
    return True


def _draining(entry: str) -> DrainingSlot:
    level, slot, done_below, more, pointer, *turns = _numbers(entry, ".")
    return DrainingSlot(level, slot, done_below, done_below + more, pointer, *turns)


def _split(text: str) -> list[str]:
    return text.split(",") if text else []


def _numbers(text: str, separator: str) -> list[int]:
    return [int(part, 16) for part in text.split(separator)]


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace(",", "%2C").replace("|", "%7C")


def _unescape(name: str) -> str:
    return name.replace("%7C", "|").replace("%2C", ",").replace("%25", "%")
