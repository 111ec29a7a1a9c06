"""Finds messages that their owner delivered although it knew an earlier message with the same id and due time.

The owner of a partition knows a message from the moment when it reads it until some time after it is due, even after
the delivery. That knowledge ends with the owner's term: a new owner knows the messages that still wait, but none that
were delivered before.
"""

from collections import Counter

from tarry.kafka.types import Place
from tarry.testing.simulation.sent import Name, Sent


class Known:
    """The messages that the owners of the intake's partitions know. A term is the time of one owner of a partition."""

    def __init__(self) -> None:
        self._terms: Counter[Place] = Counter()
        """The number of take-overs of each partition, which is the number of its current term."""
        self._sent: dict[str, int] = {}
        """The term in which each unread message was sent, by its source."""
        self._read: dict[Name, int] = {}
        """The last term in which a message with this id and due time was both sent and read.

        A message of an earlier term does not count, because it may be done: its owner may have died in the turn in
        which it read the message, and the new owner skipped it.
        """
        self._doubtful: dict[str, int] = {}
        """By source, the term of each message that was read while its owner knew one with the same id and due time."""

    def take_over(self, place: Place) -> None:
        """Record a take-over of a partition."""
        self._terms[place] += 1

    def term(self, place: Place) -> int:
        """Return the number of the current term of a partition."""
        return self._terms[place]

    def send(self, message: Sent) -> None:
        """Record that a message was sent."""
        self._sent[message.source] = self._terms[message.place]

    def read(self, message: Sent, *, is_soon: bool) -> None:
        """Record that a message was read.

        Args:
            message: the message.
            is_soon: whether it was read soon enough that its owner still knows an earlier message with the same id and
                due time, if that was read in the same term.
        """
        term = self._terms[message.place]
        if is_soon and self._read.get(message.name) == term:
            self._doubtful[message.source] = term
        if self._sent.pop(message.source, None) == term:
            self._read[message.name] = term

    def deliver(self, message: Sent) -> None:
        """Record that a message was delivered; set its `was_known`."""
        message.was_known = self._doubtful.get(message.source) == self._terms[message.place]

    def forget(self, message: Sent) -> None:
        """Forget a lost message, because another message may get its offset."""
        self._sent.pop(message.source, None)
        self._doubtful.pop(message.source, None)
        self._read.pop(message.name, None)
