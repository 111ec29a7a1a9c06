"""Wall time that does not follow a step forward before the brokers confirm it.

A bucket of the overflow wheel that is closed stays closed, and a message that has fired cannot be taken back. So a
clock that is a day ahead for one turn of the loop would do lasting harm. A step forward is wall time that has outrun
monotonic time since the last turn. The service then goes on as if there had been no step, and asks the brokers for
their time:

    they confirm it          follow the step: the clock was behind, or the machine slept
    they say it is earlier   do not follow it while the clock is ahead; an event at error level says so each minute
    they do not answer       follow it after a minute, with an event: the service cannot tell which time is right

A step back is followed at once. By itself it never makes a message early. But record timestamps of the brokers are then
ahead of this clock, and what the service decides about such records stays after the clock is corrected. So the service
compares record timestamps with the later one of two times: this machine's clock, even while a step of it is not
confirmed, and the brokers' time by their last answer. It asks the brokers once an hour, and after each step.
"""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.kafka.broker_time import TOLERANCE_MS, BrokerTime

STEP_MS = 2_000
"""A wall clock that has outrun monotonic time by more than this since the last turn was set; it did not just drift."""

ASK_EVERY_MS = 5_000
"""How often the brokers are asked while a step is in doubt."""

ASK_ANEW_MS = 3_600_000
"""How often they are asked while no step is in doubt, because clocks drift apart."""

ASK_UNTOLD_MS = 60_000
"""The same while they have never answered."""

GIVE_UP_MS = 60_000
"""How long the brokers may not answer before a step is followed."""

SAY_EVERY_MS = 60_000
"""How often an event reports that the clock is ahead."""

AT_ONCE_MS = 100
"""Two clocks that are read within less than this count as read at the same time."""


class SteadyClock:
    """Wall time whose steps the brokers confirm; monotonic time and sleep are those of the machine's clock.

    Args:
        clock: the machine's.
        brokers: asks the brokers for their time.
        on_event: takes an event's name and fields, for the log.
        brokers_ms: the difference of the brokers' time and monotonic time, measured a moment ago; None if unknown.
    """

    def __init__(
        self, clock: Clock, brokers: BrokerTime, on_event: Callable[..., None], brokers_ms: int | None = None
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._on_event = on_event
        now_ms, offset_ms = self._measure()
        self._offset_ms = offset_ms
        """The trusted difference of wall time and monotonic time."""
        self._brokers_ms = brokers_ms
        """The difference of the brokers' time and monotonic time, from their last answer."""
        self._doubted_since_ms: int | None = None
        self._denied_ms: int | None = None
        """The difference of wall time and monotonic time that the brokers last denied."""
        self._asked_ms: int | None = now_ms
        """When the brokers were last asked; None: they must be asked now."""
        self._say_at_ms = now_ms

    def now_ms(self) -> int:
        """Return wall time, without a step forward that is not confirmed."""
        now_ms, offset_ms = self._measure()
        return now_ms + (offset_ms if offset_ms - self._offset_ms <= STEP_MS else self._offset_ms)

    @property
    def ahead_ms(self) -> int:
        """How far the machine's wall time is ahead of this one; 0 while this one follows it."""
        _, offset_ms = self._measure()
        by_ms = offset_ms - self._offset_ms
        return by_ms if by_ms > STEP_MS else 0

    @property
    def skew_ms(self) -> int | None:
        """How far the machine's wall time is ahead of the brokers', by their last answer; None before the first one.

        It is negative if the machine's clock is behind. The delay of the question makes it too low, by some seconds at
        most: a clock that is ahead by this is certainly ahead.
        """
        _, offset_ms = self._measure()
        return None if self._brokers_ms is None else offset_ms - self._brokers_ms

    def latest_ms(self) -> int:
        """Return the latest time that it may be: the machine's, with a step that is not denied, or the brokers'."""
        now_ms, offset_ms = self._measure()
        if self._denied_ms is not None and abs(offset_ms - self._denied_ms) <= STEP_MS:
            offset_ms = self._offset_ms
        return now_ms + (offset_ms if self._brokers_ms is None else max(offset_ms, self._brokers_ms))

    def monotonic_ms(self) -> int:
        """Return the machine's monotonic time."""
        return self._clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        self._clock.sleep(seconds)

    def turn(self) -> None:
        """Look whether wall time has made a step, or take the brokers' answer about one, without waiting."""
        now_ms, offset_ms = self._measure()
        is_answered = self._brokers.is_asked and self._brokers.look()
        if is_answered and self._brokers.offset_ms is not None:
            self._brokers_ms = self._brokers.offset_ms
        self._check_step(now_ms, offset_ms, is_answered=is_answered)
        if self._doubted_since_ms is not None:
            patience_ms = ASK_EVERY_MS
        else:
            patience_ms = ASK_ANEW_MS if self._brokers_ms is not None else ASK_UNTOLD_MS
        if not self._brokers.is_asked and (self._asked_ms is None or now_ms - self._asked_ms >= patience_ms):
            self._asked_ms = now_ms
            self._brokers.ask()

    def _check_step(self, now_ms: int, offset_ms: int, *, is_answered: bool) -> None:
        step_ms = offset_ms - self._offset_ms
        if step_ms <= STEP_MS:
            self._offset_ms = offset_ms
            if step_ms < -STEP_MS:
                self._asked_ms = None
            if self._doubted_since_ms is not None:
                self._doubted_since_ms = None
                self._on_event("clock_back")
        elif self._doubted_since_ms is None:
            self._doubted_since_ms = self._say_at_ms = now_ms
            self._asked_ms = None
            self._on_event("clock_stepped", by_ms=step_ms)
        elif is_answered:
            brokers_ms = self._brokers.offset_ms
            ahead_ms = None if brokers_ms is None else offset_ms - brokers_ms
            self._decide(ahead_ms, self._doubted_since_ms, offset_ms, now_ms)

    def close(self) -> None:
        """Stop asking the brokers."""
        self._brokers.close()

    def _decide(self, ahead_ms: int | None, doubted_since_ms: int, offset_ms: int, now_ms: int) -> None:
        if ahead_ms is not None and ahead_ms > TOLERANCE_MS:
            self._doubted_since_ms = now_ms
            self._denied_ms = offset_ms
            if now_ms >= self._say_at_ms:
                self._say_at_ms = now_ms + SAY_EVERY_MS
                self._on_event("clock_ahead", by_ms=ahead_ms)
        elif ahead_ms is not None or now_ms - doubted_since_ms >= GIVE_UP_MS:
            self._on_event("clock_followed", by_ms=offset_ms - self._offset_ms, confirmed=ahead_ms is not None)
            self._offset_ms, self._doubted_since_ms = offset_ms, None

    def _measure(self) -> tuple[int, int]:
        """Return monotonic time, and the difference of wall time and monotonic time."""
        while True:
            before_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            now_ms = self._clock.monotonic_ms()
            if now_ms - before_ms < AT_ONCE_MS:  # else this thread was interrupted between the two readings
                return now_ms, wall_ms - now_ms
