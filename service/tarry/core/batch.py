"""What one transaction does for one partition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from tarry.core.message import BY_DUE, DeadMessage, FiledMessage, HeldMessage
from tarry.core.progress.source import INTAKE, Offsets, Source
from tarry.headers import Outcome

UNBOUNDED = 1 << 62
"""Bytes of a transaction that may take any number."""

_size_bytes: Callable[[HeldMessage | DeadMessage], int] = attrgetter("size_bytes")


class Resolution(NamedTuple):
    """What became of a message, or of a cancel, that is not delivered.

    Attributes:
        outcome: cancelled, duplicate, or a cancel that came too late.
        message: the message; where there was none to cancel, the cancel.
        cancel: what cancelled it.
    """

    outcome: Outcome
    message: HeldMessage
    cancel: HeldMessage | None = None

    @property
    def records(self) -> tuple[HeldMessage, ...]:
        """What is done with it."""
        return (self.message,) if self.cancel is None else (self.message, self.cancel)


@dataclass(slots=True)
class Batch:
    """What one transaction delivers, finds undeliverable, or settles without a delivery."""

    due: list[HeldMessage] = field(default_factory=list)
    dead: list[DeadMessage] = field(default_factory=list)
    retired: list[HeldMessage] = field(default_factory=list)
    """Messages of `dead` that were due: they were found undeliverable when they fired."""
    resolutions: list[Resolution] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.due) + len(self.dead) + len(self.resolutions)

    @property
    def size_bytes(self) -> int:
        """About how much a transaction has to write for it."""
        records = sum(record.size_bytes for resolution in self.resolutions for record in resolution.records)
        return sum(map(_size_bytes, self.due)) + sum(map(_size_bytes, self.dead)) + records

    def give_up(self, messages: Mapping[int, tuple[str, str]]) -> None:
        """Turn messages that can never be delivered into dead letters of the same batch, before it is settled.

        Args:
            messages: for the offset in the intake of each the error code and detail.
        """
        kept: list[HeldMessage] = []
        for message in self.due:
            if message.sequence in messages:
                code, detail = messages[message.sequence]
                self.retired.append(message)
                self.dead.append(DeadMessage.of(message, code, detail))
            else:
                kept.append(message)
        self.due = kept

    def set_aside(self, is_apart: Callable[[DeadMessage], bool]) -> tuple[list[DeadMessage], list[HeldMessage]]:
        """Let go of dead letters that are to be written apart, before it is settled.

        Returns:
            These, and the messages of those of them that were due.
        """
        apart = [dead for dead in self.dead if is_apart(dead)]
        if not apart:
            return [], []
        gone = {dead.location for dead in apart}
        self.dead = [dead for dead in self.dead if dead.location not in gone]
        retired = [message for message in self.retired if message.location in gone]
        self.retired = [message for message in self.retired if message.location not in gone]
        return apart, retired

    def reinstate(self) -> None:
        """The transaction aborted: what was found undeliverable is due again, in its place."""
        retired = {message.location for message in self.retired}
        self.dead = [dead for dead in self.dead if dead.location not in retired]
        self.due = sorted([*self.due, *self.retired], key=BY_DUE)
        self.retired = []

    def offsets(self) -> dict[Source, list[int]]:
        """The offsets that the transaction completes, by the log that they stand in."""
        offsets: dict[Source, list[int]] = {INTAKE: []}
        own = offsets[INTAKE]
        for message in self.due:
            if type(message) is not HeldMessage and message.source is not INTAKE:
                offsets.setdefault(message.source, []).append(message.offset)
            else:
                own.append(message.sequence)
        for record in (record for resolution in self.resolutions for record in resolution.records):
            offsets.setdefault(record.source, []).append(record.offset)
        for dead in self.dead:
            offsets.setdefault(dead.source, []).append(dead.offset)
        return offsets


class Filing:
    """What one transaction files of one partition.

    Args:
        records: messages, and the slot to which each goes.
    """

    __slots__ = ("offsets", "records")

    def __init__(self, records: list[tuple[FiledMessage, Source]]) -> None:
        self.records = records
        offsets: dict[Source, list[int]] = {}
        for message, _ in records:
            offsets.setdefault(message.source, []).append(message.offset)
        self.offsets: Offsets = offsets
        """Those that the transaction completes, by the log that they stand in."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def size_bytes(self) -> int:
        """About how much a transaction has to write for it."""
        return sum(message.size_bytes for message, _ in self.records)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is committed with a batch: the group's offset, its metadata, and the journal's records."""

    low: int
    metadata: str
    journal: bytes
    summary: tuple[bytes, ...] = ()
    """Of the journal, before the other: what is done above the watermarks, where it is said again."""


def fitting(sizes: Sequence[int], limit_bytes: int) -> int:
    """How many of these, from the first on, take no more than so many bytes together; one where it takes more."""
    count = 0
    for size in sizes:
        limit_bytes -= size
        if limit_bytes < 0 and count:
            break
        count += 1
    return count
