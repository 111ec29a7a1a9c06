"""Deleting done records from buckets, once a second and without waiting.

If the brokers refuse that, mostly because the right to DELETE is missing, the buckets keep their records and everything
else goes on. But each such bucket has an entry in its partition's checkpoint, and when the checkpoint is full no more
buckets are closed. So the service keeps trying, and keeps reporting the failure.

A bucket is emptied only after a committed checkpoint names it as done: a recovery from a checkpoint that still names
the slot as draining would look for its records.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.partition_logs import log_of
from tarry.kafka.types import Place
from tarry.service.worker.context import Context

if TYPE_CHECKING:
    from tarry.core.progress.source import Source

EVERY_MS = 1_000
"""How often done buckets are emptied."""

AGAIN_MS = 10_000
"""How long to wait before the next try, after the brokers have refused one."""

SAY_EVERY_MS = 60_000
"""How often an event reports that buckets of a level are not emptied."""


class Emptying:
    """Empties the buckets of one process's partitions.

    Args:
        offsets: asks the brokers to delete records.
        context: monotonic time and the log.
    """

    def __init__(self, offsets: Offsets, context: Context) -> None:
        self._offsets = offsets
        self._clock = context.clock
        self._on_event = context.on_event
        self._asked: PendingAnswers | None = None
        self._slots: dict[Place, tuple[PartitionState, Source, int]] = {}
        self._next_ms = 0
        self._said_ms: dict[str, int] = {}
        """When an event last reported that buckets of a topic are not emptied; no entry once they are."""

    def turn(self, states: Sequence[PartitionState]) -> list[PartitionState]:
        """Take the brokers' answers, or send the next requests, without waiting.

        Returns:
            Partitions whose checkpoints must be committed before more of their buckets can be emptied.
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
        """Forget partitions that are no longer ours."""
        self._slots = {log: one for log, one in self._slots.items() if one[0].place not in gone}

    def _take_answers(self) -> None:
        asked, self._asked = self._asked, None
        if asked is None:
            return
        emptied, failed = asked.succeeded(), asked.failed()
        for log in emptied:
            if log in self._slots:
                state, source, end = self._slots[log]
                state.overflow.done.emptied(source, end)
        self._slots.clear()
        now_ms = self._clock.monotonic_ms()
        if failed:
            self._next_ms = now_ms + AGAIN_MS
        reasons = {topic: reason for (topic, _), reason in failed.items()}
        for topic, reason in reasons.items():
            if topic not in self._said_ms or now_ms - self._said_ms[topic] >= SAY_EVERY_MS:
                self._said_ms[topic] = now_ms
                buckets = sum(one == topic for one, _ in failed)
                self._on_event("buckets_not_emptied", topic=topic, buckets=buckets, reason=reason)
        for topic in self._said_ms.keys() & {topic for topic, _ in emptied} - reasons.keys():
            del self._said_ms[topic]
            self._on_event("buckets_emptied_again", topic=topic)
