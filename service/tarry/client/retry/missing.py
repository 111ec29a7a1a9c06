"""Looking for a head that does not come back: an intake may have cancelled it, or found that it can't be delivered.

What became of it stands in the intake's results, and the record itself, with its ticket, in the intake.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Message

from tarry.client.outcome import parsed_result
from tarry.core.retry.convoy import Ticket
from tarry.core.retry.journey import journey_of
from tarry.core.retry.message import Incoming
from tarry.core.retry.names import Names
from tarry.errors import HeaderError
from tarry.headers import Outcome
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import RESULTS, TopicAdmin

SERVE_EVERY = 5_000
"""Results."""

_NEVER_COMES = frozenset({Outcome.DEAD, Outcome.CANCELLED})


class Missing:
    """Looks for messages that were sent off and do not come back.

    Args:
        cluster: where.
        names: of the topics.
        topics: finds topics.
        offsets: questions to the brokers.
        on_warning: takes the text of an error that a client gets over by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        topics: TopicAdmin,
        offsets: Offsets,
        on_warning: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._names = names
        self._topics = topics
        self._offsets = offsets
        self._on_warning = on_warning

    def find(
        self, wanted: Mapping[tuple[bytes, Ticket], int], serve: Callable[[], None]
    ) -> Iterator[tuple[Incoming, str]]:
        """Look for heads.

        Args:
            wanted: keys and tickets, and since when their results can be there, epoch milliseconds.
            serve: called again and again: there may be much to read.

        Yields:
            For each that never comes back its record in the intake, and what became of it.

        Raises:
            RetriableError: the brokers do not answer.
        """
        topic = self._names.intake + RESULTS
        there = self._topics.find([topic])
        if topic not in there:
            self._on_warning(f"{topic} is not to be seen: what has become of messages that are late is not known")
            return
        places = [(topic, number) for number in range(there[topic].partitions)]
        since = self._offsets.since(dict.fromkeys(places, min(wanted.values())))
        ends = self._offsets.ends(places, committed=True)
        starts = {place: at for place, at in since.items() if 0 <= at < ends[place]}
        reader = Reader(self._cluster, self._on_warning)
        try:
            found = []
            logs = read_to_ends(reader, starts, ends)
            for number, (_, record) in enumerate(logs):
                if number % SERVE_EVERY == 0:
                    serve()
                result = parsed_result(record.value())
                if result.get("outcome") in _NEVER_COMES and result.get("target") == self._names.retry:
                    found.append(result)
            for result in found:
                sent = self._source(reader, str(result.get("source")))
                if sent is not None and self._is_wanted(sent, wanted):
                    yield sent, " ".join(filter(None, (result["outcome"], result.get("reason"))))
        finally:
            reader.close()

    def _source(self, reader: Reader, source: str) -> Incoming | None:
        """The intake's record that a result is about, if it is still there."""
        topic, partition, offset = source.rsplit("/", 2)
        place = topic, int(partition)
        at = int(offset)
        if self._offsets.starts([place])[place] > at:
            return None
        for _, record in read_to_ends(reader, {place: at}, {place: at + 1}):
            if record.offset() == at:
                return _incoming(record)
        return None

    @staticmethod
    def _is_wanted(record: Incoming, wanted: Mapping[tuple[bytes, Ticket], int]) -> bool:
        try:
            return (record.key or b"", journey_of(record.headers).ticket) in wanted
        except HeaderError:
            return False


def _incoming(record: Message) -> Incoming:
    headers: Any = record.headers() or []
    return Incoming(
        record.topic() or "", record.offset() or 0, record.timestamp()[1], record.key(), record.value(), list(headers)
    )
