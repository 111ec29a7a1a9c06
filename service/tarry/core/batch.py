"""What one transaction does for one partition."""

from dataclasses import dataclass, field

from tarry.core.levels import Bucket
from tarry.core.message import DeadMessage, FiledMessage, HeldMessage
from tarry.core.source import INTAKE, Source

Filing = list[tuple[FiledMessage, Bucket]]
"""Messages that one transaction files, and where each goes."""


@dataclass(slots=True)
class Batch:
    """What one transaction delivers, or finds undeliverable."""

    due: list[HeldMessage] = field(default_factory=list)
    dead: list[DeadMessage] = field(default_factory=list)
    retired: list[HeldMessage] = field(default_factory=list)
    """Messages of `dead` that were due: they were found undeliverable when they fired."""

    def __len__(self) -> int:
        return len(self.due) + len(self.dead)

    def offsets(self) -> dict[Source, list[int]]:
        """The offsets that the transaction completes, by the log that they stand in."""
        offsets: dict[Source, list[int]] = {INTAKE: []}
        own = offsets[INTAKE]
        for message in self.due:
            if type(message) is FiledMessage and message.source is not INTAKE:
                offsets.setdefault(message.source, []).append(message.offset)
            else:
                own.append(message.sequence)
        for dead in self.dead:
            offsets.setdefault(dead.source, []).append(dead.offset)
        return offsets


def offsets_of(filing: Filing) -> dict[Source, list[int]]:
    """The offsets that a filing completes, by the log that they stand in."""
    offsets: dict[Source, list[int]] = {}
    for message, _ in filing:
        offsets.setdefault(message.source, []).append(message.offset)
    return offsets


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is committed with a batch: the group's offset, its metadata, and the journal's record."""

    low: int
    metadata: str
    journal: bytes
