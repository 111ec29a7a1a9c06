"""Draining: buckets are closed when their time comes, and read; the logs are trimmed below what is not done.

    close     between two filings of the bucket's partition; then commit the checkpoint that names the bucket as closed,
              before any message is filed or fired by the new bounds
    read      with separate readers: level 1 as fast as possible, because it is due soon; the levels above, which are
              only moved down, at an even pace over three quarters of their lead (`LevelReader`)
    trim      delete done records (`Trimming`)

Nothing here waits, except the commit of a checkpoint.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tarry.core.partition import PartitionState
from tarry.core.wheel.refiling import Refiling
from tarry.errors import AbortableError, LogError
from tarry.kafka.membership import Membership
from tarry.kafka.offsets import Offsets
from tarry.kafka.partition_logs import proof_of
from tarry.kafka.reader import Reader
from tarry.kafka.types import Place
from tarry.service.worker.budget import DRAINING_SHARE, LEAST_SHARE, PAUSE_AT, is_behind, is_full
from tarry.service.worker.context import Context
from tarry.service.worker.filing import Filer
from tarry.service.worker.level_reader import LevelReader
from tarry.service.worker.trimming import Trimming


class Draining:
    """Closes, reads and trims the buckets of one process's partitions.

    Args:
        offsets: asks the brokers for offsets.
        membership: proves that the partitions are still ours.
        new_reader: makes a consumer without a group.
        filer: knows which partitions have an open filing transaction.
        most_to_file: how many messages may wait to be filed before the intakes' far messages are passed over.
        commit_checkpoints: commits checkpoints of partitions.
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
        commit_checkpoints: Callable[[Sequence[PartitionState]], object],
        budget_bytes: int,
        context: Context,
    ) -> None:
        self._membership = membership
        self._filer = filer
        self._most_to_file = most_to_file
        self._commit_checkpoints = commit_checkpoints
        self._budget_bytes = budget_bytes
        self._clock = context.clock
        self._context = context
        self._hot = LevelReader(new_reader)
        self._cold = LevelReader(new_reader)
        self._uncommitted: list[PartitionState] = []
        self._fault: LogError | None = None
        """Why a log cannot be read, as long as we do not know whether it is still ours."""
        self._trimming = Trimming(offsets, self._needs_from, context)

    @property
    def held_up(self) -> list[PartitionState]:
        """Partitions whose messages must not be filed: that a bucket is closed is not committed yet."""
        return self._uncommitted

    @property
    def is_busy(self) -> bool:
        """Whether buckets of level 1 are being read, so that the loop should come back soon."""
        return self._hot.is_open

    @property
    def is_reading(self) -> bool:
        """Whether buckets of any level are being read."""
        return self._hot.is_open or self._cold.is_open

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Close, read and trim the buckets that are due for it.

        Raises:
            RetriableError: refused for now; go on.
            FatalError: the producer is lost.
            LogError: a bucket no longer holds the records that must be read.
        """
        with_levels = [state for state in states.values() if state.overflow.has_levels]
        if with_levels:
            self._drain(with_levels)
        elif self._uncommitted:
            self._commit()
        # All: each partition has a parked log.
        for state in self._trimming.turn(list(states.values())):
            self._commit_later(state)

    def _drain(self, with_levels: Sequence[PartitionState]) -> None:
        if self._fault is not None:
            self._report_fault(self._fault, with_levels)
        self._close(with_levels)
        room_bytes = self._room_bytes(with_levels)
        least_bytes = int(self._budget_bytes * LEAST_SHARE) // len(with_levels)
        for state in with_levels:
            for to_read in state.level_records.to_read(room_bytes, least_bytes):
                is_urgent = to_read.level == 1 and not isinstance(to_read.range, Refiling)
                (self._hot if is_urgent else self._cold).open(state, to_read)
        try:
            self._read(with_levels, self._clock.now_ms())
        except LogError as error:
            self._fault = error
            self._report_fault(error, with_levels)

    def _report_fault(self, fault: LogError, with_levels: Sequence[PartitionState]) -> None:
        """Report that a log cannot be read; nothing more is read before that, because the reading has stopped halfway.

        Perhaps a new owner has trimmed the log, and we do not know yet that we lost it: then the commit is refused.
        """
        self._membership.commit(proof_of(state.place for state in with_levels))
        self._fault = None
        raise fault

    def _read(self, states: Sequence[PartitionState], now_ms: int) -> None:
        # Filing does not depend on this reading, so this may wait for filing. It may go beyond what the intakes bring:
        # otherwise a steady inflow would stop it.
        if not is_behind(states, 2 * PAUSE_AT * self._most_to_file):
            self._hot.read(now_ms)
        # Held messages fire or are filed whether or not the cold reader reads: so waiting for memory is no deadlock. It
        # waits only for the filing of what it has brought: what the intakes bring must not stop it.
        moving = sum(state.placing.moving + state.placing.again for state in states)
        if moving <= self._most_to_file and self._cold.is_due(now_ms) and not is_full(states, self._budget_bytes):
            self._cold.read(now_ms)

    def _needs_from(self, log: Place) -> int | None:
        """Return the offset of a level's log below which nothing will be read; None if nothing of it is to be read."""
        needs = [reader.needs_from(log) for reader in (self._hot, self._cold)]
        return min((at for at in needs if at is not None), default=None)

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that are no longer ours."""
        gone = set(places)
        if gone:  # the partition that is left has the fault again, if it is its own
            self._fault = None
        for reader in (self._hot, self._cold):
            reader.forget(gone)
        self._uncommitted = [state for state in self._uncommitted if state.place not in gone]
        self._trimming.forget(gone)

    def close(self) -> None:
        """Close the readers."""
        self._hot.close()
        self._cold.close()

    # -- closing ----------------------------------------------------------------------------------------------------

    def _close(self, states: Sequence[PartitionState]) -> None:
        now_ms = self._clock.now_ms()
        room_bytes = self._room_bytes(states)
        for state in states:
            if state in self._uncommitted or self._filer.is_handling(state):
                continue
            if state.close_buckets(room_bytes, now_ms):
                self._commit_later(state)
        if self._uncommitted:
            self._commit()

    def _room_bytes(self, states: Sequence[PartitionState]) -> int:
        """Return how much of level 1's memory each partition may still fill; the rest is for records of the intake."""
        left_bytes = int(self._budget_bytes * DRAINING_SHARE) - sum(state.memory_bytes for state in states)
        return max(0, left_bytes) // len(states)

    def _commit_later(self, state: PartitionState) -> None:
        if state not in self._uncommitted:
            self._uncommitted.append(state)

    def _commit(self) -> None:
        try:
            self._commit_checkpoints(self._uncommitted)
        except AbortableError as error:
            self._context.on_event("checkpoint_not_committed", reason=str(error))  # the next turn tries again
        else:
            self._uncommitted.clear()
