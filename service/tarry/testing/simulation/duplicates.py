"""Checks messages with the same id and due time, called duplicates of each other here, and their cancels.

- Each cancel has exactly one final answer, and that answer is true.
- A message before a cancel that was read in time is not delivered. No message is delivered after a later cancel was
  answered `cancelled`, except a message that waits for its target for longer than its owner knows it.
- A message with the result `duplicate` has another one that was delivered or is dead, or that was cancelled by a cancel
  after both.
- Of two messages without a cancel, only one is delivered if the second one was read before they were due, or later
  while its owner knew the first one.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tarry.headers import Outcome
from tarry.testing.simulation.sent import Name, Sent, SentCancel

NOT_FINAL = frozenset({Outcome.CANCEL_FILED, Outcome.CANCEL_TOO_LATE, Outcome.SCHEDULED})
"""The outcomes that are not the final outcome of a message."""
SETTLED = frozenset({Outcome.CANCELLED, Outcome.REPLACED, Outcome.SKIPPED, Outcome.DUPLICATE})
"""The outcomes of messages that are neither delivered nor dead."""


@dataclass(frozen=True, slots=True)
class SeenResult:
    """A record of the results topic.

    Attributes:
        fields: its fields.
        offset: its offset in the partition of the results.
    """

    fields: Mapping[str, Any]
    offset: int

    @property
    def outcome(self) -> str:
        """The outcome."""
        return str(self.fields["outcome"])

    @property
    def source(self) -> str:
        """The position of the message in the intake; that of the cancel if there is no message."""
        return str(self.fields["source"])

    @property
    def cancelled_by(self) -> int:
        """The offset of the cancel that cancelled it; -1 if there is none."""
        return int(self.fields.get("cancel_source", "-1").rpartition("/")[2])


class Duplicates:
    """The messages of each id and due time, and their results.

    Args:
        sent: all messages.
        results: all results.
        left: the positions in the intake of all messages that were delivered or are dead.
    """

    def __init__(self, sent: Iterable[Sent], results: Sequence[SeenResult], left: Container[str]) -> None:
        self._results = results
        self._left = left
        self._by_name: dict[Name, list[Sent]] = defaultdict(list)
        for message in sent:
            self._by_name[message.name].append(message)

    def faults_of_cancels(self, cancels: Iterable[SentCancel]) -> Iterator[tuple[str, str]]:
        """Return the faults of answers to cancels: kind and text."""
        answers: dict[str, list[SeenResult]] = defaultdict(list)
        for one in self._results:
            if one.outcome in {Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE}:
                answers[one.fields.get("cancel_source", "")].append(one)
        filed = Counter(one.fields["cancel_source"] for one in self._results if one.outcome == Outcome.CANCEL_FILED)
        fired = {one.source: one.offset for one in self._results if one.outcome == Outcome.FIRED}
        for cancel in cancels:
            answers_to_it = answers[cancel.source]
            if len(answers_to_it) != 1 or filed[cancel.source] > 1:
                yield "indefinite", f"{len(answers_to_it)} outcomes of {cancel}"
            for message in self._by_name[cancel.message.name]:
                if message.offset > cancel.offset or message.source not in fired:
                    continue
                if cancel.in_time:
                    yield "not cancelled", f"{message}, by {cancel}"
                # A delivery and its result are in one transaction: the order of the results is the order of the events.
                lies = (
                    one.outcome == Outcome.CANCELLED and fired[message.source] > one.offset for one in answers_to_it
                )
                if cancel.may_know and message.source not in cancel.unknown and any(lies):
                    yield "cancelled, and delivered", f"{message}, by {cancel}"

    def faults_of_duplicates(
        self, cancels: Iterable[SentCancel], repeated: Container[bytes]
    ) -> Iterator[tuple[str, str]]:
        """Return the faults of duplicates: kind and text."""
        cancelled = {cancel.message.name for cancel in cancels}
        fired = {one.source for one in self._results if one.outcome == Outcome.FIRED}
        for name, messages in self._by_name.items():
            both = sorted((one for one in messages if one.source in fired), key=lambda one: one.offset)
            if (
                name not in cancelled
                and name[1] not in repeated
                and any(one.in_time or one.was_known for one in both[1:])
            ):
                yield "twice", f"both of two that are alike: {both}"
        settled = {one.source: one for one in self._results if one.outcome in SETTLED}
        for messages in self._by_name.values():
            for message in messages:
                result = settled.get(message.source)
                if result is None or result.outcome != Outcome.DUPLICATE:
                    continue
                if message.source in self._left:
                    continue  # the duplicate is a repetition of this same message
                others = [one.source for one in messages if one is not message]
                is_taken = any(settled[one].cancelled_by > message.offset for one in others if one in settled)
                if not is_taken and not any(one in self._left for one in others):
                    yield "lost", f"a duplicate of nothing: {message}"
