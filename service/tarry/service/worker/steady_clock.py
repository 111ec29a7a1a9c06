"""Wall time that does not follow a step forward before the brokers confirm it.

What is closed in the overflow wheel stays closed, and what has fired has fired: so a clock that is a day ahead for one
turn of the loop would do lasting harm. A step is seen as wall time that has outrun monotonic time since the last turn.
Then time goes on as if there had been none, and the brokers are asked for theirs:

    they say the same        the step is followed: the clock was behind, or the machine slept
    they say it is earlier   it is not, for as long as the clock is ahead; an event says so, at error level, each minute
    they do not say          it is followed after a minute, as is said too: nobody can tell

A step back is followed at once. It never makes a message early by itself: but stamps of brokers are ahead of such a
clock, and what is made of them stays when it is set right. So what is read is judged by the latest time that it may be,
by this machine's clock, though a step of it is doubted, or by what the brokers said last. They are asked once an hour,
and after each step.
"""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.kafka.broker_time import TOLERANCE_MS, BrokerTime

STEP_MS = 2_000
"""Wall time that has outrun monotonic time by more than this since the last turn was set, and did not drift."""

ASK_EVERY_MS = 5_000
"""How often brokers are asked while a step is in doubt."""

ASK_ANEW_MS = 3_600_000
"""How often they are asked while nothing is: clocks drift apart."""

ASK_UNTOLD_MS = 60_000
"""The same while they have never told their time."""

GIVE_UP_MS = 60_000
"""How long brokers may say nothing before a step is followed."""

SAY_EVERY_MS = 60_000

AT_ONCE_MS = 100
"""Two clocks are read within less."""


class SteadyClock:
    """A clock that is asked about; monotonic time and sleep are the other's own.

    Args:
        clock: the machine's.
        brokers: asked for their time.
        on_event: takes an event's name and fields, for the log.
        brokers_ms: how far the brokers' time is from monotonic time, as was found a moment ago; None: not known.
    """

    def __init__(
        self, clock: Clock, brokers: BrokerTime, on_event: Callable[..., None], brokers_ms: int | None = None
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._on_event = on_event
        now_ms, offset_ms = self._measure()
        self._offset_ms = offset_ms
        """Of wall time to monotonic time, as it is trusted."""
        self._brokers_ms = brokers_ms
        """Of the brokers' time, as they said last."""
        self._doubted_since_ms: int | None = None
        self._denied_ms: int | None = None
        """The offset of wall time that the brokers denied last."""
        self._asked_ms: int | None = now_ms
        """When brokers were asked last; None: they are to be asked now."""
        self._say_at_ms = now_ms

    def now_ms(self) -> int:
        """Wall time; without a step forward that is not confirmed."""
        now_ms, offset_ms = self._measure()
        return now_ms + (offset_ms if offset_ms - self._offset_ms <= STEP_MS else self._offset_ms)

    @property
    def ahead_ms(self) -> int:
        """How far the machine's wall time is ahead of this one; 0 where this one follows it."""
        _, offset_ms = self._measure()
        by_ms = offset_ms - self._offset_ms
        return by_ms if by_ms > STEP_MS else 0

    def latest_ms(self) -> int:
        """The latest time that it may be: this machine's, with a step of it that is not denied, or the brokers'."""
        now_ms, offset_ms = self._measure()
        if self._denied_ms is not None and abs(offset_ms - self._denied_ms) <= STEP_MS:
            offset_ms = self._offset_ms
        return now_ms + (offset_ms if self._brokers_ms is None else max(offset_ms, self._brokers_ms))

    def monotonic_ms(self) -> int:
        """The machine's."""
        return self._clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        self._clock.sleep(seconds)

    def turn(self) -> None:
        """See whether wall time has made a step, or what the brokers say of it; does not wait."""
        now_ms, offset_ms = self._measure()
        is_answered = self._brokers.is_asked and self._brokers.look()
        if is_answered and self._brokers.offset_ms is not None:
            self._brokers_ms = self._brokers.offset_ms
        self._mind_a_step(now_ms, offset_ms, is_answered=is_answered)
        if self._doubted_since_ms is not None:
            patience_ms = ASK_EVERY_MS
        else:
            patience_ms = ASK_ANEW_MS if self._brokers_ms is not None else ASK_UNTOLD_MS
        if not self._brokers.is_asked and (self._asked_ms is None or now_ms - self._asked_ms >= patience_ms):
            self._asked_ms = now_ms
            self._brokers.ask()

    def _mind_a_step(self, now_ms: int, offset_ms: int, *, is_answered: bool) -> None:
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
            self._judge(ahead_ms, self._doubted_since_ms, offset_ms, now_ms)

    def close(self) -> None:
        """Ask no more."""
        self._brokers.close()

    def _judge(self, ahead_ms: int | None, doubted_since_ms: int, offset_ms: int, now_ms: int) -> None:
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
        """Monotonic time, and how far wall time is from it."""
        while True:
            before_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            now_ms = self._clock.monotonic_ms()
            if now_ms - before_ms < AT_ONCE_MS:  # else this thread was held up between the two, and they do not fit
                return now_ms, wall_ms - now_ms
