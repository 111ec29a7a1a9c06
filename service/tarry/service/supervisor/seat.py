"""A place for one process: who sits on it, how long it has been silent, and when the next one may come."""

from dataclasses import dataclass, field

from tarry.service.supervisor.backoff import Backoff
from tarry.service.supervisor.channel import Beat
from tarry.service.supervisor.child import ChildProcess


@dataclass(slots=True)
class Seat:
    """One of the processes, over all its lives. All times are monotonic.

    Attributes:
        index: its number, which is part of its identity.
        child: the one that lives, or is still to be reaped.
        started_ms: when it was started.
        heard_ms: its last sign of life; its start is the first.
        beat: what it said last, in this life.
        condemned: whether it was killed by us.
        start_at_ms: where there is no child: when to start one.
    """

    index: int
    child: ChildProcess | None = None
    started_ms: int = 0
    heard_ms: int = 0
    beat: Beat | None = None
    condemned: bool = False
    start_at_ms: int = 0
    lives: int = 0
    _backoff: Backoff = field(default_factory=Backoff)

    def sit(self, child: ChildProcess, now_ms: int) -> None:
        """A new life begins."""
        self.child = child
        self.started_ms = self.heard_ms = now_ms
        self.beat = None
        self.condemned = False
        self.lives += 1

    def hear(self, beat: Beat, now_ms: int) -> None:
        """It lives."""
        self.beat = beat
        self.heard_ms = now_ms

    def silent_ms(self, now_ms: int) -> int:
        """For how long nothing was heard of it; 0 where nobody is."""
        return now_ms - self.heard_ms if self.child is not None else 0

    def leave(self, now_ms: int) -> int:
        """Its life is over.

        Returns:
            In how many milliseconds the next one begins.
        """
        self.child = None
        self.beat = None
        delay_ms = self._backoff.after(self.heard_ms - self.started_ms)
        self.start_at_ms = now_ms + delay_ms
        return delay_ms

    def note(self) -> str:
        """What it does not serve though it is ready, for people; empty where that is nothing."""
        return self.beat.why if self.beat is not None and self.beat.ready else ""

    def not_ready(self) -> str:
        """Why it is not ready, in one line; empty where it is."""
        if self.child is None:
            return f"process {self.index} is to be started again"
        if self.beat is None:
            return f"process {self.index} is starting"
        return "" if self.beat.ready else f"process {self.index}: {self.beat.why}"
