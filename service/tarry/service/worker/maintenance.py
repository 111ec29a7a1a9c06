"""Periodic work beside the messages: journal ends, copies of checkpoints, trimming.

The service asks the brokers without waiting; a later turn takes the answers.

- Every second: ask for the ends of the journals, for the recovery pointers.
- A minute after the last copy: write a copy of the checkpoint into the journal of each partition that was busy, or is
  newly ours. A day after the last copy: of each partition, because committed offsets expire.
- Before each copy: ask whether the topics are still those that were taken over. Otherwise, trimming could delete
  records that no process has read.
- With a copy, if a recovery would have to read much of the journal because the low watermark does not advance: write a
  summary of the done offsets above it.
- After each copy: trim the journal below the pointer that the copy names, and the intake below the low watermark as far
  as `keep` allows.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarry.core.partition import PartitionState
from tarry.errors import AbortableError
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.origins import AskedOrigins, verify
from tarry.kafka.partition_logs import journal_of, place_of
from tarry.kafka.types import Place
from tarry.service.metrics.families import TRIM_FAILURES
from tarry.service.worker.context import Context

ENDS_EVERY_MS = 1_000
"""How often the ends of the journals are asked for."""

COPY_EVERY_MS = 60_000
"""The least time between two copies of a busy partition's checkpoint."""

RENEW_EVERY_MS = 24 * 3600 * 1000
"""How often the checkpoint of each partition is committed and copied again, because committed offsets expire."""


@dataclass(slots=True)
class _Kept:
    """When a partition's checkpoint was last copied, and at which low watermark; None before our first copy of it."""

    at_ms: int
    low: int | None


class Maintenance:
    """Copies checkpoints and trims the journals and intakes of one process.

    Args:
        offsets: asks the brokers for offsets and trims logs.
        keep_ms: for each intake, the least age, by its timestamp, at which a done record is deleted from it.
        ask_origins: asks for the ids of intakes and of the topics that belong to them.
        commit_checkpoints: commits checkpoints of partitions, and copies of them; those in its second argument get a
            summary.
        is_quiet: returns whether no transaction is open beside the firing transaction.
        sum_up_after: how many journal records a recovery may have to read before a summary is written.
        context: time, the log and the metrics.
    """

    def __init__(
        self,
        offsets: Offsets,
        keep_ms: Mapping[str, int],
        ask_origins: Callable[[Iterable[str]], AskedOrigins],
        commit_checkpoints: Callable[[Sequence[PartitionState], Container[PartitionState]], object],
        is_quiet: Callable[[], bool],
        sum_up_after: int,
        context: Context,
    ) -> None:
        self._offsets = offsets
        self._clock = context.clock
        self._keep_ms = keep_ms
        self._ask_origins = ask_origins
        self._commit_checkpoints = commit_checkpoints
        self._is_quiet = is_quiet
        self._sum_up_after = sum_up_after
        self._on_event = context.on_event
        self._tally = context.tally
        self._kept: dict[Place, _Kept] = {}
        self._ends: PendingAnswers | None = None
        self._ends_ms = 0
        self._origins: AskedOrigins | None = None
        self._ages: PendingAnswers | None = None
        self._trims: list[PendingAnswers] = []

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Do the work that is due.

        Raises:
            RetriableError: no answer.
            FatalError: from committing.
            LogError: a topic of a partition was deleted and recreated.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._ends_ms >= ENDS_EVERY_MS:
            self._ends_ms = now_ms
            self._ask_ends(states)
            self._begin_to_copy(states, now_ms)
            self._trim(states)
        if self._ends is not None and self._ends.done:
            ends, self._ends = self._ends, None
            self._note_ends(states, ends)
        if self._origins is not None and self._origins.done:
            origins, self._origins = self._origins, None
            self._copy(states, origins, now_ms)

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that are no longer ours."""
        for place in places:
            self._kept.pop(place, None)

    def _ask_ends(self, states: Mapping[Place, PartitionState]) -> None:
        if states and self._ends is None:
            self._ends = self._offsets.ask_ends([journal_of(place) for place in states])

    @staticmethod
    def _note_ends(states: Mapping[Place, PartitionState], ends: PendingAnswers) -> None:
        for journal, end in ends.answers().items():
            state = states.get(place_of(journal))
            if state is not None:
                state.note_journal_end(end)

    def _to_sum_up(self, states: Mapping[Place, PartitionState]) -> list[PartitionState]:
        """Return the partitions whose recovery would have to read much, if a summary may be written now."""
        return [state for state in states.values() if state.behind >= self._sum_up_after] if self._is_quiet() else []

    def _due(self, states: Mapping[Place, PartitionState], now_ms: int) -> list[PartitionState]:
        """Return the partitions whose checkpoints must be copied now."""
        due = []
        long = self._to_sum_up(states)
        for place, state in states.items():
            kept = self._kept.setdefault(place, _Kept(now_ms, None))
            age_ms = now_ms - kept.at_ms
            if (age_ms >= COPY_EVERY_MS and (state.low != kept.low or state in long)) or age_ms >= RENEW_EVERY_MS:
                due.append(state)
        return due

    def _begin_to_copy(self, states: Mapping[Place, PartitionState], now_ms: int) -> None:
        due = self._due(states, now_ms)
        if due and self._origins is None:
            self._origins = self._ask_origins({state.intake for state in due})

    def _copy(self, states: Mapping[Place, PartitionState], asked: AskedOrigins, now_ms: int) -> None:
        """Take the topic ids, and copy the checkpoints of the intakes that they are known of.

        Raises:
            LogError: the ids are not those that were taken over.
        """
        origins = asked.answers()
        due = [state for state in self._due(states, now_ms) if state.intake in origins]
        if not due:
            return
        verify({state.place: state.origin for state in due}, origins)
        try:
            self._commit_checkpoints(due, self._to_sum_up(states))
        except AbortableError as error:
            self._on_event("checkpoint_not_copied", reason=str(error))
            return
        for state in due:
            self._kept[state.place] = _Kept(now_ms, state.low)
        self._trims.append(self._offsets.trim({journal_of(s.place): s.reads_from for s in due if s.reads_from > 0}))
        wall_ms = self._clock.now_ms()
        if self._ages is None:
            self._ages = self._offsets.ask_since({s.place: max(0, wall_ms - self._keep_ms[s.intake]) for s in due})

    def _trim(self, states: Mapping[Place, PartitionState]) -> None:
        if self._ages is not None and self._ages.done:
            ages, self._ages = self._ages, None
            below = {}
            for place, first_kept in ages.answers().items():
                kept = self._kept.get(place) if place in states else None
                if kept is not None and kept.low is not None:
                    # Not the present low watermark: only records below the committed one may be trimmed.
                    # -1: no record is as young as `keep`, so all done records may go.
                    below[place] = kept.low if first_kept < 0 else min(kept.low, first_kept)
            self._trims.append(self._offsets.trim({place: at for place, at in below.items() if at > 0}))
        for trim in [trim for trim in self._trims if trim.done]:
            self._trims.remove(trim)
            failed = trim.failed()
            for intake in {place_of(log)[0] for log in failed}:
                self._tally.count(TRIM_FAILURES, 1, intake)
            for (topic, partition), reason in failed.items():
                self._on_event("trim_failed", reason=f"{topic}/{partition}: {reason}")
