"""What is done now and then, beside the messages: journal ends, copies of checkpoints, trimming.

Questions to the brokers are asked without waiting; a later turn looks in on the answers.

- every second: the ends of the journals, for the recovery pointers;
- a minute after the last: a copy of the checkpoint into the journal of each partition that was busy, or is newly ours;
  a day after the last: of each partition, because committed offsets expire;
- before each copy: a question whether the topics are still those that were taken over, or what nobody has read is
  trimmed;
- with such a copy, where a recovery would have to read much of the journal because the low watermark stands still: a
  summary of what is done above it;
- after each copy: the journal is trimmed below the pointer that the copy names, the intake below the watermark as far
  as `keep` allows.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.errors import AbortableError
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.origins import AskedOrigins, verify
from tarry.kafka.partition_logs import journal_of, place_of
from tarry.kafka.types import Place

ENDS_EVERY_MS = 1_000
COPY_EVERY_MS = 60_000
RENEW_EVERY_MS = 24 * 3600 * 1000


@dataclass(slots=True)
class _Kept:
    """When a partition's checkpoint was copied last, and at which watermark: None before the first copy of ours."""

    at_ms: int
    low: int | None


class Maintenance:
    """Keeps the journals and intakes of one process tidy.

    Args:
        offsets: questions to the brokers.
        clock: wall and monotonic time.
        keep_ms: how long done records stay in each intake.
        ask_origins: asks for the ids of intakes, and of what is beside them.
        commit_rest: commits checkpoints of partitions, and copies of them, with a summary for some.
        is_quiet: whether no transaction is open beside the loop.
        sum_up_after: records of a journal that a recovery may have to read before there is a summary.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        offsets: Offsets,
        clock: Clock,
        keep_ms: Mapping[str, int],
        ask_origins: Callable[[Iterable[str]], AskedOrigins],
        commit_rest: Callable[[Sequence[PartitionState], Container[PartitionState]], object],
        is_quiet: Callable[[], bool],
        sum_up_after: int,
        on_event: Callable[..., None],
    ) -> None:
        self._offsets = offsets
        self._clock = clock
        self._keep_ms = keep_ms
        self._ask_origins = ask_origins
        self._commit_rest = commit_rest
        self._is_quiet = is_quiet
        self._sum_up_after = sum_up_after
        self._on_event = on_event
        self._kept: dict[Place, _Kept] = {}
        self._ends: Pending | None = None
        self._ends_ms = 0
        self._origins: AskedOrigins | None = None
        self._ages: Pending | None = None
        self._trims: list[Pending] = []

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Do what is due by now.

        Raises:
            RetriableError: no answer.
            FatalError: from committing.
            LogError: a partition's topics were made anew.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._ends_ms >= ENDS_EVERY_MS:
            self._ends_ms = now_ms
            self._ask_ends(states)
            self._begin_to_copy(states, now_ms)
            self._trim(states)
        if self._ends is not None and self._ends.done:
            self._note_ends(states)
        if self._origins is not None and self._origins.done:
            self._copy(states, now_ms)

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

    def _long(self, states: Mapping[Place, PartitionState]) -> list[PartitionState]:
        """Those of which a recovery would have to read much."""
        return [state for state in states.values() if state.behind >= self._sum_up_after] if self._is_quiet() else []

    def _due(self, states: Mapping[Place, PartitionState], now_ms: int) -> list[PartitionState]:
        """Those that are to be copied."""
        due = []
        long = self._long(states)
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

    def _copy(self, states: Mapping[Place, PartitionState], now_ms: int) -> None:
        """The ids are known: copy what is of them."""
        asked, self._origins = self._origins, None
        origins = asked.answers() if asked is not None else {}
        due = [state for state in self._due(states, now_ms) if state.intake in origins]
        if not due:
            return
        verify({state.place: state.origin for state in due}, origins)
        try:
            self._commit_rest(due, self._long(states))
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
