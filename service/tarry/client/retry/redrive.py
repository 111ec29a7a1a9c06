"""Sends dead letters again, each once: with a note beside it in the same transaction."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Message

from tarry.client.retry.core.redrive import Condition, DeadLetter, selected, sent_again
from tarry.client.retry.writing import deliver
from tarry.errors import UsageError
from tarry.headers import STUB
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import read_headers
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.kafka.transaction import Transactor

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

MOST = 1_000
"""Messages of one transaction."""


class Redrive:
    """Dead letters of one topic.

    Two at a time on one topic shut each other out: the later one goes on.

    Args:
        cluster: where.
        dead: the topic.
        on_warning: takes the text of an error that a client gets over by itself.
        on_progress: told how many records were read, or sent, and how many more are to be.
    """

    def __init__(
        self, cluster: Cluster, dead: str, on_warning: Callable[[str], None], on_progress: Callable[[int, int], None]
    ) -> None:
        self._cluster = cluster
        self._dead = dead
        self._on_warning = on_warning
        self._on_progress = on_progress
        self._admin: AdminClient = cluster.clients.admin(cluster.admin())

    def look(self, conditions: Sequence[Condition]) -> list[DeadLetter]:
        """The dead letters that all conditions hold for, and that were not sent again; all are held in memory.

        Raises:
            UsageError: there is no such topic.
            RetriableError: the brokers do not answer.
        """
        found = TopicAdmin(self._admin).find([self._dead])
        if self._dead not in found:
            raise UsageError(f"there is no topic {self._dead}")
        places = [(self._dead, number) for number in range(found[self._dead].partitions)]
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
        return selected(letters, conditions)

    def run(self, to: str, conditions: Sequence[Condition]) -> int:
        """Send them again.

        Args:
            to: the topic to send them to.
            conditions: which.

        Returns:
            How many.

        Raises:
            UsageError: one of the topics does not exist, or a message is refused; those before it were sent.
            FatalError: a later one goes on with the same topic.
            RetriableError: the brokers do not answer.
        """
        if to not in TopicAdmin(self._admin).find([to]):
            raise UsageError(f"there is no topic {to}")
        transactor = Transactor(self._cluster, f"tarry-redrive.{self._dead}")
        transactor.renew()  # before the look: what an earlier one has written by now is seen, and no more comes
        try:
            letters = self.look(conditions)
            self._on_progress(0, len(letters))
            for begin in range(0, len(letters), MOST):
                some = letters[begin : begin + MOST]
                transactor.begin()
                refused = deliver(
                    transactor, (record for letter in some for record in sent_again(letter, self._dead, to))
                )
                if refused is not None:
                    transactor.abort()
                    raise UsageError(f"could not send to {refused.topic}: {refused.error.str()}")
                transactor.commit()
                self._on_progress(len(some), 0)
        finally:
            transactor.close()
        return len(letters)

    def _letter(self, partition: int, record: Message) -> list[DeadLetter]:
        """The dead letter; none where it could not be sent as it came."""
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
        return [letter]
