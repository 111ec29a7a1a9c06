"""Bulk acts on messages that wait, while the service or others go on: on the fake cluster."""

from collections.abc import Iterator

import pytest

from tarry.api.operations import waiting
from tarry.api.operations.picked import Bits, Picked
from tarry.api.operations.records import Act, Asked
from tarry.api.operations.steps import Left, Step
from tarry.api.operations.waiting import NEAR_MS, WaitingSteps
from tests.support.inspected_intake import POLICY, InspectedIntake

MINUTE_MS = 60_000
BY_MS = 1_000


class Operation:
    """An operation on messages of the first partition, executed as far as it is handled."""

    def __init__(self, scene: InspectedIntake, act: Act, offsets: list[int]) -> None:
        picked, until_ms = Picked({0: offsets}), scene.clock.now_ms() + 10 * MINUTE_MS
        asked = Asked("id", act, "in", "", picked, {"out": len(picked)}, by_ms=BY_MS, until_ms=until_ms)
        self.handled = Bits(len(picked))
        self.left: dict[int, str] = {}
        self.done: list[list[int]] = []
        """The numbers of the messages of each transaction, in order."""
        self._scene = scene
        self._waiting = WaitingSteps(scene.inspector, asked, [POLICY], scene.clock)
        self._steps = self._waiting.steps(self.handled)

    def next(self) -> Step | None:
        return next(self._steps, None)

    def execute(self, step: Step) -> None:
        """Write what is left of a step after another look."""
        checked = self._waiting.look_again(step)
        self.left.update(checked.left)
        numbers = [number for number, _ in checked.writes]
        if numbers:
            self.done.append(numbers)
        for _, records in checked.writes:
            for record in records:
                self._scene.broker.append("in", record.key, record.value, record.headers, 0)
        self.handled.update([*numbers, *(number for number, _ in checked.left)])

    def run(self) -> "Operation":
        while (step := self.next()) is not None:
            self.execute(step)
        return self


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "AT_ONCE", 2)
        yield


@pytest.mark.parametrize("picked", [[0], [0, 1]])
def test_a_named_message_is_not_moved_over_a_newer_one_that_the_service_has_not_read(picked: list[int]) -> None:
    scene = InspectedIntake()
    scene.send(MINUTE_MS, 0, b"n")
    scene.serve(1_000)
    scene.send(MINUTE_MS // 2, 0, b"n")  # takes its place, once the service reads it
    found = Operation(scene, Act.MOVE, picked).run()
    assert found.left.get(0) == Left.NOT_WAITING
    assert found.done == ([[1]] if len(picked) > 1 else [])


def test_a_named_message_is_not_moved_over_a_newer_one_that_comes_in_the_last_moment() -> None:
    scene = InspectedIntake()
    scene.send(MINUTE_MS, 0, b"n")
    scene.serve(1_000)
    operation = Operation(scene, Act.MOVE, [0])
    step = operation.next()
    assert step is not None
    scene.send(MINUTE_MS // 2, 0, b"n")
    operation.execute(step)
    assert (operation.done, operation.left) == ([], {0: Left.NOT_WAITING})


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("act", [Act.MOVE, Act.CANCEL])
def test_what_somebody_cancels_in_the_last_moment_is_left(act: Act, *, is_answered: bool) -> None:
    scene = InspectedIntake()
    handles = [scene.send(MINUTE_MS + number) for number in range(2)]
    scene.serve(MINUTE_MS - 2 * NEAR_MS if is_answered else 1_000)  # at last it waits in memory
    operation = Operation(scene, act, [0, 1])
    step = operation.next()
    assert step is not None
    scene.cancel(handles[1])
    if is_answered:
        scene.serve(100)
    operation.execute(step)
    assert operation.run().left == {1: Left.CANCELLED}
    assert operation.done == [[0]]


@pytest.mark.parametrize("late_ms", [-NEAR_MS // 2, 0, MINUTE_MS])
def test_what_is_being_delivered_is_not_moved(late_ms: int) -> None:
    scene = InspectedIntake()
    scene.send(MINUTE_MS)
    scene.send(3 * MINUTE_MS)
    scene.send(MINUTE_MS, 0, b"n")  # replaced, if it still waits: so it never arrives twice
    scene.serve(1_000)
    scene.stop()
    operation = Operation(scene, Act.MOVE, [0, 1, 2])
    scene.clock.advance(MINUTE_MS - 1_000 + late_ms)
    operation.run()
    assert operation.left == {0: Left.BEING_DELIVERED}
    assert operation.done == [[1, 2]]


def test_what_is_due_after_the_messages_were_found_is_not_moved() -> None:
    scene = InspectedIntake()
    scene.send(MINUTE_MS)
    scene.serve(1_000)
    operation = Operation(scene, Act.MOVE, [0])
    step = operation.next()
    assert step is not None
    scene.serve(2 * MINUTE_MS)
    assert scene.delivered()
    operation.execute(step)
    assert (operation.run().done, operation.left) == ([], {0: Left.BEING_DELIVERED})


@pytest.mark.usefixtures("two_at_once")
def test_no_message_is_moved_past_a_later_one_and_those_of_one_time_stay_together_in_order() -> None:
    scene = InspectedIntake()
    delays = [MINUTE_MS, 2 * MINUTE_MS, 3 * MINUTE_MS, 2 * MINUTE_MS, 2 * MINUTE_MS, MINUTE_MS]
    for delay_ms in delays:
        scene.send(delay_ms)
    found = Operation(scene, Act.MOVE, list(range(6))).run()
    assert found.done == [[2, 1, 3, 4], [0, 5]]
    scene.clock.advance(1)
    found = Operation(scene, Act.CANCEL, list(range(6, 18))).run()
    assert [len(numbers) for numbers in found.done] == [2, 2, 2]
