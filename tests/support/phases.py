"""The phases of the overflow wheel, recognised by calls of the client library; a process stops itself in one of them.

    filing-written      messages of the intake are in the buckets' logs, and no offset is sent
    filing-offsets      the offsets are sent; only the commit is missing
    filing-committed    the transaction is committed, but the process does not know it
    closed              a committed checkpoint names a bucket as closed for the first time
    level-2-read        some records of a closed bucket of level 2 are read, and not filed again yet
    level-2-written, level-2-offsets, level-2-committed
                        as for filing, in a transaction that moves messages of level 2 down
    level-1-read        some records of a closed bucket of level 1 are read, and not held yet
    level-1-written, level-1-offsets, level-1-committed
                        as for filing, in a transaction that fires messages of level 1
    read-again          a pass after the first reads a bucket of level 1 that is larger than memory
    trimming            the deletion of done records is requested, and the answer has not come yet
    trimmed             the records are deleted, but the process does not know it

The journal records of a transaction show what it does.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.core.progress.checkpoint import decode_checkpoint
from tarry.core.progress.journal import Copy, DoneEntry, decode_entry
from tarry.kafka.clients import Properties
from tarry.kafka.topics import JOURNAL
from tests.support.fate import Fate

if TYPE_CHECKING:
    from concurrent.futures import Future

Phase = Literal[
    "filing-written",
    "filing-offsets",
    "filing-committed",
    "closed",
    "level-2-read",
    "level-2-written",
    "level-2-offsets",
    "level-2-committed",
    "level-1-read",
    "level-1-written",
    "level-1-offsets",
    "level-1-committed",
    "read-again",
    "trimming",
    "trimmed",
]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)

ANSWER_S: Final = 10.0


class PhasedProducer(Producer):
    """A producer whose process may stop in a transaction, depending on what the transaction does.

    Args:
        properties: librdkafka's.
        fate: when to stop.
        doing: the first part of the phase's name for transactions that complete records of the intake.
    """

    def __init__(self, properties: Properties, fate: Fate, doing: str) -> None:
        super().__init__(properties)
        self._fate = fate
        self._doing = doing
        self._open: set[str] = set()
        self._closed: set[tuple[int, ...]] = set()
        self._closes = False

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._open.clear()
        self._closes = False

    def produce(self, *arguments: Any, **named: Any) -> None:
        topic, value, _key, partition = arguments[:4]
        if topic.endswith(JOURNAL):
            self._note(partition, value)
        super().produce(*arguments, **named)

    def send_offsets_to_transaction(self, positions: list[TopicPartition], *arguments: Any) -> None:
        if self._looms("written"):
            self.flush()
            self._fate.strike()
        super().send_offsets_to_transaction(positions, *arguments)
        if self._looms("offsets"):
            self._fate.strike()

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        if self._looms("committed") or (self._closes and self._fate.looms("closed")):
            self._fate.strike()

    def _looms(self, step: str) -> bool:
        return any(self._fate.looms(f"{doing}-{step}") for doing in self._open)

    def _note(self, partition: int, value: bytes) -> None:
        """Note what the transaction completes, or which buckets a copy of the checkpoint names."""
        record = decode_entry(value)
        if isinstance(record, Copy):
            found = decode_checkpoint(record.checkpoint)
            levels = enumerate(zip(found.done_ms, found.closed_ms, strict=True), 1)
            closed = {(partition, level, closed_ms) for level, (done_ms, closed_ms) in levels if done_ms < closed_ms}
            self._closes |= not closed <= self._closed
            self._closed |= closed
        elif isinstance(record, DoneEntry):
            self._open |= {f"level-{level}" if level else self._doing for level, _ in record.ranges}


class PhasedConsumer(Consumer):
    """A consumer whose process may stop when it has read records of buckets."""

    def __init__(self, properties: Properties, fate: Fate) -> None:
        super().__init__(properties)
        self._fate = fate
        self._next: dict[tuple[str, int], int] = {}

    def consume(self, *arguments: Any) -> "list[Message[Any, Any]]":
        records = super().consume(*arguments)
        for phase in {phase for record in records for phase in self._phases(record)}:
            if self._fate.looms(phase):
                self._fate.strike()
        return records

    def _phases(self, record: "Message[Any, Any]") -> list[str]:
        topic = record.topic() or ""
        if record.error() is not None or not is_wheel(topic):
            return []
        level = topic.rpartition("-")[2]
        place, offset = (topic, record.partition() or 0), record.offset() or 0
        seen = offset < self._next.get(place, 0)
        self._next[place] = max(offset + 1, self._next.get(place, 0))
        return [f"level-{level}-read", *(["read-again"] if seen and level == "1" else [])]


class PhasedAdmin(AdminClient):
    """An admin client whose process may stop when it empties buckets."""

    def __init__(self, properties: Properties, fate: Fate) -> None:
        super().__init__(properties)
        self._fate = fate

    def delete_records(  # type: ignore[override]  # as the library's own does
        self, topic_partition_offsets: list[TopicPartition], **named: Any
    ) -> "dict[TopicPartition, Future[Any]]":
        futures = super().delete_records(topic_partition_offsets, **named)
        if any(is_wheel(place.topic) for place in topic_partition_offsets):
            if self._fate.looms("trimming"):
                self._fate.strike_soon()
            if self._fate.looms("trimmed"):
                for future in futures.values():
                    future.result(ANSWER_S)
                self._fate.strike()
        return futures


def is_wheel(topic: str) -> bool:
    """Whether a topic is a level of an overflow wheel."""
    return ".wheel-" in topic
