"""Named messages of one partition against an oracle that knows what was sent, and what was committed.

Many records of few names: replaced, skipped, rejected, cancelled by name and by handle, sent twice; with crashes
before and after every commit, aborts of each kind of transaction, an older copy of the checkpoint, buckets of three
levels, passes, records that are filed again, targets that are away, attempts that stay open while they are replaced,
and dead letters that are refused. Some are schedules, which go on until they are replaced or cancelled. Of a name at
most one message waits; what a result says to be gone is never delivered; all else is, once; each record gets one
outcome.

That this would find a fault, `test_names_planted_bugs` shows.
"""

from collections import Counter

import pytest

from tarry.core.window import names
from tarry.headers import Outcome
from tests.support.named_owner import run

SEEDS = range(1, 51)


@pytest.fixture(autouse=True)
def shards_are_due_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write shards as often as with many names."""
    monkeypatch.setattr(names, "LEAST_DEBT_BYTES", 300)


@pytest.mark.no_cover
def test_names_keep_all_promises() -> None:
    seen: Counter[str] = Counter()
    lives = copies = 0
    for seed in SEEDS:
        owner = run(seed)
        seen += owner.oracle.seen
        lives, copies = lives + owner.lives, copies + owner.copies_used
    # Or they would have seen nothing.
    all_of = {*Outcome} - {Outcome.CANCEL_FILED}
    reasons = {"waiting", "not-waiting", "delivered"}
    assert all_of | reasons | {"dropped", "wanted back", "letters wanted back"} <= set(seen)
    assert (lives > 150, copies > 10, seen["dropped"] > 500) == (True, True, True)


@pytest.mark.no_cover
def test_schedules_keep_all_promises() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += run(seed, schedules=0.4).oracle.seen
    assert (seen["continued"] > 100, seen["ended between two occurrences"] > 5, seen["not continued"] > 5) == (
        True,
    ) * 3


@pytest.mark.exhaustive
def test_names_keep_all_promises_in_new_courses(seed: int, soak_for_s: float) -> None:
    for at in range(round(soak_for_s * 10)):
        run(seed + at, schedules=0.3 if at % 2 else 0.0)
