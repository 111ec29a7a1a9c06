"""Takes over partitions of a consumer, with a subset of the service's own steps (`tarry.kafka.takeover`).

0. Prove membership by a commit: a zombie must not fence a healthy member.
1. Fence each writer that the offset metadata names, i.e. that has not released its partition. This aborts its open
   transaction.
2. Write this process's name as the writer into the offset metadata.
3. Read from the state topic which keys are in trouble, up to its current high watermark; if an open transaction hides
   the end, wait for it.
"""

from collections.abc import Callable, Sequence

from tarry.client.group_consumer import Begin, GroupClients
from tarry.client.retry.core.key_queue import KeyQueues, Trouble, decode_trouble
from tarry.client.retry.core.partition import RetryPartition
from tarry.client.retry.terms import Terms
from tarry.errors import UsageError
from tarry.kafka.partition_logs import read_in_parts
from tarry.kafka.transaction import fence
from tarry.kafka.types import OffsetMetadata, Place

WRITER = "tarry-retry:"
"""The prefix of the offset metadata while a process owns the partition; its transactional id follows."""


class TakeOver:
    """Takes partitions over.

    Args:
        clients: of this process's membership in the group.
        terms: the consumer's arguments.
        transactional_id: of this process.
    """

    def __init__(self, clients: GroupClients, terms: Terms, transactional_id: str) -> None:
        self._clients = clients
        self._membership = clients.membership
        self._offsets = clients.offsets
        self._terms = terms
        self._names = terms.names
        self._id = transactional_id

    def run(self, numbers: Sequence[int], serve: Callable[[], None]) -> dict[int, RetryPartition]:
        """Take over partitions, by number.

        Args:
            numbers: the partitions.
            serve: called repeatedly while the state topic is read, to poll the group; an error ends the take-over.

        Raises:
            RetriableError: the brokers refuse for now; try again.
            UsageError: the state topic holds a record that no consumer of this version has written.
        """
        names = self._names
        places = [(topic, number) for number in numbers for topic in (names.topic, names.retry)]
        self._membership.commit({(names.state, number): (0, "") for number in numbers})
        writers = {writer_of(found) for found in self._offsets.committed(places).values()} - {"", self._id}
        fence(self._clients.cluster, sorted(writers))
        positions = self._positions(places, self._membership.committed(places))
        self._membership.commit({place: (position, WRITER + self._id) for place, position in positions.items()})
        troubles = self._troubles(numbers, serve)
        return {
            number: RetryPartition(
                names,
                number,
                self._terms.policy,
                KeyQueues(self._terms.policy.least_ms, troubles[number]),
                {topic: positions[topic, number] for topic in (names.topic, names.retry)},
                keeps_order=self._terms.keeps_order,
            )
            for number in numbers
        }

    def _positions(self, places: Sequence[Place], committed: dict[Place, OffsetMetadata]) -> dict[Place, int]:
        missing = [place for place in places if place not in committed]
        found = {place: offset for place, (offset, _) in committed.items()}
        if not missing:
            return found
        begins = self._offsets.starts(missing)
        if self._terms.begin is Begin.LATEST:
            ends = self._offsets.ends(missing, committed=True)
            # This group sent all records of the retry topic, so it must skip none of them.
            begins = {place: begins[place] if place[0] == self._names.retry else ends[place] for place in missing}
        return {**found, **begins}

    def _troubles(self, numbers: Sequence[int], serve: Callable[[], None]) -> dict[int, dict[bytes, Trouble]]:
        logs = [(self._names.state, number) for number in numbers]
        starts, ends = self._offsets.starts(logs), self._offsets.ends(logs, committed=False)
        filled = {log: start for log, start in starts.items() if start < ends[log]}
        last: dict[int, dict[bytes, tuple[bytes, int]]] = {number: {} for number in numbers}
        if filled:
            reader = self._clients.new_reader()
            try:
                for part in read_in_parts(reader, filled, ends):
                    serve()
                    for (_, number), record in part:
                        key, value = record.key() or b"", record.value()
                        if value is None:
                            last[number].pop(key, None)
                        else:
                            last[number][key] = value, record.offset() or 0
            finally:
                reader.close()
        return {
            number: {key: self._decoded(value, number, offset) for key, (value, offset) in found.items()}
            for number, found in last.items()
        }

    def _decoded(self, value: bytes, number: int, offset: int) -> Trouble:
        try:
            return decode_trouble(value)
        except ValueError as error:
            raise UsageError(f"{self._names.state}/{number} at offset {offset}: {error}") from error


def writer_of(found: OffsetMetadata) -> str:
    """Return the transactional id that an offset's metadata names; empty if it names none."""
    _, metadata = found
    return metadata.removeprefix(WRITER) if metadata.startswith(WRITER) else ""
