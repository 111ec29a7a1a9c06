"""Messages that are passed over on a real broker: a burst for later, and a message that is due soon behind it."""

import time
from typing import Any

import pytest

from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Geometry
from tarry.service.worker.plan import IntakePlan
from tests.support.stage import Running, Stage

pytestmark = pytest.mark.stage(partitions=1)

GEOMETRY = Geometry(1_000, 2, 2)
"""Buckets of 1 and 2 s: what is due in more than 2 s may be passed over."""

BURST = 12_000
"""More than two reads: what the first one brings waits to be filed."""

BOUNDS = {"most_to_file": 2_000, "most": 1_000}
FAR_MS = 15_000


def serve(stage: Stage, **plan: Any) -> Running:
    worker = stage.worker(intakes={stage.intake: IntakePlan(stage.reader, False, GEOMETRY, 3_600_000)}, **plan)
    worker.until_serving()
    return worker


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.make_intake(geometry=GEOMETRY)
    return stage


def only(worker: Running) -> PartitionState:
    [state] = worker.worker.look().states.values()
    return state


def test_a_burst_is_passed_over_and_filed_later_and_what_is_due_soon_does_not_wait_for_it(stage: Stage) -> None:
    worker = serve(stage, **BOUNDS)
    arrived = stage.committed(stage.target)
    due_ms = time.time_ns() // 1_000_000 + FAR_MS

    def request(due: int) -> list[tuple[str, bytes | None]]:
        return [("tarry-target", stage.target.encode()), ("tarry-deliver-at", b"%d" % due)]

    burst = [(0, b"k", b"far %d" % number, request(due_ms)) for number in range(BURST)]
    stage.put(stage.intake, *burst, (0, b"k", b"soon", request(due_ms - FAR_MS + 1_000)))
    most_passed = 0

    def soon_arrived() -> bool:
        nonlocal most_passed
        most_passed = max(most_passed, len(only(worker).passed_over))
        return bool(arrived.poll())

    worker.until(soon_arrived, "the message that is due soon")
    assert arrived.values() == [b"soon"]
    assert most_passed > BURST / 10
    worker.until(lambda: not only(worker).passed_over.span, "all is read again", 60)
    worker.until(lambda: len(arrived.poll()) == BURST + 1, "the burst", 60)
    assert arrived.values() == [b"soon", *(b"far %d" % number for number in range(BURST))]
    assert all(record.timestamp()[1] >= due_ms for record in arrived.records[1:])


def test_what_a_worker_has_passed_over_is_left_to_the_next_one(stage: Stage) -> None:
    worker = serve(stage, **BOUNDS)
    arrived = stage.committed(stage.target)
    due_ms = time.time_ns() // 1_000_000 + FAR_MS
    headers: list[tuple[str, bytes | None]] = [
        ("tarry-target", stage.target.encode()),
        ("tarry-deliver-at", b"%d" % due_ms),
    ]
    stage.put(stage.intake, *[(0, b"k", b"%d" % number, headers) for number in range(BURST)])
    worker.until(lambda: len(only(worker).passed_over) > BURST / 10, "some are passed over")
    worker.close()
    second = serve(stage, **BOUNDS)
    second.until(lambda: len(arrived.poll()) == BURST, "the burst", 60)
    assert arrived.values() == [b"%d" % number for number in range(BURST)]
