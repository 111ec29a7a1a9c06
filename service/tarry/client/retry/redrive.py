"""Redrives dead letters, each once: the same transaction holds the message and a note in the dead-letter topic.

Dismissing one writes the note alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message

from tarry.client.retry.core.message import OutgoingRecord
from tarry.client.retry.core.redrive import (
    Condition,
    DeadLetter,
    dismissed,
    is_stranger,
    matching_letters,
    older_of_names,
    sent_again,
    why_not_again,
    without_expired,
)
from tarry.client.retry.writing import RefusedRecord, deliver
from tarry.clock import SystemClock
from tarry.errors import RetriableError, UsageError
from tarry.headers import ERROR
from tarry.kafka.errors import is_refusal
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import read_headers
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import NO_TOPIC, TopicAdmin
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place

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
        self.refused = 0
        """How many dead letters the last run has left out, because Kafka refuses them for good."""

    def look(self, conditions: Sequence[Condition], *, to_now: bool = False) -> list[DeadLetter]:
        """Return the dead letters that meet all conditions and are not done with; all are held in memory.

        Args:
            conditions: the conditions; all must hold.
            to_now: wait until an open transaction, such as that of a service that was killed, hides no note any more.

        Raises:
            UsageError: the topic does not exist, or holds records of another kind only.
            RetriableError: the brokers do not answer.
        """
        return matching_letters(self._records(to_now=to_now), conditions)

    def sendable(
        self, to: str, conditions: Sequence[Condition], *, expired: bool = False, to_now: bool = False
    ) -> list[DeadLetter]:
        """Return the dead letters that `look` returns and that can be sent again to a topic.

        Those that cannot be sent at all are a warning each, the others a number.

        Args:
            to: the topic to send them to.
            conditions: as in `look`.
            expired: also those that have expired, without their expiry.
            to_now: as in `look`.

        Raises:
            as `look`.
        """
        as_names = keys_are_names(self._cluster, self._admin, to, self._on_warning)
        records = self._records(to_now=to_now)
        able = []
        for letter in matching_letters(records, conditions):
            if (why := why_not_again(letter)) is None:
                able.append(letter)
            else:
                self._leave_out(letter, why)
        older = older_of_names(records, keys_are_names=as_names)
        youngest = [letter for letter in able if (letter.partition, letter.offset) not in older]
        if len(youngest) < len(able):
            self._on_warning(
                f"{len(able) - len(youngest):,} of {self._dead} are left out, because there is a younger letter of the "
                "same key and name: dismiss that one, or these"
            )
        selected = without_expired(youngest, SystemClock().now_ms(), revive=expired)
        if selected.expired:
            self._on_warning(
                f"{selected.expired:,} of {self._dead} are left out, because they have expired: "
                "--expired sends them without tarry-expires-at"
            )
        return selected.letters

    def _leave_out(self, letter: DeadLetter, why: str) -> None:
        self._on_warning(f"{self._dead}/{letter.partition} at offset {letter.offset} is left out: {why}")

    def _places(self) -> list[Place]:
        found = TopicAdmin(self._admin).partitions([self._dead])
        if self._dead not in found:
            raise UsageError(f"there is no topic {self._dead}: check its name")
        return [(self._dead, number) for number in range(found[self._dead])]

    def _records(self, *, to_now: bool) -> Sequence[DeadLetter]:
        """Read the topic: its letters, and the notes about them."""
        places = self._places()
        with self._reading() as (offsets, reader):
            starts, ends = offsets.starts(places), offsets.ends(places, committed=not to_now)
            self._on_progress(0, sum(ends[place] - starts[place] for place in places))
            letters = []
            for (_, partition), record in read_to_ends(reader, starts, ends):
                letters += self._letter(partition, record)
                self._on_progress(1, 0)
        return self._without_strangers(letters)

    @contextmanager
    def _reading(self) -> Iterator[tuple[Offsets, Reader]]:
        offsets = Offsets(self._admin, "tarry-redrive", self._cluster)
        reader = Reader(self._cluster, self._on_warning, is_denial_final=True)
        try:
            yield offsets, reader
        finally:
            reader.close()
            offsets.close()

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

    def run(self, to: str, conditions: Sequence[Condition], *, expired: bool = False) -> int:
        """Send the dead letters that meet all conditions and were not redriven yet.

        Args:
            to: the topic to send them to.
            conditions: the conditions; all must hold.
            expired: also those that have expired, without their expiry.

        Returns:
            The number of messages sent. A dead letter that Kafka refuses for good stays: it is a warning, and `refused`
            counts it.

        Raises:
            UsageError: one of the topics does not exist, or may not be written to; earlier transactions are committed.
            FatalError: a later redrive of the same topic has fenced this one.
            RetriableError: the brokers do not answer.
        """
        if to not in TopicAdmin(self._admin).partitions([to]):
            raise UsageError(f"there is no topic {to}: check its name, or create it")
        as_names = keys_are_names(self._cluster, self._admin, to, self._on_warning)
        return self._write(
            lambda: self.sendable(to, conditions, expired=expired, to_now=True),
            lambda letter: sent_again(letter, self._dead, to, keys_are_names=as_names),
        )

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
        """Write the records of each dead letter, those of one letter in one transaction; return for how many."""
        transactor = Transactor(self._cluster, redrive_id(self._dead))
        transactor.renew()  # before the look: it fences an earlier redrive, so all its notes are visible
        self.refused = begin = one_by_one_until = 0
        try:
            letters = look()
            self._on_progress(0, len(letters))
            while begin < len(letters):
                some = letters[begin : begin + (1 if begin < one_by_one_until else MOST)]
                refused = self._commit(transactor, chain.from_iterable(map(records_of, some)))
                if refused is not None:
                    self._register_again(transactor)
                    if len(some) > 1:  # one of them is refused, and it is not always told which one
                        one_by_one_until = begin + len(some)
                        continue
                    self.refused += 1
                    self._leave_out(some[0], _could_not(refused))
                begin += len(some)
                self._on_progress(len(some), 0)
        finally:
            transactor.close()
        return len(letters) - self.refused

    @staticmethod
    def _commit(transactor: Transactor, records: Iterable[OutgoingRecord]) -> RefusedRecord | None:
        """Write records in one transaction; or return what is refused for good, and leave it open.

        Raises:
            UsageError: a record cannot be written for another reason.
        """
        transactor.begin()
        refused = deliver(transactor, records)
        if refused is None:
            transactor.commit()
        elif refused.error.code() in NO_TOPIC or not _is_for_good(refused.error):
            transactor.abort()
            raise UsageError(_could_not(refused))
        return refused

    def _register_again(self, transactor: Transactor) -> None:
        """Abort, and register again: after a refused record, the client library may lose the next ones without a word.

        Raises:
            RetriableError: until this was registered again, somebody else has done what this run was about to do.
        """
        places = self._places()
        with self._reading() as (offsets, reader):
            # With the transaction still open: if somebody else has registered by now, the abort fails.
            before = offsets.ends(places, committed=False)
            transactor.abort()
            transactor.renew()
            after = offsets.ends(places, committed=False)
            new = {place: at for place, at in before.items() if at < after[place]}
            for (_, partition), record in read_to_ends(reader, new, after):
                if any(letter.note is not None for letter in self._letter(partition, record)):
                    raise RetriableError(f"somebody else has redriven letters of {self._dead} meanwhile: run it again")

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


def _could_not(refused: RefusedRecord) -> str:
    return f"could not send to {refused.topic}: {refused.error.str()}"


def _is_for_good(error: KafkaError) -> bool:
    """Whether a record is refused each time: also one whose original partition the topic does not have (any more)."""
    return is_refusal(error) or error.code() == KafkaError._UNKNOWN_PARTITION


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
