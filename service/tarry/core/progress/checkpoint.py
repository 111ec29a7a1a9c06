"""The checkpoint of an intake partition: all that a new owner must know, in the metadata of the committed offset.

The committed offset is the partition's low watermark. The metadata is the checkpoint, a text of at most 4,095
characters. Every transaction that touches the partition commits it, so it is never older than the deliveries.

Form, version 2: fields separated by `|`, list items by `,`, numbers in hexadecimal:

    2|released|width,size,levels|closed,…|done,…|low,…|wheel's|pointer|due|id,id,…|cluster,intake,journal,level,…|parked
     |index|names,complete from|obeyed,topic

    closed     for each overflow level the start of its first open bucket, in widths of that level
    done       for each level how many widths before that the first bucket starts that is not done
    low        for each level the first offset of its log that is not done
    wheel's    a pointer, too: all records done in buckets that are not done were journalled at or after it
    pointer    the intake's: all offsets done above the low watermark were journalled at or after it
    due        for an intake with a fixed delay: the due time of the record just below the low watermark, or empty
    id         the writer's transactional ids, with `%`, `,` and `|` as %25, %2C, %7C
    cluster …  the ids of the cluster and of the topics that the offsets belong to (`origin`)
    parked     a pointer, too: all that is in the parked log was journalled at or after it
    index      a pointer, too: the last whole index of the levels' logs was journalled at or after it
    names      a pointer, too: all that waits under names was journalled at or after it, as changes and shards; then the
               offset of the intake from which on a message that waits has a name there
    obeyed     the offset of the log of pauses below which all records are obeyed, and the id of its topic

The fields after `id` are empty if there is nothing to say: no id is known, nothing is parked, there is no index, no
message waits under a name and the offset is 0, the log of pauses was never read. Empty fields at the end are left out.

A later version of tarry may add fields after these. A reader ignores fields that it does not know; a later version of
tarry reads this form.
"""

from dataclasses import dataclass

from tarry.core.progress.origin import UNKNOWN, Origin

LIMIT = 4095
"""The most characters of offset metadata that Kafka accepts by default (`offset.metadata.max.bytes` minus one)."""

_VERSION = "2"


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
class Obeyed:
    """How far a partition's owner obeys the log of pauses.

    Attributes:
        offset: all records below it are obeyed.
        topic_id: the id of the topic; empty if the brokers have no topic ids.
    """

    offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The data that a new owner of the partition needs in addition to the low watermark.

    Attributes:
        writer: the transactional ids of the process that wrote it; a new owner fences all of them.
        released: whether that process has released the partition.
        geometry: the shape of the overflow wheel.
        closed_ms: for each overflow level the start of its first open bucket, a multiple of the level's width.
        done_ms: for each level the start of the first bucket that is not done: no message due before it waits there.
        low: for each level the first offset of its log that is not done.
        wheel_pointer: the overflow wheel's journal pointer.
        pointer: the intake's journal pointer.
        due_below_ms: for an intake with a fixed delay, the due time of the record just below the low watermark.
        parked_pointer: the parked log's journal pointer; None if nothing is there.
        index_pointer: the journal pointer of the index of the levels' logs; None if there is none.
        origin: the cluster and the topics that the offsets belong to.
        names_pointer: the journal pointer of the names; None if no name waits.
        names_complete_from: a named message below this offset may wait although no name says so: it was adopted.
        obeyed: how far the owner obeys the log of pauses: no transaction delivers to a target that is paused there.
            None if it has never read that log.
    """

    writer: tuple[str, ...]
    released: bool
    geometry: Geometry
    closed_ms: tuple[int, ...] = ()
    done_ms: tuple[int, ...] = ()
    low: tuple[int, ...] = ()
    wheel_pointer: int = 0
    pointer: int = 0
    due_below_ms: int | None = None
    parked_pointer: int | None = None
    index_pointer: int | None = None
    origin: Origin = UNKNOWN
    names_pointer: int | None = None
    names_complete_from: int = 0
    obeyed: Obeyed | None = None

    def __post_init__(self) -> None:
        """By default nothing waits in the levels."""
        if self.closed_ms and not self.done_ms:
            object.__setattr__(self, "done_ms", self.closed_ms)
            object.__setattr__(self, "low", (0,) * len(self.closed_ms))

    @property
    def reads_from(self) -> int:
        """The journal offset from which a recovery reads: it needs no record before the smallest pointer."""
        pointers = [self.pointer]
        if self.geometry.levels:
            pointers.append(self.wheel_pointer)
        pointers += [one for one in (self.parked_pointer, self.index_pointer, self.names_pointer) if one is not None]
        return min(pointers)

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
        ids = list(self.origin.ids())
        names = "" if self.names_pointer is None else f"{self.names_pointer:x}"
        if names or self.names_complete_from:
            names = f"{names},{self.names_complete_from:x}"
        last = [
            ",".join(_escape(one) for one in ids) if any(ids) else "",
            "" if self.parked_pointer is None else f"{self.parked_pointer:x}",
            "" if self.index_pointer is None else f"{self.index_pointer:x}",
            names,
            "" if self.obeyed is None else f"{self.obeyed.offset:x},{_escape(self.obeyed.topic_id)}",
        ]
        while last and not last[-1]:
            del last[-1]
        return "|".join(
            (
                _VERSION,
                "1" if self.released else "0",
                f"{geometry.width_ms:x},{geometry.size:x},{geometry.levels:x}",
                ",".join(f"{at // geometry.width_of(i):x}" for i, at in enumerate(self.closed_ms, 1)),
                ",".join(
                    f"{(closed - done) // geometry.width_of(i):x}"
                    for i, (closed, done) in enumerate(zip(self.closed_ms, self.done_ms, strict=True), 1)
                ),
                ",".join(f"{low:x}" for low in self.low),
                f"{self.wheel_pointer:x}",
                f"{self.pointer:x}",
                "" if self.due_below_ms is None else f"{self.due_below_ms:x}",
                ",".join(_escape(name) for name in self.writer),
                *last,
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
        released, shape, closed, done, low, wheel_pointer, pointer, due, writer = fields[:9]
        origin, parked, index, names, obeyed = [*fields[9:14], "", "", "", "", ""][:5]
        names_pointer, _, complete_from = names.partition(",")
        obeyed_below, _, control_id = obeyed.partition(",")
        width_ms, size, levels = _numbers(shape, ",")
        geometry = Geometry(width_ms, size, levels)
        closed_ms = tuple(int(at, 16) * geometry.width_of(i) for i, at in enumerate(_split(closed), 1))
        lows = tuple(int(one, 16) for one in _split(low))
        widths = [int(many, 16) * geometry.width_of(i) for i, many in enumerate(_split(done), 1)]
        return Checkpoint(
            writer=tuple(_unescape(name) for name in _split(writer)),
            released={"0": False, "1": True}[released],
            geometry=geometry,
            closed_ms=closed_ms,
            done_ms=tuple(at - before for at, before in zip(closed_ms, widths, strict=True)),
            low=tuple(at for at, _ in zip(lows, closed_ms, strict=True)),
            wheel_pointer=int(wheel_pointer, 16),
            pointer=int(pointer, 16),
            due_below_ms=int(due, 16) if due else None,
            parked_pointer=int(parked, 16) if parked else None,
            index_pointer=int(index, 16) if index else None,
            names_pointer=int(names_pointer, 16) if names_pointer else None,
            names_complete_from=int(complete_from, 16) if complete_from else 0,
            origin=Origin.of([_unescape(one) for one in _split(origin)]) if origin else UNKNOWN,
            obeyed=Obeyed(int(obeyed_below, 16), _unescape(control_id)) if obeyed else None,
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


def _split(text: str) -> list[str]:
    return text.split(",") if text else []


def _numbers(text: str, separator: str) -> list[int]:
    return [int(part, 16) for part in text.split(separator)]


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace(",", "%2C").replace("|", "%7C")


def _unescape(name: str) -> str:
    return name.replace("%7C", "|").replace("%2C", ",").replace("%25", "%")
