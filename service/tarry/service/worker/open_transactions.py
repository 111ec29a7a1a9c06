"""Finding transactions that stay open in the logs that this process reads: they are the cause of what waits there.

Behind the first record of an open transaction, a read_committed reader sees nothing. If somebody leaves one open in an
intake, nothing behind it is read; in the log of a level, or in the parked log, the messages behind it become late; in a
journal, the next take-over waits. The last stable offset of such a log stays where it is, behind the end of the log.

Our own transactions last milliseconds, and the brokers abort one that is left open after half a minute. So one of them
is reported only if its end waits for a log without a leader, or if a broker has forgotten it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tarry.core.progress.checkpoint import Geometry
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.partition_logs import read_logs_of
from tarry.kafka.types import Place
from tarry.service.worker.context import Context

LOOKS = 3
"""How often the brokers are asked in the time from which on a transaction is reported."""

SAY_EVERY_MS = 600_000
"""How often an event reports a transaction that is still open."""


class Report(NamedTuple):
    """What an event has to say.

    Attributes:
        event: its name.
        log: the log.
        offset: the first record of the transaction.
        for_ms: for how long it has been seen to be open.
    """

    event: str
    log: Place
    offset: int
    for_ms: int


@dataclass(slots=True)
class _Open:
    """A transaction that is open in a log.

    Attributes:
        offset: the last stable offset.
        since_ms: when it was seen first.
        said_ms: when an event last reported it; None: it was not open for long enough.
    """

    offset: int
    since_ms: int
    said_ms: int | None = None


class StableOffsets:
    """Decides which transactions stay open, from offsets alone.

    A last stable offset that is behind the end of its log, and is the same the next time, is that of one transaction,
    which was open all the time: the offset never goes back, and moves when the transaction ends.

    Args:
        after_ms: from what age on a transaction is reported.
    """

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms
        self._open: dict[Place, _Open] = {}

    def note(self, stable: Mapping[Place, int], ends: Mapping[Place, int], now_ms: int) -> list[Report]:
        """Take the last stable offsets and the ends of logs; what is known of logs without an answer stays.

        Args:
            stable: the last stable offsets.
            ends: the high watermarks.
            now_ms: when they were asked for; monotonic.
        """
        return [
            report
            for log, offset in stable.items()
            if log in ends
            for report in self._note(log, offset, now_ms, is_behind=offset < ends[log])
        ]

    def staying(self, now_ms: int) -> dict[Place, int]:
        """Return the logs with a transaction that stays open, and for how long it has been open."""
        return {log: now_ms - one.since_ms for log, one in self._open.items() if one.said_ms is not None}

    def keep(self, logs: Collection[Place]) -> None:
        """Forget all other logs."""
        self._open = {log: one for log, one in self._open.items() if log in logs}

    def _note(self, log: Place, offset: int, now_ms: int, *, is_behind: bool) -> Iterable[Report]:
        known = self._open.get(log)
        if known is not None and (known.offset != offset or not is_behind):
            del self._open[log]
            if known.said_ms is not None:
                yield Report("transaction_ended", log, known.offset, now_ms - known.since_ms)
        if not is_behind:
            return
        one = self._open.setdefault(log, _Open(offset, now_ms))
        for_ms = now_ms - one.since_ms
        if for_ms >= self._after_ms and (one.said_ms is None or now_ms - one.said_ms >= SAY_EVERY_MS):
            one.said_ms = now_ms
            yield Report("transaction_stays_open", log, offset, for_ms)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to the brokers."""

    stable: PendingAnswers
    ends: PendingAnswers
    at_ms: int

    @property
    def done(self) -> bool:
        return self.stable.done and self.ends.done


class OpenTransactions:
    """Looks for transactions that stay open in the logs of one process's partitions, without waiting.

    Args:
        offsets: asks the brokers for offsets.
        geometries: the shape of the overflow wheel, by intake.
        after_ms: from what age on a transaction is reported; 0: the brokers are not asked.
        context: monotonic time and the log.
    """

    def __init__(self, offsets: Offsets, geometries: Mapping[str, Geometry], after_ms: int, context: Context) -> None:
        self._offsets = offsets
        self._geometries = geometries
        self._after_ms = after_ms
        self._clock = context.clock
        self._on_event = context.on_event
        self._stable_offsets = StableOffsets(after_ms)
        self._logs: dict[Place, Place] = {}
        """The logs that were asked about last, and the partition of each."""
        self._asked: _Asked | None = None
        self._next_ms = 0

    def turn(self, look: Callable[[], Iterable[Place]]) -> None:
        """Take the brokers' answers, or ask again.

        Args:
            look: returns the partitions whose logs this process reads, or will read; called only to ask.
        """
        if self._asked is not None:
            if self._asked.done:
                asked, self._asked = self._asked, None
                self._take_answers(asked)
            return
        now_ms = self._clock.monotonic_ms()
        if self._after_ms and now_ms >= self._next_ms:
            self._ask(look(), now_ms)

    def seconds(self) -> dict[tuple[Place, str], float]:
        """Return for how long the transactions that stay open have been open, by partition and topic."""
        staying = self._stable_offsets.staying(self._clock.monotonic_ms())
        return {(self._logs[log], log[0]): for_ms / 1000 for log, for_ms in staying.items()}

    def forget(self, gone: Collection[Place]) -> None:
        """Forget partitions that are no longer ours, or are set aside."""
        self._keep({log: place for log, place in self._logs.items() if place not in gone})

    def _keep(self, logs: dict[Place, Place]) -> None:
        self._logs = logs
        self._stable_offsets.keep(logs)

    def _ask(self, places: Iterable[Place], now_ms: int) -> None:
        self._keep({log: place for place in places for log in read_logs_of(place, self._geometries[place[0]])})
        if self._logs:
            self._next_ms = now_ms + self._after_ms // LOOKS
            stable, ends = (self._offsets.ask_ends(self._logs, committed=committed) for committed in (True, False))
            self._asked = _Asked(stable, ends, now_ms)

    def _take_answers(self, asked: _Asked) -> None:
        reports = self._stable_offsets.note(asked.stable.answers(), asked.ends.answers(), asked.at_ms)
        for event, (topic, partition), offset, for_ms in reports:
            self._on_event(event, topic=topic, partition=partition, offset=offset, for_s=round(for_ms / 1000))
