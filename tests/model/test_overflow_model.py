"""One partition with the overflow wheel of the default configuration, over weeks and months, in seconds.

Crashes before and after every commit, outages from seconds to weeks, targets that are away for days, bursts larger than
memory, cancels, records that no level takes, lost offsets, deletions that a killed broker forgets. The judge sees each
commit: each message fires once, or is cancelled once, or is dead once, never early, and in the order of (due time,
offset) where it was accepted before it was due.

The suite's courses are the same each time, so that a change is judged by what it does; `make test-all` has new ones.
"""

from collections import Counter

import pytest

from tarry.core.progress.checkpoint import LIMIT
from tarry.core.progress.source import PARKED
from tarry.headers import Outcome
from tests.support.months import Months
from tests.support.owner import GEOMETRY

FIRST = 1
SHORT, LONG = (3, 200), (40, 500)
"""Days in which anything is sent, and how many messages, about."""


def run(seed: int, course: tuple[int, int], *, broker_forgets: bool = False) -> Months:
    months = Months(seed, *course)
    months.broker_forgets = broker_forgets
    try:
        months.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {course}: {error}") from error
    assert all(sent.outcome is not None for sent in months.intake.values()), f"seed {seed}: lost"
    assert not any(log.left for log in months.levels.values()), f"seed {seed}: left behind"
    assert (months.state.held, months.state.held_bytes) == (0, 0), f"seed {seed}"
    assert months.state.low == months.intake_end
    assert months.most_text <= LIMIT
    return months


@pytest.mark.no_cover
def test_months_keep_all_promises() -> None:
    filed: Counter[int] = Counter()
    outcomes: Counter[Outcome | None] = Counter()
    lives = copies = turned = known = 0
    for months in [
        *(run(seed, LONG) for seed in range(FIRST, FIRST + 2)),
        *(run(s, SHORT) for s in (9, 10, 14, 18, 20)),
    ]:
        filed += months.filed_to
        outcomes += Counter(sent.outcome for sent in months.intake.values())
        lives, copies = lives + months.lives, copies + months.copies_used
        turned += months.turned_to_passes
        known += months.known_from_the_index
    # Or they would have seen nothing.
    assert set(filed) == {*range(1, GEOMETRY.levels + 1), PARKED}
    assert set(outcomes) == {Outcome.FIRED, Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE, Outcome.DEAD}
    assert (lives > 100, copies > 20, turned > 3, known > 50) == (True, True, True, True)


def test_after_an_outage_no_bucket_is_overtaken_by_the_first_one_of_the_bucket_above() -> None:
    """A large bucket, read slowly; empty ones behind it; and one message due a width of the level above later."""
    months = Months(1, days=0, messages=0)
    months.calm = True
    above_ms = GEOMETRY.width_of(2)
    start_ms = (months.now_ms // above_ms + 4) * above_ms
    for at in range(12):
        months.send(start_ms + at - months.now_ms, "orders")
    for behind_ms in (GEOMETRY.width_ms, above_ms):
        months.send(start_ms + behind_ms - months.now_ms, "orders")
    while months.turn() or months.now_ms < start_ms - GEOMETRY.width_of(2):
        months.now_ms += 1_000
    months.now_ms = start_ms + 3 * above_ms
    months.take_over()
    months.pace = 1
    while months.turn():
        pass
    assert months.judge.waiting() == 0


@pytest.mark.no_cover
def test_deleted_records_that_a_killed_broker_brings_back_do_not_fire_again() -> None:
    back = 0
    for seed in (1, 3, 6):
        back += sum(len(log.back) for log in run(seed, LONG, broker_forgets=True).levels.values())
    assert back > 20


@pytest.mark.exhaustive
def test_years_keep_all_promises(seed: int, soak_for_s: float) -> None:
    for at in range(round(soak_for_s / 2)):
        run(seed + at, LONG if at % 2 else SHORT)
