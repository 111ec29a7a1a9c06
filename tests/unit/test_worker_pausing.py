"""Following the log of pauses: what the loop asks for, and when gates open, without a broker."""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tarry.core.progress.checkpoint import Obeyed
from tarry.kafka.control_log import AskedControlLog, ControlLog, NoControlLog
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.pausing import LOOK_EVERY_MS, PATIENCE_MS, Pausing
from tarry.testing import ManualClock

if TYPE_CHECKING:
    from tarry.kafka.reader import Reader

LOG = ("in.control", 0)


class Scene:
    """The part of the loop that follows the log, and the questions that it asks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.opened: list[int] = []
        self.asked: list[SimpleNamespace] = []
        self.states: dict[Place, Any] = {}
        self.pausing = Pausing(
            ["in"],
            cast("Reader", self),
            self.ask,
            lambda _topics: {},
            self.commit_checkpoints,
            Context(self.clock, self.note),
        )

    def open(self, starts: Mapping[Place, int]) -> None:
        self.opened.append(starts[LOG])

    def shut(self, places: Iterable[Place]) -> None:
        assert list(places) == [LOG]

    def ask(self, _intake: str) -> AskedControlLog:
        self.asked.append(SimpleNamespace(answer=lambda: None))
        return cast("AskedControlLog", self.asked[-1])

    def commit_checkpoints(self, _states: Sequence[Any]) -> None: ...

    def note(self, _event: str, **_fields: object) -> None: ...

    def answer(self, answer: ControlLog | NoControlLog) -> None:
        self.asked[-1].answer = lambda: answer
        self.turn()

    def turn(self, after_ms: int = 0) -> None:
        self.clock.advance(after_ms)
        self.pausing.turn(self.states)

    def take_over(self, partition: int) -> None:
        state = SimpleNamespace(knows_pauses=True, obeyed=Obeyed(0, "id"))
        self.states["in", partition] = state
        self.pausing.taken_over({("in", partition): cast("Any", state)})

    def knows(self) -> list[int]:
        return [number for (_, number), state in self.states.items() if state.knows_pauses]


def test_a_partition_that_is_taken_over_while_the_log_is_asked_for_does_not_wait_for_the_next_look() -> None:
    scene = Scene()
    scene.take_over(0)
    scene.turn()
    scene.take_over(1)
    scene.answer(ControlLog("id", 0, 0))
    assert scene.knows() == [0]
    scene.turn(1)
    assert len(scene.asked) == 2
    scene.answer(ControlLog("id", 0, 0))
    assert scene.knows() == [0, 1]


def test_a_log_that_loses_its_end_before_it_is_read_stops_no_take_over_for_ever() -> None:
    scene = Scene()
    scene.take_over(0)
    scene.turn()
    scene.answer(ControlLog("id", 0, 100))
    scene.pausing.reach({LOG: 50})
    scene.turn(PATIENCE_MS)
    assert scene.knows() == []
    scene.turn(LOOK_EVERY_MS)
    scene.answer(ControlLog("id", 0, 50))
    assert scene.knows() == [0]
