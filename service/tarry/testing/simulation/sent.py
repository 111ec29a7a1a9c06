"""What was written to the intake of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass

from tarry.kafka.types import Place

Name = tuple[Place, bytes, int]
"""Partition of the intake, id, due time."""


@dataclass(slots=True)
class Sent:
    """A message in the intake.

    Attributes:
        id: of the message.
        place: the intake's partition.
        offset: in it.
        key: of the message, or None.
        target: where it is to arrive; None for one that can only become a dead letter.
        due_ms: wall time.
        value: of the message.
        ends: how far the logs of the targets reached when its owner had read it in time; None while it has not.
        in_time: whether the owner had read it, and so all like it in front of it, before that was due, and knows it.
        was_known: whether who delivered it had read it while it knew one like it in front of it, however late.
    """

    id: bytes
    place: Place
    offset: int
    key: bytes | None
    target: str | None
    due_ms: int
    value: bytes
    ends: Mapping[Place, int] | None = None
    in_time: bool = False
    was_known: bool = False

    @property
    def source(self) -> str:
        """As deliveries and results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"

    @property
    def name(self) -> Name:
        """What it has in common with others like it, and with its cancels."""
        return self.place, self.id, self.due_ms


@dataclass(slots=True)
class SentCancel:
    """A cancel in the intake.

    Attributes:
        place: the intake's partition.
        offset: in it.
        message: what it is for; others like it may stand in front of it too, or behind it.
        in_time: whether the owner had read it, and so all in front of it, before that was due.
        may_know: whether that was no longer after it than one like it is known that was handed out.
    """

    place: Place
    offset: int
    message: Sent
    in_time: bool = False
    may_know: bool = False

    @property
    def source(self) -> str:
        """As results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"
