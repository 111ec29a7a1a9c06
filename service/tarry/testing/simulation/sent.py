"""The messages, cancels and purges that were written to the intake of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass

from tarry.kafka.types import Place

Name = tuple[Place, bytes, int]
"""The partition of the intake, the id and the due time of a message. Messages with the same name are duplicates."""


@dataclass(slots=True)
class Sent:
    """A message in the intake.

    Attributes:
        id: the message's id.
        place: its partition of the intake.
        offset: its offset there.
        key: its key, or None.
        target: its target; None for a message that can only become a dead letter.
        due_ms: its due time, in wall time.
        value: its value.
        ends: the ends of the targets' logs when its owner had read it before it was due; None: not read in time.
        in_time: whether its owner had read it before it was due, and so also all earlier messages with the same name,
            and still knows them.
        was_known: whether the owner that delivered it knew an earlier message with the same name when it read this one,
            however late.
        expires_ms: when it expires, in wall time; None: never.
        term: the term in which it was first read: how many owners its partition had had by then.
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
    expires_ms: int | None = None
    term: int = 0

    @property
    def source(self) -> str:
        """Its position in the intake, as deliveries and results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the order of its key."""
        return self.due_ms, self.offset

    @property
    def name(self) -> Name:
        """The partition, id and due time, which it shares with its duplicates and its cancels."""
        return self.place, self.id, self.due_ms


@dataclass(slots=True)
class SentCancel:
    """A cancel in the intake.

    Attributes:
        place: its partition of the intake.
        offset: its offset there.
        message: the message that it cancels. The intake may have other messages with the same name.
        in_time: whether the owner had read the cancel, and so all earlier records, before the message was due.
        may_know: whether the owner read the cancel soon enough to still know the message after its delivery.
        unknown: the sources of messages in the parked log when the cancel was answered, which an earlier owner had put
            there: the present owner does not know their ids.
    """

    place: Place
    offset: int
    message: Sent
    in_time: bool = False
    may_know: bool = False
    unknown: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """Its position in the intake, as results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"


@dataclass(slots=True)
class SentPurge:
    """A purge in the intake.

    Attributes:
        place: its partition of the intake.
        offset: its offset there.
        target: the target whose messages it makes dead letters of.
        sent_ms: when it was written, in wall time; it is due when it is read.
        is_answered: whether its result was seen.
    """

    place: Place
    offset: int
    target: str
    sent_ms: int
    is_answered: bool = False

    @property
    def source(self) -> str:
        """Its position in the intake, as results name it."""
        return f"{self.place[0]}/{self.place[1]}/{self.offset}"

    def may_take(self, message: Sent, due_ms: int) -> bool:
        """Whether it may make a dead letter of a message, if it was due at a time."""
        is_of_target = message.place == self.place and message.target == self.target
        return is_of_target and message.rank < (due_ms, self.offset)

    def takes(self, message: Sent) -> bool:
        """Whether it makes a dead letter of a message for sure, if that one still waits for its target."""
        # One that is behind the purge in the intake may come after it, although it is due before it.
        return message.offset < self.offset and self.may_take(message, self.sent_ms)
