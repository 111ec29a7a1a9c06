"""A seat for one worker process: its current child, the time of its last heartbeat, and the time of its next start.

The first restart is immediate, so that a process that was killed by accident is back at once. For a process that keeps
failing the delays grow, so that its restarts do not overload the machine or the brokers.
"""

from dataclasses import dataclass, field

from tarry.service.supervisor.channel import Beat
from tarry.service.supervisor.child import ChildProcess

HEALTHY_MS = 60_000
"""After a life of at least this length, the next restart is immediate again."""

FIRST_MS = 1_000
"""The delay of the second restart; each one after it has twice the delay."""

LONGEST_MS = 30_000
"""The longest delay."""


class Backoff:
    """The restart delays of one process: 0, 1, 2, 4, 8, 16, 30, 30 … seconds."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, healthy_ms: int) -> int:
        """Return the delay before the next start, in milliseconds.

        Args:
            healthy_ms: how long the process lived: from its start to its last heartbeat.
        """
        if healthy_ms >= HEALTHY_MS:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0
        # The exponent is bounded, too: without that, the shifted number would grow with each failure.
        return min(FIRST_MS << min(self._failures - 2, 10), LONGEST_MS)


@dataclass(slots=True)
class Seat:
    """One worker process, over all its restarts. All times are monotonic.

    Attributes:
        index: the number of the process, which is part of its identity in the group.
        child: the child that runs, or is still to be reaped; None if there is none.
        started_ms: when the child was started.
        heard_ms: when its last heartbeat came, or when it was started.
        beat: the last heartbeat of this child, if there was one.
        is_killed: whether the supervisor has killed the child.
        start_at_ms: if there is no child, when to start the next one.
        lives: how many children were started.
    """

    index: int
    child: ChildProcess | None = None
    started_ms: int = 0
    heard_ms: int = 0
    beat: Beat | None = None
    is_killed: bool = False
    start_at_ms: int = 0
    lives: int = 0
    _backoff: Backoff = field(default_factory=Backoff)

    def begin(self, child: ChildProcess, now_ms: int) -> None:
        """Note that a new child was started."""
        self.child = child
        self.started_ms = self.heard_ms = now_ms
        self.beat = None
        self.is_killed = False
        self.lives += 1

    def hear(self, beat: Beat, now_ms: int) -> None:
        """Note a heartbeat."""
        self.beat = beat
        self.heard_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        """Return the milliseconds since the last heartbeat; 0 if there is no child."""
        return now_ms - self.heard_ms if self.child is not None else 0

    def end(self, now_ms: int) -> int:
        """Note that the child has ended.

        Returns:
            The delay until the next start, in milliseconds.
        """
        self.child = None
        self.beat = None
        delay_ms = self._backoff.after(self.heard_ms - self.started_ms)
        self.start_at_ms = now_ms + delay_ms
        return delay_ms

    def unserved(self) -> str:
        """Return the partitions that a ready process does not serve, for people; empty if there are none."""
        return self.beat.why if self.beat is not None and self.beat.ready else ""

    def not_ready(self) -> str:
        """Return the reason why the process is not ready, in one line; empty if it is ready."""
        if self.child is None:
            return f"process {self.index} will be restarted"
        if self.beat is None:
            return f"process {self.index} is starting"
        return "" if self.beat.ready else f"process {self.index}: {self.beat.why}"
