"""What is done now and then, beside the messages: journal ends, copies of checkpoints, trimming.

Questions to the brokers are asked without waiting; a later turn looks in on the answers.

- every second: the ends of the journals, for the recovery pointers;
- a minute after the last: a copy of the checkpoint into the journal of each partition that was busy, or is newly ours;
  a day after the last: of each partition, because committed offsets expire;
- after each copy: the journal is trimmed below the pointer that the copy names, the intake below the watermark as far
  as `keep` allows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.errors import AbortableError
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.partition_logs import journal_of, place_of
from tarry.kafka.place import Place

ENDS_EVERY_MS = 1_000
COPY_EVERY_MS = 60_000
RENEW_EVERY_MS = 24 * 3600 * 1000


@dataclass(slots=True)
class _Kept:
    """When a partition's checkpoint was copied last, and at which watermark: None before the first copy of ours."""

    at_ms: int
    low: int | None


class Janitor:
    """Keeps the journals and intakes of one process tidy.

    Args:
        offsets: questions to the brokers.
        clock: wall and monotonic time.
        keep_ms: how long done records stay in each intake.
        commit_rest: commits checkpoints of partitions, and copies of them.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        offsets: Offsets,
        clock: Clock,
        keep_ms: Mapping[str, int],
        commit_rest: Callable[[Sequence[PartitionState]], object],
        on_event: Callable[..., None],
    ) -> None:
        self._offsets = offsets
        self._clock = clock
        self._keep_ms = keep_ms
        self._commit_rest = commit_rest
        self._on_event = on_event
        self._kept: dict[Place, _Kept] = {}
        self._ends: Pending | None = None
        self._ends_ms = 0
        self._ages: Pending | None = None
        self._trims: list[Pending] = []

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Do what is due by now.

        Raises:
            FatalError: from committing.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._ends_ms >= ENDS_EVERY_MS:
            self._ends_ms = now_ms
            self._ask_ends(states)
            self._copy(states, now_ms)
            self._trim(states)
        elif self._ends is not None and self._ends.done:
            self._note_ends(states)

    def forget(self, places: Iterable[Place]) -> None:
        """These are no longer ours."""
        for place in places:
            self._kept.pop(place, None)

    def _ask_ends(self, states: Mapping[Place, PartitionState]) -> None:
        if states and self._ends is None:
            self._ends = self._offsets.ask_ends([journal_of(place) for place in states])

    def _note_ends(self, states: Mapping[Place, PartitionState]) -> None:
        ends, self._ends = self._ends, None
        for journal, end in (ends.answers() if ends else {}).items():
            state = states.get(place_of(journal))
            if state is not None:
                state.note_journal_end(end)

    def _copy(self, states: Mapping[Place, PartitionState], now_ms: int) -> None:
        due = []
        for place, state in states.items():
            kept = self._kept.setdefault(place, _Kept(now_ms, None))
            age_ms = now_ms - kept.at_ms
            if (age_ms >= COPY_EVERY_MS and state.low != kept.low) or age_ms >= RENEW_EVERY_MS:
                due.append(state)
        if not due:
            return
        try:
            self._commit_rest(due)
        except AbortableError as error:
            self._on_event("checkpoint_not_copied", reason=str(error))
            return
        for state in due:
            self._kept[state.place] = _Kept(now_ms, state.low)
        self._trims.append(self._offsets.trim({journal_of(s.place): s.pointer for s in due if s.pointer > 0}))
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
                    # Not the watermark of now: what is trimmed must lie below the one that is committed.
                    # -1: no record is as young as that, so all that is done may go.
                    below[place] = kept.low if first_kept < 0 else min(kept.low, first_kept)
            self._trims.append(self._offsets.trim({place: at for place, at in below.items() if at > 0}))
        for trim in [trim for trim in self._trims if trim.done]:
            self._trims.remove(trim)
            for failure in trim.failures():
                self._on_event("trim_failed", reason=failure)
