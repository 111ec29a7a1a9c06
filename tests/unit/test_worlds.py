"""The judge of simulated worlds is judged: what nobody could see is not kept."""

import pytest

from tarry.testing.simulation import Report, RunOutcome, Shape, World
from tests.support.worlds import serve, verify_all_kept, verify_kept


def outcome(judged: int, sent: int = 10) -> RunOutcome:
    return RunOutcome(17, Shape(), (), Report(sent=sent, judged=judged), ())


def test_of_all_runs_together_enough_is_to_be_judged() -> None:
    verify_all_kept([outcome(0), outcome(10)], least_judged=0.5)
    with pytest.raises(AssertionError, match=r"seed 17: of 2 runs 45.0% was judged"):
        verify_all_kept([outcome(0), outcome(9)], least_judged=0.5)


def test_one_run_that_breaks_a_promise_is_enough() -> None:
    broken = outcome(10)
    broken.report.add("lost", "one")
    with pytest.raises(AssertionError, match="lost 1"):
        verify_all_kept([outcome(10), broken], least_judged=0.5)


def world_of(seed: int) -> World:
    world = serve(seed, Shape(poison=0.0))
    world.send(20)
    world.run(1_000)
    return world


def test_a_world_is_judged_by_as_much_as_was_in_time(seed: int) -> None:
    verify_kept(world_of(seed), least_judged=0.1)
    with pytest.raises(AssertionError, match=f"seed {seed}, "):
        verify_kept(world_of(seed), "nothing", least_judged=1.1)


def test_a_world_in_which_nothing_was_sent_in_time_shows_no_order(seed: int) -> None:
    world = serve(seed, Shape(poison=0.0))
    for _ in range(20):
        world.send_due(world.clock.now_ms())
    with pytest.raises(AssertionError, match="order judged for 0"):
        verify_kept(world, "all overdue", least_judged=0.01)
