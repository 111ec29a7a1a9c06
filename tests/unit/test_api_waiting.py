"""Bulk acts on messages that wait, while the service has not read all of the intake: on the fake cluster."""

import pytest

from tarry.api.operations.picked import Bits, Picked
from tarry.api.operations.records import Act, Asked
from tarry.api.operations.steps import Left, Step
from tarry.api.operations.waiting import WaitingSteps
from tests.support.inspected_intake import POLICY, InspectedIntake

MINUTE_MS = 60_000


def steps_of(scene: InspectedIntake, act: Act, offsets: list[int]) -> list[Step]:
    now_ms = scene.clock.now_ms()
    picked = Picked({0: offsets})
    asked = Asked("id", act, "in", "", picked, {"out": len(picked)}, by_ms=1_000, until_ms=now_ms + 10 * MINUTE_MS)
    return list(WaitingSteps(scene.inspector, asked, [POLICY], scene.clock).steps(Bits(len(picked))))


@pytest.mark.parametrize("picked", [[0], [0, 1]])
def test_a_named_message_is_not_moved_over_a_newer_one_that_the_service_has_not_read(picked: list[int]) -> None:
    scene = InspectedIntake()
    scene.send(MINUTE_MS, 0, b"n")
    scene.serve(1_000)
    scene.send(MINUTE_MS // 2, 0, b"n")  # takes its place, once the service reads it
    steps = steps_of(scene, Act.MOVE, picked)
    left = {number: why for step in steps for number, why in step.left}
    done = {number for step in steps for number, _ in step.writes}
    assert left.get(0) == Left.NOT_WAITING
    assert done == set(range(1, len(picked)))
