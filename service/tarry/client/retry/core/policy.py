"""How often and how long a handler is tried again: a policy's values, and what it decides after a failure.

The wait after the n-th failure is `first_ms * factor ** (n - 1)`, at most `longest_ms`; of that, a random part of up to
`jitter` is left out, so that messages that failed together do not come back together (AWS Architecture Blog,
"Exponential Backoff And Jitter", 2015).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tarry.errors import ConfigError


class OnError(StrEnum):
    """What an error of the handler asks for."""

    RETRY = "retry"
    """Again later, as long as the policy allows."""
    DEAD = "dead"
    """Again would not help: to the dead letters, and on with the next of the key."""
    STOP = "stop"
    """To the dead letters, and all that follows of the key with it, until somebody sends them again."""


class GaveUp(StrEnum):
    """Why a message is not tried again."""

    FINAL = "final-error"
    ATTEMPTS = "out-of-attempts"
    TIME = "out-of-time"
    STOPPED = "key-stopped"
    NEVER_CAME = "never-came-back"
    UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What becomes of a message whose handler failed.

    Attributes:
        delay_ms: it is tried again so much later; None: it is not.
        gave_up: why it is not.
        stops_key: whether what follows of its key goes to the dead letters as well.
    """

    delay_ms: int | None
    gave_up: GaveUp | None = None
    stops_key: bool = False


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a consumer tries again.

    Attributes:
        first_ms: the wait after the first failure.
        factor: by which each wait is longer than the one before.
        longest_ms: no wait is longer.
        jitter: the share of a wait that is left to chance, 0 to 1.
        attempts: how often a message is handled at most, the first time included; None: no limit.
        total_ms: from its first failure on, when a message is given up; None: no limit.
        on_error: what errors ask for, by class; the most specific class that fits decides, `RETRY` where none does.
        when_exhausted: what becomes of a key whose message is out of attempts or time: `DEAD` or `STOP`.

    Raises:
        ConfigError: a value makes no sense.
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
            (self.first_ms >= 1, "first_ms: at least 1"),
            (self.factor >= 1, "factor: at least 1"),
            (self.longest_ms >= self.first_ms, "longest_ms: at least first_ms"),
            (0 <= self.jitter <= 1, "jitter: 0 to 1"),
            (self.attempts is None or self.attempts >= 1, "attempts: at least 1, or None"),
            (self.total_ms is None or self.total_ms >= 0, "total_ms: at least 0, or None"),
            (
                all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.on_error),
                "on_error: classes of exceptions, not their names",
            ),
            (
                all(isinstance(asked, OnError) for asked in self.on_error.values()),
                "on_error: for each class OnError.RETRY, DEAD or STOP",
            ),
            (self.when_exhausted is not OnError.RETRY, "when_exhausted: DEAD or STOP"),
        ):
            if not holds:
                raise ConfigError(f"retry policy: {text}")

    def _refuse_other_types(self) -> None:
        """Refuse what is not a number where one belongs, before it is compared."""
        for name, what, kinds, may_be_none in (
            ("first_ms", "milliseconds, a whole number", (int,), False),
            ("factor", "a number", (int, float), False),
            ("longest_ms", "milliseconds, a whole number", (int,), False),
            ("jitter", "a number", (int, float), False),
            ("attempts", "a whole number, or None", (int,), True),
            ("total_ms", "milliseconds, a whole number, or None", (int,), True),
            ("on_error", "a mapping from classes of exceptions", (Mapping,), False),
            ("when_exhausted", "OnError.DEAD or OnError.STOP", (OnError,), False),
        ):
            given = getattr(self, name)
            is_right = isinstance(given, kinds) and not isinstance(given, bool)
            if not is_right and not (may_be_none and given is None):
                raise ConfigError(f"retry policy: {name}: {what}, not {given!r}")

    @property
    def least_ms(self) -> int:
        """The shortest wait that it can decide on."""
        return max(1, int(self.first_ms * (1 - self.jitter)))

    def asks(self, error: BaseException) -> OnError:
        """What an error asks for, by the first of its classes that the policy knows."""
        for kind in type(error).__mro__:
            if kind in self.on_error:
                return self.on_error[kind]
        return OnError.RETRY

    def decide(
        self, error: BaseException, attempt: int, first_failed_ms: int, now_ms: int, chance: float
    ) -> RetryDecision:
        """Decide after a failure.

        Args:
            error: what the handler raised.
            attempt: how often the message was handled, this time included: 1 or more.
            first_failed_ms: when it failed for the first time, epoch milliseconds.
            now_ms: the time.
            chance: a random number from 0 up to 1.
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
