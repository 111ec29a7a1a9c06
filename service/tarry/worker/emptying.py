"""Deletes what is done from buckets, once a second and without waiting.

Only what a committed checkpoint says is done: a recovery from one that still has a slot as being drained would look for
its records.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.place import Place
from tarry.worker.logs import log_of

if TYPE_CHECKING:
    from tarry.core.source import Source

EVERY_MS = 1_000
AGAIN_MS = 60_000
"""Later than that, where the brokers refuse it: nothing hangs on it but their disk."""


class Emptying:
    """Empties the buckets of one process's partitions.

    Args:
        offsets: questions to the brokers.
        clock: monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, offsets: Offsets, clock: Clock, on_event: Callable[..., None]) -> None:
        self._offsets = offsets
        self._clock = clock
        self._on_event = on_event
        self._asked: Pending | None = None
        self._slots: dict[Place, tuple[PartitionState, Source, int]] = {}
        self._next_ms = 0

    def turn(self, states: Sequence[PartitionState]) -> list[PartitionState]:
        """Take answers, and ask again.

        Returns:
            Partitions whose checkpoints are to be committed, so that more can be emptied.
        """
        if self._asked is not None:
            if self._asked.done:
                self._take_answers()
            return []
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + EVERY_MS
        for state in states:
            for source, end in state.overflow.done.to_empty().items():
                self._slots[log_of(state, source)] = state, source, end
        if self._slots:
            self._asked = self._offsets.trim({log: end for log, (_, _, end) in self._slots.items()})
        return [state for state in states if state.overflow.done.is_unnoted]

    def forget(self, gone: Collection[Place]) -> None:
        """These partitions are no longer ours."""
        self._slots = {log: one for log, one in self._slots.items() if one[0].place not in gone}

    def _take_answers(self) -> None:
        asked, self._asked = self._asked, None
        for log in asked.succeeded() if asked else ():
            if log in self._slots:
                state, source, end = self._slots[log]
                state.overflow.done.emptied(source, end)
        for failure in asked.failures() if asked else ():
            self._on_event("trim_failed", reason=failure)
            self._next_ms = self._clock.monotonic_ms() + AGAIN_MS
        self._slots.clear()
