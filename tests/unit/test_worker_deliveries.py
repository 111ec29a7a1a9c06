"""Counting deliveries by target: exact numbers, the worst lateness, and quantiles of a sample."""

from types import SimpleNamespace
from typing import cast

from tarry.core.batch import Batch
from tarry.core.message import HeldMessage
from tarry.core.partition import PartitionState
from tarry.core.request.figures import MOST_TARGETS
from tarry.service.worker.deliveries import Deliveries

NOW_MS = 1_700_000_000_000
STATE = cast("PartitionState", SimpleNamespace(intake="in"))
BY = cast("PartitionState", SimpleNamespace(intake="by"))


def batch(*late: tuple[str, int], state: PartitionState = STATE) -> tuple[PartitionState, Batch]:
    due = [HeldMessage(NOW_MS - ms, n, None, None, None, False, target, -1, b"") for n, (target, ms) in enumerate(late)]
    return state, Batch(due)


def test_each_target_has_its_number_and_its_lateness_in_a_period() -> None:
    deliveries = Deliveries()
    deliveries.note([batch(*[("a", 100 - n) for n in range(100)]), batch(("b", 7), ("a", 500), ("b", 3))], NOW_MS)
    first, second = deliveries.period()["in"]
    assert (first.target, first.messages, first.worst_ms) == ("a", 101, 500)
    assert 30 <= first.p50_ms <= 70
    assert first.p99_ms == 500
    assert (second.target, second.messages, second.p50_ms, second.worst_ms) == ("b", 2, 3, 7)
    assert deliveries.total == 103
    assert deliveries.period() == {}
    deliveries.note([batch(("b", -5))], NOW_MS)
    [only] = deliveries.period()["in"]
    assert (only.messages, only.worst_ms) == (1, 0)
    assert deliveries.total == 104


def test_each_intake_has_its_own_deliveries() -> None:
    deliveries = Deliveries()
    deliveries.note([batch(("a", 1)), batch(("a", 9), ("a", 2), state=BY)], NOW_MS)
    found = deliveries.period()
    assert {intake: [(one.target, one.messages, one.worst_ms) for one in of] for intake, of in found.items()} == {
        "in": [("a", 1, 1)],
        "by": [("a", 2, 9)],
    }


def test_the_targets_with_the_most_messages_are_kept() -> None:
    deliveries = Deliveries()
    deliveries.note([batch(*[(f"t{n}", 1) for n in range(MOST_TARGETS + 20)]), batch(("t60", 1))], NOW_MS)
    found = deliveries.period()["in"]
    assert len(found) == MOST_TARGETS
    assert found[0].target == "t60"
