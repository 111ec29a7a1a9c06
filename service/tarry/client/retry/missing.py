"""Looks for heads of key queues that do not come back: the intake may have cancelled one, or made it a dead letter.

The intake's results say what became of such a head; the intake still holds the record with its ticket. While heads are
missing, each result is read only once: the first look begins at the earliest time at which the heads can have been
sent, and the next looks read the new results. A head that was further back in its key queue may have been lost long
before that time. So each look that does not find all heads goes back twice as far as the look before.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import Message

from tarry.client.group_consumer import GroupClients
from tarry.client.outcome import parsed_result
from tarry.client.retry.core.journey import journey_of
from tarry.client.retry.core.key_queue import Ticket
from tarry.client.retry.core.message import Incoming
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.partition import RetryPartition
from tarry.clock import Clock
from tarry.errors import HeaderError
from tarry.headers import TARGET, ErrorCode, Outcome
from tarry.kafka.partition_logs import read_in_parts
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.topics import RESULTS, TopicAdmin
from tarry.kafka.types import Place

LOOK_EVERY_MS = 10_000
"""The time between two checks for overdue heads."""

LOOK_AGAIN_MS = 60_000
"""The time to the next check after a look: heads that it did not find are most likely only late."""

_NEVER_COMES = frozenset({Outcome.DEAD, Outcome.CANCELLED})

_NAMES_NO_TARGET = frozenset({ErrorCode.TARGET_NOT_ALLOWED, ErrorCode.INTERNAL_TARGET})
"""The reasons with which a result of ours names no target. Other results without a target are not ours."""

_SOURCE = re.compile(r"(.+)/(\d{1,10})/(\d{1,19})", re.ASCII)

Head = tuple[bytes, Ticket]
"""Key and ticket."""


class Lost(NamedTuple):
    """An intake record that will never be delivered."""

    place: Place
    """The partition of the intake that holds the record."""
    offset: int
    """The offset in that partition."""
    why: str
    """The outcome and the reason from its result."""


def lost_by(value: bytes | None, names: Names) -> Lost | None:
    """Return the record that a result declares cancelled or dead; None if it cannot be one of ours.

    The record may belong to another consumer: only its headers tell.

    Args:
        value: the value of the result.
        names: the names of our topics.
    """
    result = parsed_result(value)
    outcome, reason, target, source = (
        str(result.get(name) or "") for name in ("outcome", "reason", "target", "source")
    )
    if outcome not in _NEVER_COMES or (target != names.retry if target else reason not in _NAMES_NO_TARGET):
        return None
    found = _SOURCE.fullmatch(source)
    if found is None or found[1] != names.intake:
        return None
    return Lost((found[1], int(found[2])), int(found[3]), " ".join(filter(None, (outcome, reason))))


class Missing:
    """Looks for messages that were sent to the intake and do not come back.

    Args:
        clients: of this process's membership in the group.
        names: the names of the topics.
        clock: wall and monotonic time.
        after_ms: how late a head must be before it is looked for.
        longest_ms: the longest delay of a message that is sent to the intake.
        on_event: called with the name of an event and its fields.
    """

    def __init__(
        self,
        clients: GroupClients,
        names: Names,
        clock: Clock,
        *,
        after_ms: int,
        longest_ms: int,
        on_event: Callable[..., None],
    ) -> None:
        self._clients = clients
        self._names = names
        self._topics = TopicAdmin(clients.admin)
        self._offsets = clients.offsets
        self._clock = clock
        self._after_ms = after_ms
        self._longest_ms = longest_ms
        self._on_event = on_event
        self._look_again_ms = 0
        self._results = names.intake + RESULTS
        self._held: dict[Place, range] = {}
        """The offsets that each partition of the intake holds."""
        self._read: dict[Place, tuple[int, int]] = {}
        """The range of offsets that was read in each partition of the results."""
        self._lost: dict[Head, Lost] = {}
        self._back_ms = 0
        """How far back the next look goes at least."""

    def turn(self, partitions: Collection[RetryPartition], serve: Callable[[], None]) -> None:
        """Check from time to time whether heads are overdue, and look for their results.

        Args:
            partitions: all partitions that were taken over; `never_comes` is called on them.
            serve: called repeatedly during the look, to poll the group.

        Raises:
            RetriableError: the brokers do not answer.
        """
        monotonic_ms = self._clock.monotonic_ms()
        if monotonic_ms < self._look_again_ms:
            return
        self._look_again_ms = monotonic_ms + LOOK_EVERY_MS
        before_ms = self._clock.now_ms() - self._after_ms
        wanted = {
            head: due_ms - self._longest_ms - self._after_ms
            for partition in partitions
            for head, due_ms in partition.heads_overdue(before_ms).items()
        }
        if not wanted:
            self.forget()
            return
        self._on_event("heads_overdue", heads=len(wanted))
        for record, why in self.find(wanted, serve):
            for partition in partitions:
                partition.never_comes(record, why)
        # Heads that were not found are most likely late: the service lags or is down.
        self._look_again_ms = self._clock.monotonic_ms() + LOOK_AGAIN_MS

    def forget(self) -> None:
        """Drop what earlier looks have read: no head is missing."""
        self._read.clear()
        self._lost.clear()
        self._back_ms = 0

    def find(self, wanted: Mapping[Head, int], serve: Callable[[], None]) -> Iterator[tuple[Incoming, str]]:
        """Look for the results of heads.

        Args:
            wanted: keys and tickets, each with the earliest time of its result, epoch milliseconds.
            serve: called repeatedly during the look, to poll the group.

        Yields:
            For each head that will never come back: its record in the intake, and its outcome and reason.

        Raises:
            RetriableError: the brokers do not answer.
        """
        topics = self._results, self._names.intake
        there = self._topics.partitions(topics)
        for topic in topics:
            if topic not in there:
                self._clients.warn(f"{topic} does not exist or may not be described: cannot look for late messages")
                return
        places, intake = ([(topic, number) for number in range(there[topic])] for topic in topics)
        now_ms = self._clock.now_ms()
        back_ms = max(self._back_ms, now_ms - min(wanted.values()))
        reader = self._clients.new_reader(skips_deleted=True)
        try:
            self._look(reader, places, intake, max(0, now_ms - back_ms), serve)
            for head in wanted:
                if (lost := self._lost.get(head)) is not None:
                    sent = self._sent(reader, lost, serve)
                    if sent is not None:
                        yield sent, lost.why
                else:
                    self._back_ms = 2 * back_ms
        finally:
            reader.close()

    def _look(
        self, reader: Reader, places: list[Place], intake: list[Place], since_ms: int, serve: Callable[[], None]
    ) -> None:
        """Read the results since a time that were not read yet: older ones and new ones."""
        since = self._offsets.since(dict.fromkeys(places, since_ms))
        ends = self._offsets.ends(places, committed=True)
        # Only now: the intake then holds the record of each result, or it is deleted.
        held = self._offsets.ends(intake, committed=True)
        self._held = {place: range(start, held[place]) for place, start in self._offsets.starts(intake).items()}
        begins = {place: at if 0 <= at < ends[place] else ends[place] for place, at in since.items()}
        read = {place: self._read.get(place, (ends[place], ends[place])) for place in places}
        older = {place: at for place, at in begins.items() if at < read[place][0]}
        self._take(reader, older, {place: read[place][0] for place in older}, serve)
        newer = {place: end for place, (_, end) in read.items() if end < ends[place]}
        self._take(reader, newer, {place: ends[place] for place in newer}, serve)
        self._read = {place: (min(begins[place], read[place][0]), ends[place]) for place in places}

    def _take(
        self, reader: Reader, starts: Mapping[Place, int], ends: Mapping[Place, int], serve: Callable[[], None]
    ) -> None:
        """Read ranges of the results, and remember our records that will never be delivered."""
        found = [
            lost
            for record in _read(reader, starts, ends, serve)
            if (lost := lost_by(record.value(), self._names)) is not None
        ]
        for lost in found:
            sent = self._sent(reader, lost, serve)
            head = None if sent is None else self._head(sent)
            if head is not None:
                self._lost[head] = lost

    def _sent(self, reader: Reader, lost: Lost, serve: Callable[[], None]) -> Incoming | None:
        """Return the intake record of a result, if the intake still holds it.

        A result may also be of an earlier intake of this name, or by another program.
        """
        place, at = lost.place, lost.offset
        if at not in self._held.get(place, ()):
            return None
        for record in _read(reader, {place: at}, {place: at + 1}, serve):
            if record.offset() == at:
                return _incoming(record)
        return None

    def _head(self, record: Incoming) -> Head | None:
        """Return key and ticket of an intake record; None: it is not one of ours."""
        if (TARGET, self._names.retry.encode()) not in record.headers:
            return None
        try:
            return record.key or b"", journey_of(record.headers).ticket
        except HeaderError:
            return None


def _read(
    reader: Reader, starts: Mapping[Place, int], ends: Mapping[Place, int], serve: Callable[[], None]
) -> Iterator[Message]:
    """Read logs as `read_to_ends` does, and poll the group between two parts."""
    for part in read_in_parts(reader, starts, ends):
        serve()
        for _, record in part:
            yield record


def _incoming(record: Message) -> Incoming:
    offset, timestamp_ms = record.offset() or 0, record.timestamp()[1]
    return Incoming(record.topic() or "", offset, timestamp_ms, record.key(), record.value(), headers_of(record))
