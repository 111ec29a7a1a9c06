"""Which messages were delivered by an owner that knew one like them, and so for a duplicate.

An owner knows a message from when it has read it until some time after it was due, also when it has delivered it. That
ends with its term: who takes over knows what still waits, and nothing of what was delivered before.
"""

from collections import Counter

from tarry.kafka.types import Place
from tarry.testing.simulation.sent import Name, Sent


class Known:
    """What the owners of the intake's partitions know."""

    def __init__(self) -> None:
        self._terms: Counter[Place] = Counter()
        """How often each partition was taken over."""
        self._sent: dict[str, int] = {}
        """In which term each message was sent that is not read yet, by its place."""
        self._read: dict[Name, int] = {}
        """In which term a message of this id and due time was read last that was sent in it.

        One that was sent before may be done: its owner died in the turn in which it read it, and the next one passed
        over it.
        """
        self._doubtful: dict[str, int] = {}
        """By the place of each message that was read while one like it was known: in which term."""

    def take_over(self, place: Place) -> None:
        """A partition was taken over."""
        self._terms[place] += 1

    def send(self, message: Sent) -> None:
        """A message was sent."""
        self._sent[message.source] = self._terms[message.place]

    def read(self, message: Sent, *, is_soon: bool) -> None:
        """A message was read.

        Args:
            message: the one.
            is_soon: whether that was so soon that one like it is known, if it was read in the same term.
        """
        term = self._terms[message.place]
        if is_soon and self._read.get(message.name) == term:
            self._doubtful[message.source] = term
        if self._sent.pop(message.source, None) == term:
            self._read[message.name] = term

    def deliver(self, message: Sent) -> None:
        """A message was delivered."""
        message.was_known = self._doubtful.get(message.source) == self._terms[message.place]

    def forget(self, message: Sent) -> None:
        """Another message may come to stand in the place of one."""
        self._sent.pop(message.source, None)
        self._doubtful.pop(message.source, None)
        self._read.pop(message.name, None)
