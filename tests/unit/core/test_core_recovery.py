"""What a take-over makes of a checkpoint and of the journal."""

from dataclasses import replace
from typing import Any

import pytest

from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.journal import Copy, DoneEntry
from tarry.core.progress.origin import UNKNOWN, Origin
from tarry.core.progress.recovery import Recovery, is_later, replaces
from tarry.core.progress.source import INTAKE, Source

BUCKET = Source(1, 3)
FOUND = Checkpoint(("former",), True, Geometry(10, 2, 1), (40,), (30,), (2,), wheel_pointer=40, pointer=60)
ORIGIN = Origin("cluster", "intake", "journal", ("level",))


def at(pointer: int, low: int, /, **other: Any) -> tuple[int, Checkpoint]:
    return low, replace(FOUND, pointer=pointer, **other)


@pytest.mark.parametrize(
    ("copy", "other", "replaces"),
    [
        (at(0, 0), None, True),
        (at(5, 3), at(5, 3), True),
        (at(6, 1), at(5, 3), True),  # an adopted intake: the low watermark went back
        (at(5, 4), at(5, 3), True),
        (at(5, 2), at(5, 3), False),
        (at(4, 9), at(5, 3), False),  # a first checkpoint that was written late
        (at(5, 3), at(5, 3, writer=()), True),
        (at(5, 3, writer=()), at(5, 3), False),
        # What is done in the levels, while nothing comes to the intake.
        (at(90, 3, wheel_pointer=50), at(90, 3), True),
        (at(90, 3), at(90, 3, wheel_pointer=50), False),
        (at(5, 3, closed_ms=(50,)), at(5, 3), True),
        (at(5, 3), at(5, 3, closed_ms=(50,)), False),
        (at(5, 3), at(5, 3, done_ms=(40,)), False),
        (at(5, 3), at(5, 3, low=(3,)), False),
        # Numbers of levels of another shape say nothing.
        (at(5, 3, geometry=Geometry(20, 2, 1)), at(5, 3, closed_ms=(60,)), True),
        (at(5, 3, closed_ms=(60,)), at(5, 3, geometry=Geometry(20, 2, 1)), True),
        # A checkpoint without levels has no pointer of theirs.
        (at(90, 3, geometry=Geometry(10, 2, 1), wheel_pointer=0), at(90, 3, geometry=Geometry(10, 2, 0)), True),
    ],
)
def test_a_copy_replaces_one_before_it_unless_it_is_a_first_checkpoint_that_came_late(
    copy: tuple[int, Checkpoint], other: tuple[int, Checkpoint] | None, replaces: bool
) -> None:
    assert is_later(copy, other) is replaces


def test_the_first_checkpoint_of_an_owner_is_the_found_one_in_its_own_name() -> None:
    recovery = Recovery(7, FOUND, ("a", "b"))
    assert (recovery.low, recovery.checkpoint) == (7, replace(FOUND, writer=("a", "b"), released=False))


def test_what_the_journal_says_is_done_is_kept_by_source_and_copies_say_nothing() -> None:
    recovery = Recovery(7, FOUND, ("a",))
    recovery.journal.take(DoneEntry({INTAKE: [(5, 9)], BUCKET: [(0, 3)]}))
    recovery.journal.take(Copy(11, FOUND.encode()))
    recovery.journal.take(DoneEntry({BUCKET: [(4, 5)], INTAKE: [(12, 13)]}))
    found = recovery.recovered(20, {1: (0, 9)}, 80, ORIGIN)
    assert (found.low, found.replay_end, found.buckets.journal_end, found.buckets.spans) == (7, 20, 80, {1: (0, 9)})
    assert found.done.ranges() == recovery.journal.done[INTAKE].ranges() == [(7, 9), (12, 13)]
    assert {source: done.ranges() for source, done in found.buckets.done.items()} == {BUCKET: [(0, 3), (4, 5)]}


@pytest.mark.parametrize(("known", "is_uncopied"), [(UNKNOWN, True), (ORIGIN, False)])
def test_the_present_ids_are_known_from_then_on_and_a_copy_is_missing_if_none_has_them(
    known: Origin, is_uncopied: bool
) -> None:
    recovery = Recovery(7, replace(FOUND, origin=known), ("a",))
    assert recovery.checkpoint.origin == known
    found = recovery.recovered(20, {}, 80, ORIGIN)
    assert (found.checkpoint.origin, found.is_uncopied) == (ORIGIN, is_uncopied)


@pytest.mark.parametrize(
    ("copy", "known", "is_later"),
    [
        (at(5, 3), at(5, 3), False),
        (at(6, 3), at(5, 3), True),
        (at(5, 3), at(6, 3), False),
        (at(5, 3, done_ms=(40,)), at(5, 3), True),
        (at(5, 3), at(5, 3, done_ms=(40,)), False),
        # An owner writes a copy before it does anything in another shape.
        (at(5, 3, geometry=Geometry(20, 2, 1)), at(5, 3), True),
        (at(5, 3, geometry=Geometry(20, 2, 1)), at(6, 3), False),
    ],
)
def test_the_last_copy_replaces_what_a_coordinator_tells_if_it_is_later(
    copy: tuple[int, Checkpoint], known: tuple[int, Checkpoint], is_later: bool
) -> None:
    assert replaces(copy, known) is is_later


def test_a_checkpoint_in_another_shape_is_to_be_copied() -> None:
    checkpoint = replace(FOUND, origin=ORIGIN)
    for is_reshaped in (False, True):
        recovery = Recovery(7, checkpoint, ("a",), is_reshaped=is_reshaped)
        assert recovery.recovered(20, {}, 80, ORIGIN).is_uncopied is is_reshaped
