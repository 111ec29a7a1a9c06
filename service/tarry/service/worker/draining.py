"""Draining: buckets are closed when their time comes, read to their ends, and emptied when all their records are done.

    close     between two filings of the bucket's partition, ask for the end of its slot; then commit the checkpoint
              that names the bucket as closed, before any message is filed or fired by the new bounds
    read      with separate readers: level 1 as fast as possible, because it is due soon; the levels above, which are
              only moved down, at an even pace over most of their lead
    empty     delete done records (`Emptying`)

Nothing here waits, except the commit of a checkpoint.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tarry.core.partition import PartitionState
from tarry.core.progress.source import Source
from tarry.errors import AbortableError, LogError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.partition_logs import log_of, proof_of
from tarry.kafka.reader import Reader
from tarry.kafka.record_headers import headers_of
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.emptying import Emptying
from tarry.service.worker.filing import PAUSE_AT, Filer, is_behind

READ_MOST = 5_000
SHARE = 0.5
"""The share of the memory for held messages that draining buckets may fill."""

LEAST_SHARE = 0.05
"""The share of that memory that one more pass over a bucket may take, even when other messages have filled the memory.

All partitions together get it.
"""

AHEAD = 2_000
"""The number of records of a level above the first that are moved at once, before the even pace begins."""


class Draining:
    """Closes, reads and empties the buckets of one process's partitions.

    Args:
        offsets: asks the brokers for offsets.
        membership: proves that the partitions are still ours.
        new_reader: makes a consumer without a group.
        filer: knows which partitions have an open filing transaction.
        most_to_file: how many messages may wait to be filed before the intakes' far messages are passed over.
        commit_rest: commits checkpoints of partitions.
        budget_bytes: the memory for held messages.
        context: time and the log.
    """

    def __init__(
        self,
        offsets: Offsets,
        membership: Membership,
        new_reader: Callable[[], Reader],
        filer: Filer,
        most_to_file: int,
        commit_rest: Callable[[Sequence[PartitionState]], object],
        budget_bytes: int,
        context: Context,
    ) -> None:
        self._offsets = offsets
        self._membership = membership
        self._filer = filer
        self._most_to_file = most_to_file
        self._commit_rest = commit_rest
        self._budget_bytes = budget_bytes
        self._clock = context.clock
        self._context = context
        self._hot = _SlotReader(new_reader)
        self._cold = _SlotReader(new_reader)
        self._asked: PendingAnswers | None = None
        self._closing: dict[Place, tuple[PartitionState, Source]] = {}
        self._uncommitted: list[PartitionState] = []
        self._emptying = Emptying(offsets, context)

    @property
    def held_up(self) -> list[PartitionState]:
        """Partitions whose messages must not be filed: closing a bucket is under way, or not committed yet."""
        return [*(state for state, _ in self._closing.values()), *self._uncommitted]

    @property
    def is_busy(self) -> bool:
        """Whether buckets of level 1 are being read or closed, so that the loop should come back soon."""
        return self._hot.is_open or self._asked is not None

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Close, read and empty the buckets that are due for it.

        Raises:
            RetriableError: refused for now; go on.
            FatalError: the producer is lost.
            LogError: a bucket no longer holds the records that must be read.
        """
        with_levels = [state for state in states.values() if state.overflow.slots]
        if not with_levels:
            return
        self._close(with_levels)
        room_bytes = self._room_bytes(with_levels)
        least_bytes = int(self._budget_bytes * LEAST_SHARE) // len(with_levels)
        for state in with_levels:
            for source, position, end in state.draining.unread(room_bytes, least_bytes):
                (self._hot if source.level == 1 else self._cold).open(state, source, position, end)
        try:
            self._read(with_levels, self._clock.now_ms())
        except LogError:
            # Perhaps a new owner has emptied the bucket, and we do not know yet that we lost it: then this raises.
            self._membership.commit(proof_of(state.place for state in with_levels))
            raise
        for state in self._emptying.turn(with_levels):
            self._commit_later(state)

    def _read(self, states: Sequence[PartitionState], now_ms: int) -> None:
        # Filing does not depend on this reading, so this may wait for filing. It may go beyond what the intakes bring:
        # otherwise a steady inflow would stop it.
        if not is_behind(states, 2 * PAUSE_AT * self._most_to_file):
            self._hot.read(now_ms)
        # Held messages fire or are filed whether or not the cold reader reads: so waiting for memory is no deadlock.
        is_full = sum(state.memory_bytes for state in states) > self._budget_bytes
        if not is_full and not is_behind(states, PAUSE_AT * self._most_to_file) and self._cold.is_due(now_ms):
            self._cold.read(now_ms)

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that are no longer ours."""
        gone = set(places)
        for reader in (self._hot, self._cold):
            reader.forget(gone)
        self._closing = {at: one for at, one in self._closing.items() if one[0].place not in gone}
        self._uncommitted = [state for state in self._uncommitted if state.place not in gone]
        self._emptying.forget(gone)

    def close(self) -> None:
        """Close the readers."""
        self._hot.close()
        self._cold.close()

    # -- closing ----------------------------------------------------------------------------------------------------

    def _close(self, states: Sequence[PartitionState]) -> None:
        now_ms = self._clock.now_ms()
        room_bytes = self._room_bytes(states)
        # A bucket is not closed if memory has no room for it. Before its end is asked for again, messages may be filed:
        # perhaps only that makes room.
        refused = self._take_answers(room_bytes, now_ms)
        if self._asked is None:
            held_up = [*self.held_up, *refused]
            for state in states:
                if state in held_up or self._filer.is_filing(state):
                    continue
                if state.close_buckets({}, room_bytes, now_ms):
                    self._commit_later(state)
                for source in state.to_ask(now_ms):
                    self._closing[log_of(state, source)] = state, source
            if self._closing:
                self._asked = self._offsets.ask_ends(list(self._closing))
        if self._uncommitted:
            self._commit()

    def _room_bytes(self, states: Sequence[PartitionState]) -> int:
        """Return how much of level 1's memory each partition may still fill; the rest is for records of the intake."""
        return max(0, int(self._budget_bytes * SHARE) - sum(state.memory_bytes for state in states)) // len(states)

    def _take_answers(self, room_bytes: int, now_ms: int) -> list[PartitionState]:
        """Close the buckets whose ends are known now; return the partitions of which none was closed."""
        refused: list[PartitionState] = []
        if self._asked is None or not self._asked.done:
            return refused
        asked, self._asked = self._asked, None
        ends: dict[PartitionState, dict[Source, int]] = {}
        for place, end in asked.answers().items():
            if place in self._closing:
                state, source = self._closing[place]
                ends.setdefault(state, {})[source] = end
        for state, of_slots in ends.items():
            if state.close_buckets(of_slots, room_bytes, now_ms):
                self._commit_later(state)
            else:
                refused.append(state)
        for failure in asked.failures():
            self._context.warn(f"could not ask for the end of a bucket: {failure}")
        self._closing.clear()
        return refused

    def _commit_later(self, state: PartitionState) -> None:
        if state not in self._uncommitted:
            self._uncommitted.append(state)

    def _commit(self) -> None:
        try:
            self._commit_rest(self._uncommitted)
        except AbortableError as error:
            self._context.on_event("checkpoint_not_committed", reason=str(error))  # the next turn tries again
        else:
            self._uncommitted.clear()


class _SlotReader:
    """Reads closed slots to their ends.

    Args:
        new_reader: makes a consumer without a group.
    """

    def __init__(self, new_reader: Callable[[], Reader]) -> None:
        self._new_reader = new_reader
        self._reader: Reader | None = None
        self._open: dict[Place, _Stretch] = {}

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def open(self, state: PartitionState, source: Source, position: int, end: int) -> None:
        place = log_of(state, source)
        known = self._open.get(place)
        if known is not None:
            known.end = end
            return
        if self._reader is None:
            self._reader = self._new_reader()
        self._reader.open({place: position})
        self._open[place] = _Stretch(state, source, position, end)

    def is_due(self, now_ms: int) -> bool:
        """Return whether any stretch is behind its pace."""
        return any(stretch.is_due(now_ms) for stretch in self._open.values())

    def read(self, now_ms: int) -> None:
        """Read on, without waiting."""
        if self._reader is None or not self._open:
            return
        records, reached = self._reader.read(READ_MOST, 0)
        ended: set[Place] = set()
        for record in records:
            place = (record.topic() or "", record.partition() or 0)
            stretch = self._open.get(place)
            if stretch is None:
                continue
            offset = record.offset() or 0
            stretch.position = offset + 1
            if offset < stretch.end:
                key, value, headers = record.key(), record.value(), headers_of(record)
                stretch.state.draining.accept(stretch.source, offset, key, value, headers, now_ms)
            if stretch.position >= stretch.end:
                ended.add(place)
        for place, position in reached.items():
            if place in self._open and position >= self._open[place].end:
                ended.add(place)
        for place in ended:
            stretch = self._open.pop(place)
            stretch.state.draining.reach(stretch.source, stretch.end, now_ms)
        if ended:
            self._reader.shut(ended)

    def forget(self, gone: set[Place]) -> None:
        shut = [at for at, stretch in self._open.items() if stretch.state.place in gone]
        for at in shut:
            del self._open[at]
        if shut and self._reader is not None:
            self._reader.shut(shut)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class _Stretch:
    """A range of offsets of a slot that is being read.

    A level above the first is moved at an even pace. So all its records are on the level below before that level needs
    them, and ten minutes' messages never move within seconds.
    """

    def __init__(self, state: PartitionState, source: Source, position: int, end: int) -> None:
        self.state = state
        self.source = source
        self.begin = self.position = position
        self.end = end
        start_ms, end_ms = state.overflow.window_ms(source)
        self._width_ms = end_ms - start_ms
        self._from_ms = start_ms - self._width_ms

    def is_due(self, now_ms: int) -> bool:
        passed = max(0, now_ms - self._from_ms) / (self._width_ms * 3 / 4)
        return self.position - self.begin <= (self.end - self.begin) * passed + AHEAD
