"""Owners that obey pauses against an oracle that knows the log and each committed checkpoint.

Targets are paused and resumed at random, by the log of one intake, while processes come, go, sleep, and lose partitions
without knowing; partitions are added and adopted; the log has no leader, is hidden by a broker, is deleted and made
again; a foreign transaction is open in it. A confirmed pause is never broken, and when all is calm each target gets its
messages or is paused, as the log says.

The faults planted here must be found.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tarry.core.progress.checkpoint import Checkpoint, Obeyed
from tarry.core.request.pauses import Pauses
from tarry.kafka import control, control_log
from tarry.kafka.control_log import ControlLog, NoControlLog
from tarry.kafka.topics import Target
from tarry.service.worker import pausing
from tarry.service.worker.pausing import Pausing
from tests.support.paused_owners import Log, Process, run

SEEDS = range(1, 16)
FOUND_WITHIN = range(1, 61)

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.no_cover
def test_confirmed_pauses_are_never_broken() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += run(seed).seen
    # Or they would have seen nothing.
    assert seen["confirmed"] > 2 * len(SEEDS)
    wanted = {
        "confirmed without an owner",
        "not confirmed, and delivered",
        "fenced",
        "open",
        "away",
        "deleted",
        "hidden",
    }
    assert wanted | {"target_paused", "target_resumed", "pausing_not_possible"} <= set(seen)


@pytest.mark.exhaustive
def test_confirmed_pauses_are_never_broken_in_new_courses(seed: int, soak_for_s: float) -> None:
    for at in range(round(soak_for_s)):
        run(seed + at)


def a_gate_opens_before_the_log_is_read(patch: pytest.MonkeyPatch) -> None:
    real = Pausing.taken_over

    def taken_over(self: Pausing, states: Any) -> None:
        real(self, states)
        for state in states.values():
            state.knows_pauses = True

    patch.setattr(Pausing, "taken_over", taken_over)


def a_gate_opens_at_the_end_that_another_take_over_asked_for(patch: pytest.MonkeyPatch) -> None:
    real = Pausing.taken_over

    def taken_over(self: Pausing, states: Any) -> None:
        before = {intake: one.asked is None and one.is_current for intake, one in self._followed.items()}
        real(self, states)
        for place in states:
            one = self._followed[place[0]]
            if before[place[0]]:
                one.waiting[place].end = 0

    patch.setattr(Pausing, "taken_over", taken_over)


def what_is_read_is_in_force_before_the_end_is_reached(patch: pytest.MonkeyPatch) -> None:
    real = Pausing._learn

    def learn(self: Pausing, one: Any, answer: Any, now_ms: int) -> None:
        short = replace(answer, end=min(answer.end, 1)) if isinstance(answer, ControlLog) else answer
        real(self, one, short, now_ms)

    patch.setattr(Pausing, "_learn", learn)


def what_is_known_is_forgotten_while_the_log_is_away(patch: pytest.MonkeyPatch) -> None:
    real = Pausing._do_without

    def do_without(self: Pausing, one: Any, answer: Any, now_ms: int) -> None:
        one.known = Pauses()
        real(self, one, answer, now_ms)

    patch.setattr(Pausing, "_do_without", do_without)


def a_take_over_goes_on_without_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pausing._Waiting, "may_go_on", lambda self, now_ms: now_ms - self.since_ms >= pausing.PATIENCE_MS)


def one_broker_is_believed_that_the_log_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Process, "ask_others", lambda _self, topics: {topics[0]: Target(0)})


def what_is_still_tried_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    real = Pausing.confirm
    patch.setattr(Pausing, "confirm", lambda self, states, _is_trying: real(self, states, lambda *_: False))


def what_is_not_read_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    real = Pausing._is_behind

    def is_behind(self: Pausing, state: Any, is_trying: Any) -> bool:
        one = self._followed[state.intake]
        if real(self, state, is_trying) and one.log is not None:
            return bool(state.obey(Obeyed(one.known.position + 1, one.log.topic_id)))
        return False

    patch.setattr(Pausing, "_is_behind", is_behind)


def a_new_partition_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(control_log, "obeyed_at_first", lambda _log: None)


def a_new_partition_waits_only_for_a_log_that_was_there(patch: pytest.MonkeyPatch) -> None:
    real = control_log.obeyed_at_first
    patch.setattr(control_log, "obeyed_at_first", lambda log: None if isinstance(log, NoControlLog) else real(log))


def a_released_partition_confirms_what_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    real = control.obeys

    def obeys(checkpoint: Checkpoint | None, topic_id: str, offset: int, end: int) -> bool:
        is_ours = checkpoint is not None and checkpoint.obeyed is not None and checkpoint.obeyed.topic_id == topic_id
        return real(checkpoint, topic_id, offset, end) or (is_ours and checkpoint is not None and checkpoint.released)

    patch.setattr(control, "obeys", obeys)


def a_released_partition_confirms_whatever_its_owner_knew(patch: pytest.MonkeyPatch) -> None:
    real = control.obeys

    def obeys(checkpoint: Checkpoint | None, topic_id: str, offset: int, end: int) -> bool:
        is_free = checkpoint is not None and checkpoint.released
        return real(checkpoint, topic_id, offset, end) or is_free

    patch.setattr(control, "obeys", obeys)


def offsets_of_a_former_log_confirm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "topic_id", "id")


def a_take_over_waits_for_an_open_transaction(patch: pytest.MonkeyPatch) -> None:
    real = Log.answer

    def answer(self: Log) -> ControlLog | NoControlLog:
        found = real(self)
        return replace(found, end=len(self.entries)) if isinstance(found, ControlLog) else found

    patch.setattr(Log, "answer", answer)


PLANTED: list[Plant] = [
    a_gate_opens_before_the_log_is_read,
    a_gate_opens_at_the_end_that_another_take_over_asked_for,
    what_is_read_is_in_force_before_the_end_is_reached,
    what_is_known_is_forgotten_while_the_log_is_away,
    a_take_over_goes_on_without_the_log,
    one_broker_is_believed_that_the_log_is_gone,
    what_is_still_tried_is_confirmed,
    what_is_not_read_is_confirmed,
    a_new_partition_does_not_wait,
    a_new_partition_waits_only_for_a_log_that_was_there,
    a_released_partition_confirms_what_cannot_be_read,
    a_released_partition_confirms_whatever_its_owner_knew,
    offsets_of_a_former_log_confirm,
    a_take_over_waits_for_an_open_transaction,
]


@pytest.mark.no_cover
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(map(is_faulty, FOUND_WITHIN))


def is_faulty(seed: int) -> bool:
    try:
        run(seed)
    except AssertionError:
        return True
    return False
