"""The retry policy: how often and how long to retry, and its decision after a failure.

The wait after the n-th failure is `first_ms * factor ** (n - 1)`, at most `longest_ms`. A random share of it, up to
`jitter`, is subtracted, so that messages that failed together do not come back together (AWS Architecture Blog,
"Exponential Backoff And Jitter", 2015).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tarry.errors import ConfigError


class OnError(StrEnum):
    """How to treat an exception of the handler."""

    RETRY = "retry"
    """Retry later, as long as the policy allows."""
    DEAD = "dead"
    """Write the message to the dead letters, and continue with the next message of the key."""
    STOP = "stop"
    """Write the message and all later messages of its key to the dead letters, until they are redriven."""


class GaveUp(StrEnum):
    """Why a message is not retried."""

    FINAL = "final-error"
    ATTEMPTS = "out-of-attempts"
    TIME = "out-of-time"
    STOPPED = "key-stopped"
    NEVER_CAME = "never-came-back"
    UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The policy's decision about a failed message.

    Attributes:
        delay_ms: how long until the next attempt; None: no next attempt.
        gave_up: why there is no next attempt.
        stops_key: whether the later messages of its key go to the dead letters, too.
    """

    delay_ms: int | None
    gave_up: GaveUp | None = None
    stops_key: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a consumer retries.

    Attributes:
        first_ms: the wait after the first failure.
        factor: the ratio of each wait to the one before.
        longest_ms: the longest wait.
        jitter: the largest share of a wait, 0 to 1, by which the wait may be shortened at random.
        attempts: the most attempts of a message, including the first; None: no limit.
        total_ms: the longest time from the first failure to the last attempt; None: no limit.
        on_error: how to treat exceptions, by class. The most specific matching class decides; without one, `RETRY`.
        when_exhausted: what to do when a message is out of attempts or time: `DEAD` or `STOP`.

    Raises:
        ConfigError: a value is invalid.
    """

    first_ms: int = 1_000
    factor: float = 2.0
    longest_ms: int = 3_600_000
    jitter: float = 0.5
    attempts: int | None = 10
    total_ms: int | None = None
    on_error: Mapping[type[BaseException], OnError] = field(default_factory=dict)
    when_exhausted: OnError = OnError.DEAD

    def __post_init__(self) -> None:
        self._refuse_other_types()
        for holds, text in (
            (self.first_ms >= 1, "first_ms: must be at least 1"),
            (self.factor >= 1, "factor: must be at least 1"),
            (self.longest_ms >= self.first_ms, "longest_ms: must be at least first_ms"),
            (0 <= self.jitter <= 1, "jitter: must be from 0 to 1"),
            (self.attempts is None or self.attempts >= 1, "attempts: must be at least 1, or None"),
            (self.total_ms is None or self.total_ms >= 0, "total_ms: must be at least 0, or None"),
            (
                all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.on_error),
                "on_error: the keys must be exception classes, not their names",
            ),
            (
                all(isinstance(asked, OnError) for asked in self.on_error.values()),
                "on_error: the values must be OnError.RETRY, DEAD or STOP",
            ),
            (self.when_exhausted is not OnError.RETRY, "when_exhausted: must be DEAD or STOP"),
        ):
            if not holds:
                raise ConfigError(f"retry policy: {text}")

    def _refuse_other_types(self) -> None:
        """Refuse values of a wrong type, before they are compared."""
        for name, what, kinds, may_be_none in (
            ("first_ms", "a whole number of milliseconds", (int,), False),
            ("factor", "a number", (int, float), False),
            ("longest_ms", "a whole number of milliseconds", (int,), False),
            ("jitter", "a number", (int, float), False),
            ("attempts", "a whole number, or None", (int,), True),
            ("total_ms", "a whole number of milliseconds, or None", (int,), True),
            ("on_error", "a mapping from exception classes", (Mapping,), False),
            ("when_exhausted", "OnError.DEAD or OnError.STOP", (OnError,), False),
        ):
            given = getattr(self, name)
            is_right = isinstance(given, kinds) and not isinstance(given, bool)
            if not is_right and not (may_be_none and given is None):
                raise ConfigError(f"retry policy: {name}: must be {what}, not {given!r}")

    @property
    def least_ms(self) -> int:
        """The shortest wait that the policy can choose."""
        return max(1, int(self.first_ms * (1 - self.jitter)))

    def asks(self, error: BaseException) -> OnError:
        """Return how to treat an exception, by the first class of its MRO that the policy names."""
        for kind in type(error).__mro__:
            if kind in self.on_error:
                return self.on_error[kind]
        return OnError.RETRY

    def decide(
        self, error: BaseException, attempt: int, first_failed_ms: int, now_ms: int, chance: float
    ) -> RetryDecision:
        """Decide after a failure.

        Args:
            error: the exception of the handler.
            attempt: the number of attempts so far, including this one.
            first_failed_ms: when the message failed first, epoch milliseconds.
            now_ms: the current time.
            chance: a random number from 0 up to 1, for the jitter.
        """
        asked = self.asks(error)
        if asked is not OnError.RETRY:
            return RetryDecision(None, GaveUp.FINAL, asked is OnError.STOP)
        stops = self.when_exhausted is OnError.STOP
        if self.attempts is not None and attempt >= self.attempts:
            return RetryDecision(None, GaveUp.ATTEMPTS, stops)
        delay_ms = self._delay_ms(attempt, chance)
        if self.total_ms is not None and now_ms + delay_ms > first_failed_ms + self.total_ms:
            return RetryDecision(None, GaveUp.TIME, stops)
        return RetryDecision(delay_ms)

    def _delay_ms(self, attempt: int, chance: float) -> int:
        try:
            full = min(self.first_ms * self.factor ** (attempt - 1), self.longest_ms)
        except OverflowError:
            full = self.longest_ms
        return max(1, int(full * (1 - self.jitter * chance)))
