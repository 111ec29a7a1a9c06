"""How many messages wait in the buckets, estimated now and then from the ends of their logs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, Pending
from tarry.kafka.partition_logs import log_of
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from tarry.core.progress.source import Source

ASK_EVERY_MS = 30_000


class BucketCounts:
    """Keeps the partitions' counts of messages in buckets up to date.

    Args:
        offsets: asks the brokers for offsets.
        clock: monotonic time.
    """

    def __init__(self, offsets: Offsets, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock
        self._asked: Pending | None = None
        self._logs: dict[Place, tuple[PartitionState, Source]] = {}
        self._asked_ms = -ASK_EVERY_MS

    def turn(self, states: Mapping[Place, PartitionState]) -> None:
        """Ask, or take the answers, without waiting."""
        if self._asked is not None:
            if self._asked.done:
                self._note(states)
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._asked_ms < ASK_EVERY_MS:
            return
        self._asked_ms = now_ms
        self._logs = {
            log_of(state, source): (state, source) for state in states.values() for source in state.overflow.sources
        }
        if self._logs:
            self._asked = self._offsets.ask_ends(list(self._logs))

    def _note(self, states: Mapping[Place, PartitionState]) -> None:
        asked, self._asked = self._asked, None
        ends: dict[PartitionState, dict[Source, int]] = {}
        for log, end in (asked.answers() if asked else {}).items():
            state, source = self._logs[log]
            if states.get(state.place) is state:
                ends.setdefault(state, {})[source] = end
        for state, of_slots in ends.items():
            state.overflow.note_ends(of_slots)
