"""The loop of a sink: reads a batch, and writes it in one SQL transaction, with the offsets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from tarry.client.dedup.delivered import DeliveredMessage
from tarry.client.dedup.store import Store, TakenOverError, UnavailableError
from tarry.client.events import OnEvent
from tarry.client.group_consumer import RETRY_MS, Begin, GroupClients, GroupLoop
from tarry.clock import Clock
from tarry.errors import RejoinError, RetriableError
from tarry.kafka.types import Place

READ_WAIT_S = 0.05
"""How long a turn waits for messages, in seconds."""

RETRY_MOST_MS = 5_000
"""The longest wait after a failure."""

STORE_ENDS_MS = 30_000
"""The least time between two stores of offsets that moved past control and aborted records only."""


@dataclass(slots=True)
class Owned:
    """A partition that was taken over.

    Attributes:
        generation: the generation that this process writes with.
        stored: the next offset in the database.
        position: the next offset to read: `stored` plus the records read since.
    """

    generation: int
    stored: int
    position: int


class Loop(GroupLoop):
    """One sink's loop; not thread-safe.

    Args:
        clients: of this process's membership in the group.
        store: the database.
        begin: where to begin in a partition without a stored offset.
        batch: the most messages of one transaction.
        clock: monotonic time.
        on_event: called with the name of an event and its fields.
    """

    def __init__(
        self,
        clients: GroupClients,
        store: Store,
        begin: Begin,
        batch: int,
        clock: Clock,
        on_event: OnEvent,
    ) -> None:
        super().__init__(clients, clock, on_event, retry_most_ms=RETRY_MOST_MS)
        self._offsets = clients.offsets
        self._store = store
        self._begin = begin
        self._batch = batch
        self._owned: dict[Place, Owned] = {}
        self._store_ends_at_ms = 0

    def _consume(self) -> None:
        records, reached = self._reader.read(self._batch, READ_WAIT_S)
        try:
            self._take_in(records, reached)
        except TakenOverError as error:
            self._begin_anew("fenced", error)
        except UnavailableError as error:
            self._begin_anew("begin_anew", error)

    # -- the group ----------------------------------------------------------------------------------------------------

    def revoked(self, places: Sequence[Place]) -> None:
        """Store the positions of these partitions, and drop them; all messages read from them are written."""
        try:
            self._store_ends(self._owned.keys() & places)
        except (UnavailableError, TakenOverError) as error:
            # also for the partitions that stay assigned: the connection may be lost
            self._begin_anew("ends_not_stored", error)
        self.lost(places)

    def _drop(self, places: Collection[Place]) -> None:
        owned = self._owned.keys() & places
        if owned:
            self._reader.shut(owned)
            for place in owned:
                del self._owned[place]

    def _drop_all(self) -> None:
        self._drop(list(self._owned))

    def _take_over_assigned(self) -> None:
        """Take over the partitions that are assigned but not owned yet.

        1. Find where to begin in partitions without a stored offset.
        2. Prove membership by a commit: a zombie must not fence a healthy member.
        3. Raise their generations, which fences the previous owners, and read their offsets.
        """
        waiting = self._assigned.difference(self._owned)
        if not waiting:
            return
        try:
            self._store.open()
            begins = self._begins(waiting)
            self._membership.commit({place: (begin, "") for place, begin in begins.items()})
            taken = self._store.take_over(begins)
        except RejoinError:
            raise
        except (RetriableError, UnavailableError) as error:
            self._begin_anew("take_over_refused", error)
            return
        if taken:
            self._reader.open({place: held.next_offset for place, held in taken.items()})
            for place, (next_offset, generation) in taken.items():
                self._owned[place] = Owned(generation, next_offset, next_offset)
            self._on_event("taken_over", partitions=[f"{topic}/{number}" for topic, number in sorted(taken)])
        if len(taken) < len(waiting):
            held = sorted(waiting.difference(taken))
            self._on_event("transaction_open", partitions=[f"{topic}/{number}" for topic, number in held])
            self._back_off()

    def _begins(self, places: Collection[Place]) -> dict[Place, int]:
        unknown = sorted(set(places) - self._store.known())
        begins = dict.fromkeys(places, 0)
        if unknown:
            latest = self._begin is Begin.LATEST
            begins |= self._offsets.ends(unknown, committed=True) if latest else self._offsets.starts(unknown)
        return begins

    # -- messages -----------------------------------------------------------------------------------------------------

    def _take_in(self, records: Sequence[Message], reached: Mapping[Place, int]) -> None:
        messages = []
        for record in records:
            place = (record.topic() or "", record.partition() or 0)
            owned = self._owned.get(place)
            if owned is not None and (record.offset() or 0) >= owned.position:
                messages.append(DeliveredMessage.of(record))
                owned.position = messages[-1].offset + 1
        # Also advance past control records; otherwise retention could delete the next offset to read.
        for place, end in reached.items():
            if (owned := self._owned.get(place)) is not None:
                owned.position = max(end, owned.position)
        now_ms = self._clock.monotonic_ms()
        if messages:
            self._write({(one.topic, one.partition) for one in messages}, messages)
        elif now_ms >= self._store_ends_at_ms:
            self._store_ends_at_ms = now_ms + STORE_ENDS_MS
            self._store_ends(self._owned)

    def _store_ends(self, places: Collection[Place]) -> None:
        moved = {place for place in places if self._owned[place].position > self._owned[place].stored}
        if moved:
            self._write(moved, [])

    def _write(self, places: Collection[Place], messages: Sequence[DeliveredMessage]) -> None:
        owned = {place: self._owned[place] for place in sorted(places)}
        self._store.write(
            {place: one.generation for place, one in owned.items()},
            {place: one.position for place, one in owned.items()},
            messages,
        )
        self._retry_ms = RETRY_MS
        for one in owned.values():
            one.stored = one.position
