"""The offsets that a group has committed, in transactions and outside of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError

from tarry.kafka.types import OffsetMetadata, Place
from tarry.testing.fake.refusals import RefusedRequest

METADATA_LIMIT = 4_095


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset, its metadata, and its position among all commits of the group."""

    offset: int
    metadata: str
    rank: int


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(self) -> None:
        self._committed: dict[Place, Committed] = {}
        self._pending: dict[int, dict[Place, Committed]] = {}
        self._sent: dict[int, dict[Place, OffsetMetadata]] = {}
        """What each producer has sent last in a transaction."""
        self._rank = 0
        self.misses_ends = False
        """Whether the coordinator does not learn how transactions end: it then keeps their offsets as pending."""

    def commit(self, offsets: Mapping[Place, OffsetMetadata], producer: int | None = None) -> None:
        """Commit at once, or as part of a producer's transaction.

        Raises:
            Refused: the metadata of an offset is too long; nothing is committed.
        """
        if any(len(metadata or "") > METADATA_LIMIT for _, metadata in offsets.values()):
            raise RefusedRequest(KafkaError.OFFSET_METADATA_TOO_LARGE)
        if producer is not None:
            self._sent[producer] = dict(offsets)
        self._rank += 1
        into = self._committed if producer is None else self._pending.setdefault(producer, {})
        for place, (offset, metadata) in offsets.items():
            into[place] = Committed(offset, metadata or "", self._rank)

    def end(self, producer: int, *, commit: bool) -> None:
        """Apply the marker of a producer's transaction, to all that is pending of that producer."""
        if self.misses_ends:
            return
        for place, pending in self._pending.pop(producer, {}).items():
            found = self._committed.get(place)
            # An offset that was committed outside, while the transaction was open, is newer.
            if commit and (found is None or found.rank < pending.rank):
                self._committed[place] = pending

    def repeat(self, producer: int) -> None:
        """Deliver a producer's last offsets once more, late: if its transaction is over, they stay pending."""
        self.commit(self._sent[producer], producer)

    def snapshot(self) -> dict[Place, Committed]:
        """Return all committed offsets."""
        return dict(self._committed)

    def go_back(self, snapshot: dict[Place, Committed]) -> None:
        """Know only what was committed at the time of a snapshot."""
        self._committed = dict(snapshot)
        self._pending.clear()

    def is_unstable(self, place: Place) -> bool:
        """Return whether an open transaction has a pending offset for the partition."""
        return any(place in offsets for offsets in self._pending.values())

    def get(self, place: Place) -> OffsetMetadata | None:
        """Return the last committed offset and its metadata, without pending offsets; None if there is none."""
        found = self._committed.get(place)
        return (found.offset, found.metadata) if found is not None else None

    def expire(self) -> None:
        """Drop all committed offsets, except those of partitions with pending offsets."""
        for place in [place for place in self._committed if not self.is_unstable(place)]:
            del self._committed[place]

    def forget(self, topic: str) -> None:
        """Drop the offsets of a topic."""
        for offsets in (self._committed, *self._pending.values()):
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]
