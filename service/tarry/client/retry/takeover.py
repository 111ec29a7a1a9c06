"""Taking partitions of a consumer over: the service's own steps (`tarry.kafka.takeover`), for less.

0. Prove membership by a commit: a zombie must not fence who is healthy.
1. Fence whoever the offsets name as the writer, and has not released them: what it left open is aborted.
2. Name this process as the writer.
3. Read which keys are in trouble, up to the end that the log has now, whatever hides it.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from tarry.client.retry.core.key_queue import KeyQueues, Trouble, decode
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.partition import RetryPartition
from tarry.client.retry.core.policy import RetryPolicy
from tarry.errors import UsageError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import read_to_ends
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import fence
from tarry.kafka.types import OffsetMetadata, Place

WRITER = "tarry-retry:"
"""What the metadata of an offset begins with while a process owns it; its transactional id stands behind."""


class Begin(StrEnum):
    """Where a group begins that has committed nothing."""

    EARLIEST = "earliest"
    LATEST = "latest"


class TakeOver:
    """Takes partitions over.

    Args:
        cluster: where.
        names: of the topics.
        membership: of this process.
        offsets: questions to the brokers.
        transactional_id: of this process.
        policy: decides after failures.
        begin: where to, without offsets.
        keeps_order: whether a key's messages wait for one that failed.
        on_warning: takes the text of an error that a client gets over by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        names: Names,
        membership: Membership,
        offsets: Offsets,
        transactional_id: str,
        policy: RetryPolicy,
        begin: Begin,
        on_warning: Callable[[str], None],
        *,
        keeps_order: bool,
    ) -> None:
        self._cluster = cluster
        self._names = names
        self._membership = membership
        self._offsets = offsets
        self._id = transactional_id
        self._policy = policy
        self._begin = begin
        self._on_warning = on_warning
        self._keeps_order = keeps_order

    def run(self, numbers: Sequence[int]) -> dict[int, RetryPartition]:
        """Take partitions over, by number.

        Raises:
            RetriableError: refused for now; try again.
            UsageError: what the state topic holds is not this consumer's.
        """
        names = self._names
        places = [(topic, number) for number in numbers for topic in (names.topic, names.retry)]
        self._membership.commit({(names.state, number): (0, "") for number in numbers})
        writers = {writer_of(found) for found in self._offsets.committed(places).values()} - {"", self._id}
        fence(self._cluster, sorted(writers))
        positions = self._positions(places, self._membership.committed(places))
        self._membership.commit({place: (position, WRITER + self._id) for place, position in positions.items()})
        troubles = self._troubles(numbers)
        return {
            number: RetryPartition(
                names,
                number,
                self._policy,
                KeyQueues(self._policy.least_ms, troubles[number]),
                {topic: positions[topic, number] for topic in (names.topic, names.retry)},
                keeps_order=self._keeps_order,
            )
            for number in numbers
        }

    def _positions(self, places: Sequence[Place], committed: dict[Place, OffsetMetadata]) -> dict[Place, int]:
        missing = [place for place in places if place not in committed]
        found = {place: offset for place, (offset, _) in committed.items()}
        if not missing:
            return found
        begins = self._offsets.starts(missing)
        if self._begin is Begin.LATEST:
            ends = self._offsets.ends(missing, committed=True)
            # What has come back was sent off by this group: none of it is to be left out.
            begins = {place: begins[place] if place[0] == self._names.retry else ends[place] for place in missing}
        return {**found, **begins}

    def _troubles(self, numbers: Sequence[int]) -> dict[int, dict[bytes, Trouble]]:
        logs = [(self._names.state, number) for number in numbers]
        starts, ends = self._offsets.starts(logs), self._offsets.ends(logs, committed=False)
        filled = {log: start for log, start in starts.items() if start < ends[log]}
        troubles: dict[int, dict[bytes, Trouble]] = {number: {} for number in numbers}
        if not filled:
            return troubles
        reader = Reader(self._cluster, self._on_warning)
        try:
            for (_, number), record in read_to_ends(reader, filled, ends):
                key, value = record.key() or b"", record.value()
                if value is None:
                    troubles[number].pop(key, None)
                else:
                    troubles[number][key] = self._decoded(value, number, record.offset() or 0)
        finally:
            reader.close()
        return troubles

    def _decoded(self, value: bytes, number: int, offset: int) -> Trouble:
        try:
            return decode(value)
        except ValueError as error:
            raise UsageError(f"{self._names.state}/{number} at offset {offset}: {error}") from error


def writer_of(found: OffsetMetadata) -> str:
    """The transactional id that an offset's metadata names; empty where it names none."""
    _, metadata = found
    return metadata.removeprefix(WRITER) if metadata.startswith(WRITER) else ""
