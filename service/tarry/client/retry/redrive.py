"""Redrives dead letters, each once: the same transaction holds the message and a note in the dead-letter topic.

Dismissing one writes the note alone.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from confluent_kafka import Message

from tarry.client.retry.core.message import OutgoingRecord
from tarry.client.retry.core.redrive import (
    Condition,
    DeadLetter,
    dismissed,
    is_stranger,
    matching_letters,
    sent_again,
    why_not_again,
    without_expired,
    youngest_first,
)
from tarry.client.retry.writing import deliver
from tarry.clock import SystemClock
from tarry.errors import UsageError
from tarry.headers import ERROR
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import read_headers
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MOST = 1_000
"""The most messages of one transaction."""


class Redrive:
    """Redrives the dead letters of one topic.

    If two run on one topic at the same time, the later one fences the earlier one.

    Args:
        cluster: the Kafka cluster.
        dead: the dead-letter topic.
        on_warning: called with the text of an error from which a client recovers by itself, and for each dead letter
            that cannot be sent again.
        on_progress: called with the number of records just read or sent, and the number added to the total.
    """

    def __init__(
        self, cluster: Cluster, dead: str, on_warning: Callable[[str], None], on_progress: Callable[[int, int], None]
    ) -> None:
        self._cluster = cluster
        self._dead = dead
        self._on_warning = on_warning
        self._on_progress = on_progress
        self._admin: AdminClient = cluster.clients.admin(cluster.admin())

    def look(self, conditions: Sequence[Condition], *, to_now: bool = False) -> list[DeadLetter]:
        """Return the dead letters that meet all conditions and are not done with; all are held in memory.

        Args:
            conditions: the conditions; all must hold.
            to_now: wait until an open transaction, such as that of a service that was killed, hides no note any more.

        Raises:
            UsageError: the topic does not exist, or holds records of another kind only.
            RetriableError: the brokers do not answer.
        """
        found = TopicAdmin(self._admin).partitions([self._dead])
        if self._dead not in found:
            raise UsageError(f"there is no topic {self._dead}: check its name")
        places = [(self._dead, number) for number in range(found[self._dead])]
        offsets = Offsets(self._admin, "tarry-redrive", self._cluster)
        reader = Reader(self._cluster, self._on_warning, is_denial_final=True)
        try:
            starts, ends = offsets.starts(places), offsets.ends(places, committed=not to_now)
            self._on_progress(0, sum(ends[place] - starts[place] for place in places))
            letters = []
            for (_, partition), record in read_to_ends(reader, starts, ends):
                letters += self._letter(partition, record)
                self._on_progress(1, 0)
        finally:
            reader.close()
            offsets.close()
        return matching_letters(self._without_strangers(letters), conditions)

    def _without_strangers(self, records: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
        """Leave out records that are no dead letters; raise UsageError if the topic has no others."""
        letters = [record for record in records if not is_stranger(record)]
        strangers = len(records) - len(letters)
        if strangers and not letters:
            raise UsageError(
                f"{self._dead} is no topic of dead letters: none of its {strangers:,} records has the header {ERROR}"
            )
        if strangers:
            self._on_warning(
                f"{strangers:,} records of {self._dead} are left out: they are no dead letters, because they have no "
                f"header {ERROR}"
            )
        return letters

    def sendable(self, letters: Sequence[DeadLetter], *, expired: bool = False) -> list[DeadLetter]:
        """Return the dead letters that can be sent again; each other one is a warning, but for expired ones a number.

        Args:
            letters: from `look`.
            expired: also those that have expired, without their expiry.
        """
        able = []
        for letter in letters:
            if (why := why_not_again(letter)) is None:
                able.append(letter)
            else:
                self._on_warning(f"{self._dead}/{letter.partition} at offset {letter.offset} is left out: {why}")
        selected = without_expired(able, SystemClock().now_ms(), revive=expired)
        if selected.expired:
            self._on_warning(
                f"{selected.expired:,} of {self._dead} are left out, because they have expired: "
                "--expired sends them without tarry-expires-at"
            )
        return selected.letters

    def run(self, to: str, conditions: Sequence[Condition], *, expired: bool = False) -> int:
        """Send the dead letters that meet all conditions and were not redriven yet.

        Args:
            to: the topic to send them to.
            conditions: the conditions; all must hold.
            expired: also those that have expired, without their expiry.

        Returns:
            The number of messages sent.

        Raises:
            UsageError: one of the topics does not exist, or a message is refused; earlier transactions are committed.
            FatalError: a later redrive of the same topic has fenced this one.
            RetriableError: the brokers do not answer.
        """
        if to not in TopicAdmin(self._admin).partitions([to]):
            raise UsageError(f"there is no topic {to}: check its name, or create it")
        as_names = keys_are_names(self._cluster, self._admin, to, self._on_warning)

        def look() -> list[DeadLetter]:
            letters = self.sendable(self.look(conditions, to_now=True), expired=expired)
            return youngest_first(letters, keys_are_names=as_names)

        return self._write(look, lambda letter: sent_again(letter, self._dead, to, keys_are_names=as_names))

    def dismiss(self, conditions: Sequence[Condition]) -> int:
        """Note of the dead letters that meet all conditions that nothing follows: they count as done.

        Returns:
            The number of dead letters.

        Raises:
            as `run`.
        """
        return self._write(
            lambda: self.look(conditions, to_now=True),
            lambda letter: (dismissed(self._dead, letter.partition, letter.offset),),
        )

    def _write(
        self, look: Callable[[], list[DeadLetter]], records_of: Callable[[DeadLetter], Sequence[OutgoingRecord]]
    ) -> int:
        """Write the records of each dead letter, those of one letter in one transaction."""
        transactor = Transactor(self._cluster, redrive_id(self._dead))
        transactor.renew()  # before the look: it fences an earlier redrive, so all its notes are visible
        try:
            letters = look()
            self._on_progress(0, len(letters))
            for begin in range(0, len(letters), MOST):
                some = letters[begin : begin + MOST]
                transactor.begin()
                refused = deliver(transactor, chain.from_iterable(map(records_of, some)))
                if refused is not None:
                    transactor.abort()
                    raise UsageError(f"could not send to {refused.topic}: {refused.error.str()}")
                transactor.commit()
                self._on_progress(len(some), 0)
        finally:
            transactor.close()
        return len(letters)

    def _letter(self, partition: int, record: Message) -> list[DeadLetter]:
        """Return the dead letter; nothing if the record cannot be written again."""
        offset = record.offset() or 0
        try:
            headers = read_headers(record) or []
        except SystemError:
            place = f"{self._dead}/{partition} at offset {offset}"
            self._on_warning(f"{place} is left out: the name of a header is not UTF-8, and cannot be written again")
            return []
        return [DeadLetter(partition, offset, record.key(), record.value(), list(headers))]


def redrive_id(dead: str) -> str:
    """Return the transactional id of whoever redrives or dismisses the letters of a topic: one at a time."""
    return f"tarry-redrive.{dead}"


def keys_are_names(cluster: Cluster, admin: "AdminClient", topic: str, on_warning: Callable[[str], None]) -> bool:
    """Whether a topic is an intake that takes the key of a record for its name, as its owners say.

    Raises:
        RetriableError: the brokers do not answer.
    """
    offsets = Offsets(admin, "tarry-redrive", cluster)
    try:
        statuses = statuses_of(topic, cluster, TopicAdmin(admin), offsets, SystemClock(), on_warning)
    finally:
        offsets.close()
    return any(status.policy.same_key is not None for status in statuses.values())
