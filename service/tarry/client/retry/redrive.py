"""Redrives dead letters, each once: the same transaction holds the message and a marker in the dead-letter topic."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from confluent_kafka import Message

from tarry.client.retry.core.redrive import (
    Condition,
    DeadLetter,
    matching_letters,
    sent_again,
    without_expired,
    youngest_first,
)
from tarry.client.retry.writing import deliver
from tarry.clock import SystemClock
from tarry.errors import UsageError
from tarry.headers import CANCEL_NAME, STUB
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

    def look(self, conditions: Sequence[Condition], *, expired: bool = False) -> list[DeadLetter]:
        """Return the dead letters that meet all conditions and were not redriven yet; all are held in memory.

        Args:
            conditions: the conditions; all must hold.
            expired: also those that have expired, without their expiry.

        Raises:
            UsageError: the topic does not exist.
            RetriableError: the brokers do not answer.
        """
        found = TopicAdmin(self._admin).partitions([self._dead])
        if self._dead not in found:
            raise UsageError(f"there is no topic {self._dead}: check its name")
        places = [(self._dead, number) for number in range(found[self._dead])]
        offsets = Offsets(self._admin, "tarry-redrive", self._cluster)
        reader = Reader(self._cluster, self._on_warning)
        try:
            starts, ends = offsets.starts(places), offsets.ends(places, committed=True)
            self._on_progress(0, sum(ends[place] - starts[place] for place in places))
            letters = []
            for (_, partition), record in read_to_ends(reader, starts, ends):
                letters += self._letter(partition, record)
                self._on_progress(1, 0)
        finally:
            reader.close()
            offsets.close()
        selected = without_expired(matching_letters(letters, conditions), SystemClock().now_ms(), revive=expired)
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
        keys_are_names = self._keys_are_names(to)
        transactor = Transactor(self._cluster, f"tarry-redrive.{self._dead}")
        transactor.renew()  # before the look: it fences an earlier redrive, so all its markers are visible
        try:
            letters = youngest_first(self.look(conditions, expired=expired), keys_are_names=keys_are_names)
            self._on_progress(0, len(letters))
            for begin in range(0, len(letters), MOST):
                some = letters[begin : begin + MOST]
                transactor.begin()
                records = (sent_again(letter, self._dead, to, keys_are_names=keys_are_names) for letter in some)
                refused = deliver(transactor, chain.from_iterable(records))
                if refused is not None:
                    transactor.abort()
                    raise UsageError(f"could not send to {refused.topic}: {refused.error.str()}")
                transactor.commit()
                self._on_progress(len(some), 0)
        finally:
            transactor.close()
        return len(letters)

    def _keys_are_names(self, topic: str) -> bool:
        """Whether a topic is an intake that takes the key of a record for its name, as its owners say."""
        offsets = Offsets(self._admin, "tarry-redrive", self._cluster)
        try:
            topics, clock = TopicAdmin(self._admin), SystemClock()
            statuses = statuses_of(topic, self._cluster, topics, offsets, clock, self._on_warning)
        finally:
            offsets.close()
        return any(status.policy.same_key is not None for status in statuses.values())

    def _letter(self, partition: int, record: Message) -> list[DeadLetter]:
        """Return the dead letter; nothing if the record cannot be sent again unchanged."""
        offset = record.offset() or 0
        try:
            headers = read_headers(record) or []
        except SystemError:
            place = f"{self._dead}/{partition} at offset {offset}"
            self._on_warning(f"{place} is left out: the name of a header is not UTF-8, and cannot be written again")
            return []
        letter = DeadLetter(partition, offset, record.key(), record.value(), list(headers))
        if stub := letter.text(STUB):
            self._on_warning(f"{self._dead}/{partition} at offset {offset} is left out: the whole record is {stub[0]}")
            return []
        if letter.text(CANCEL_NAME):
            self._on_warning(
                f"{self._dead}/{partition} at offset {offset} is left out: a cancel by name would take what waits now"
            )
            return []
        return [letter]
