"""Deleting done records from the logs of levels and the parked log, once a second and without waiting.

If the brokers refuse that, mostly because the right to DELETE is missing, the logs keep their records and everything
else goes on. The service keeps trying, and keeps reporting the failure.

The log of a level is trimmed only below an offset that a committed checkpoint names: a process that takes over reads
from there on, and the broker does not check group membership for a deletion. The parked log is trimmed only below
records that committed transactions have completed: their done records say so to a process that takes over. Nothing of
it is deleted before a commit of ours: while we took the partition over, another process may have done so, too, and what
it has filed since the journal was read would count as done. Nor is a log trimmed above the position of our own reader,
which may stand in front of records that are done: it would get an error instead of the records behind them.
"""

from collections.abc import Callable, Collection, Sequence

from tarry.core.partition import PartitionState
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.types import Place
from tarry.service.metrics.families import TRIM_FAILURES
from tarry.service.worker.context import Context

EVERY_MS = 1_000
"""How often the logs are trimmed."""

AGAIN_MS = 10_000
"""How long to wait before the next try, after the brokers have refused one."""

SAY_EVERY_MS = 60_000
"""How often an event reports that the logs of a level are not trimmed."""


class Trimming:
    """Trims the logs of one process's partitions.

    Args:
        offsets: asks the brokers to delete records.
        needs_from: returns the offset of a log below which this process reads nothing; None: it reads nothing of it.
        context: monotonic time, the log and the metrics.
    """

    def __init__(self, offsets: Offsets, needs_from: Callable[[Place], int | None], context: Context) -> None:
        self._offsets = offsets
        self._needs_from = needs_from
        self._clock = context.clock
        self._on_event = context.on_event
        self._tally = context.tally
        self._asked: PendingAnswers | None = None
        self._below: dict[Place, tuple[PartitionState, int, int]] = {}
        """For each log its partition, its level, and the offset below which it is being trimmed."""
        self._next_ms = 0
        self._said_ms: dict[str, int] = {}
        """When an event last reported that a topic is not trimmed; no entry once it is."""

    def turn(self, states: Sequence[PartitionState]) -> list[PartitionState]:
        """Take the brokers' answers, or send the next requests, without waiting.

        Returns:
            Partitions whose checkpoints must be committed before their logs can be trimmed further.
        """
        if self._asked is not None:
            if self._asked.done:
                asked, self._asked = self._asked, None
                self._take_answers(asked)
            return []
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + EVERY_MS
        for state in states:
            for level, below in state.to_trim().items():
                log = level_log_of(state.place, level)
                needs_from = self._needs_from(log)
                if needs_from is None or needs_from >= below:
                    self._below[log] = state, level, below
        if self._below:
            self._asked = self._offsets.trim({log: below for log, (_, _, below) in self._below.items()})
        return [state for state in states if state.is_low_uncommitted]

    def forget(self, gone: Collection[Place]) -> None:
        """Forget partitions that are no longer ours."""
        self._below = {log: one for log, one in self._below.items() if one[0].place not in gone}

    def _take_answers(self, asked: PendingAnswers) -> None:
        trimmed, failed = asked.succeeded(), asked.failed()
        for log in trimmed:
            if log in self._below:
                state, level, below = self._below[log]
                state.trimmed(level, below)
        for intake in {self._below[log][0].intake for log in failed if log in self._below}:
            self._tally.count(TRIM_FAILURES, 1, intake)
        self._below.clear()
        now_ms = self._clock.monotonic_ms()
        if failed:
            self._next_ms = now_ms + AGAIN_MS
        reasons = {topic: reason for (topic, _), reason in failed.items()}
        for topic, reason in reasons.items():
            if topic not in self._said_ms or now_ms - self._said_ms[topic] >= SAY_EVERY_MS:
                self._said_ms[topic] = now_ms
                logs = sum(one == topic for one, _ in failed)
                self._on_event("buckets_not_emptied", topic=topic, logs=logs, reason=reason)
        for topic in self._said_ms.keys() & {topic for topic, _ in trimmed} - reasons.keys():
            del self._said_ms[topic]
            self._on_event("buckets_emptied_again", topic=topic)
