"""The decisions of a policy after failures."""

from datetime import timedelta

import pytest

from tarry.client.retry.core.policy import GaveUp, OnError, RetryDecision, RetryPolicy
from tarry.errors import ConfigError

NOW_MS = 1_700_000_000_000


def waits(policy: RetryPolicy, attempts: int, chance: float = 0.0) -> list[int | None]:
    return [policy.decide(ValueError(), attempt, NOW_MS, NOW_MS, chance).delay_ms for attempt in range(1, attempts + 1)]


def test_waits_grow_up_to_the_longest_and_then_it_is_given_up() -> None:
    policy = RetryPolicy(first_ms=100, factor=3, longest_ms=1_000, attempts=5)
    assert waits(policy, 5) == [100, 300, 900, 1_000, None]
    assert policy.decide(ValueError(), 5, NOW_MS, NOW_MS, 0) == RetryDecision(None, GaveUp.ATTEMPTS)


def test_chance_makes_waits_shorter_and_never_longer() -> None:
    policy = RetryPolicy(first_ms=100, factor=2, longest_ms=10_000, jitter=0.5)
    assert waits(policy, 3, chance=0.999999) == [50, 100, 200]
    assert policy.least_ms == 50


def test_a_wait_beyond_any_number_is_the_longest() -> None:
    policy = RetryPolicy(first_ms=1_000, factor=10, longest_ms=60_000, attempts=None, jitter=0)
    assert policy.decide(ValueError(), 100_000, NOW_MS, NOW_MS, 0.5).delay_ms == 60_000


def test_a_retry_that_would_come_back_too_late_is_given_up() -> None:
    policy = RetryPolicy(first_ms=100, factor=1, longest_ms=100, attempts=None, total_ms=1_000, jitter=0)
    assert policy.decide(ValueError(), 9, NOW_MS, NOW_MS + 900, 0).delay_ms == 100
    assert policy.decide(ValueError(), 10, NOW_MS, NOW_MS + 901, 0) == RetryDecision(None, GaveUp.TIME)


def test_the_most_specific_class_of_an_error_decides() -> None:
    policy = RetryPolicy(on_error={OSError: OnError.DEAD, ConnectionError: OnError.RETRY, KeyError: OnError.STOP})
    assert policy.decide(ConnectionResetError(), 1, NOW_MS, NOW_MS, 0).delay_ms == 1_000
    assert policy.decide(PermissionError(), 1, NOW_MS, NOW_MS, 0) == RetryDecision(None, GaveUp.FINAL)
    assert policy.decide(KeyError(), 1, NOW_MS, NOW_MS, 0) == RetryDecision(None, GaveUp.FINAL, stops_key=True)


def test_a_key_can_stop_where_a_message_is_out_of_attempts() -> None:
    policy = RetryPolicy(attempts=1, when_exhausted=OnError.STOP)
    assert policy.decide(ValueError(), 1, NOW_MS, NOW_MS, 0) == RetryDecision(None, GaveUp.ATTEMPTS, stops_key=True)


@pytest.mark.parametrize(
    "settings",
    [
        {"first_ms": 0},
        {"factor": 0.5},
        {"longest_ms": 10},
        {"jitter": 1.5},
        {"attempts": 0},
        {"total_ms": -1},
        {"when_exhausted": OnError.RETRY},
        {"on_error": {"ValueError": OnError.DEAD}},
        {"on_error": {int: OnError.DEAD}},
        {"on_error": {ValueError: "dead"}},
        {"on_error": [ValueError]},
        {"when_exhausted": "stop"},
        {"first_ms": timedelta(seconds=1)},
        {"first_ms": 1.5},
        {"first_ms": True},
        {"first_ms": None},
        {"factor": "2"},
        {"factor": float("nan")},
        {"longest_ms": timedelta(hours=1)},
        {"jitter": timedelta(0)},
        {"attempts": "10"},
        {"attempts": 2.5},
        {"total_ms": timedelta(days=1)},
    ],
    ids=str,
)
def test_values_that_make_no_sense_are_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"^retry policy: {next(iter(settings))}: [^\n]*$"):
        RetryPolicy(**settings)  # type: ignore[arg-type]  # that is what is tested
