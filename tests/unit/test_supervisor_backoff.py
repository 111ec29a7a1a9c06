"""When a process is started anew."""

from tarry.service.supervisor.seat import HEALTHY_MS, Backoff


def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer_up_to_half_a_minute() -> None:
    backoff = Backoff()
    assert [backoff.after(0) for _ in range(9)] == [0, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]


def test_after_a_healthy_minute_the_pauses_begin_again_at_zero() -> None:
    backoff = Backoff()
    assert [backoff.after(0) for _ in range(3)] == [0, 1_000, 2_000]
    assert backoff.after(HEALTHY_MS - 1) == 4_000
    assert backoff.after(HEALTHY_MS) == 0
    assert backoff.after(0) == 1_000


def test_a_million_deaths_cost_no_more_than_one() -> None:
    backoff = Backoff()
    for _ in range(1_000_000):
        delay_ms = backoff.after(0)
    assert delay_ms == 30_000
