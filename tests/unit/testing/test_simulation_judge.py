"""Faults that the judge of a simulation must report, and correct behaviour that it must accept."""

from dataclasses import replace

import pytest

from tarry.testing.simulation.duplicates import Duplicates, SeenResult
from tarry.testing.simulation.known import Known
from tarry.testing.simulation.limits import faults_of_expiry
from tarry.testing.simulation.sent import Sent, SentCancel
from tarry.testing.simulation.world import Shape, World

PLACE = ("in", 0)
FIRST = Sent(b"an id", PLACE, 3, b"key", "orders", 1_000, b"0")
SECOND = replace(FIRST, offset=7, value=b"1")
OF_ANOTHER_ID = replace(FIRST, id=b"another id", offset=5, value=b"2")


def known_by_its_deliverer(*, is_soon: bool = True, between: tuple[str, ...] = ()) -> bool:
    """Whether who delivers the second knew the first, where this happens between the two and the delivery."""
    known, second = Known(), replace(SECOND)
    if "sent before" in between:
        known.send(FIRST)
    known.take_over(PLACE)
    if "sent before" not in between:
        known.send(FIRST)
    known.read(FIRST, is_soon=True)
    if "take-over" in between:
        known.take_over(PLACE)
    known.read(second, is_soon=is_soon)
    if "late take-over" in between:
        known.take_over(PLACE)
    known.deliver(second)
    return second.was_known


def test_an_owner_knows_what_it_has_read() -> None:
    assert known_by_its_deliverer()


def test_an_id_is_known_for_a_limited_time_only() -> None:
    assert not known_by_its_deliverer(is_soon=False)


@pytest.mark.parametrize("when", ["take-over", "late take-over"])
def test_a_new_owner_does_not_know_the_ids_delivered_before_its_take_over(when: str) -> None:
    assert not known_by_its_deliverer(between=(when,))


def test_what_was_sent_before_a_take_over_may_have_been_delivered_before_it() -> None:
    # Its owner may have died in the turn in which it read it: the next one is only seen to have passed it.
    assert not known_by_its_deliverer(between=("sent before",))


def test_a_message_with_another_id_is_no_duplicate() -> None:
    known, other = Known(), replace(OF_ANOTHER_ID)
    known.take_over(PLACE)
    known.send(FIRST)
    known.read(FIRST, is_soon=True)
    known.read(other, is_soon=True)
    known.deliver(other)
    assert not other.was_known


def test_after_an_id_is_forgotten_the_next_message_with_it_is_new() -> None:
    known, second = Known(), replace(SECOND)
    known.take_over(PLACE)
    known.send(FIRST)
    known.read(FIRST, is_soon=True)
    known.read(second, is_soon=True)
    known.forget(second)
    known.read(second, is_soon=True)
    known.deliver(second)
    assert not second.was_known


@pytest.mark.parametrize(
    ("second", "faults"),
    [
        (SECOND, []),
        (replace(SECOND, in_time=True), ["twice"]),
        (replace(SECOND, was_known=True), ["twice"]),
    ],
    ids=["late", "in-time", "known"],
)
def test_of_two_that_are_alike_one_is_delivered_if_the_second_was_known_for_a_duplicate(
    second: Sent, faults: list[str]
) -> None:
    assert duplicates(second) == faults


def test_where_the_first_may_be_cancelled_the_second_may_be_delivered() -> None:
    assert duplicates(replace(SECOND, was_known=True), SentCancel(PLACE, 5, FIRST)) == []


@pytest.mark.parametrize(("unknown", "faults"), [((), ["cancelled, and delivered"]), ((FIRST.source,), [])])
def test_a_message_that_is_delivered_after_its_cancel_is_a_fault_unless_its_owner_could_not_know_it(
    unknown: tuple[str, ...], faults: list[str]
) -> None:
    cancel = SentCancel(PLACE, 5, SECOND, may_know=True, unknown=frozenset(unknown))
    cancelled = SeenResult({"outcome": "cancelled", "source": SECOND.source, "cancel_source": cancel.source}, 0)
    judged = Duplicates((FIRST, SECOND), [cancelled, fired(FIRST, 1)], {FIRST.source})
    assert [kind for kind, _ in judged.faults_of_cancels([cancel])] == faults


def duplicates(second: Sent, *cancels: SentCancel) -> list[str]:
    """The faults that the judge finds where both are delivered."""
    both = (FIRST, second)
    results = [fired(message, offset) for offset, message in enumerate(both)]
    duplicates = Duplicates(both, results, {message.source for message in both})
    return [kind for kind, _ in duplicates.faults_of_duplicates(cancels, ())]


def fired(message: Sent, offset: int) -> SeenResult:
    return SeenResult({"outcome": "fired", "source": message.source}, offset)


@pytest.mark.parametrize(
    ("outcome", "at_ms", "expires_ms", "faults"),
    [
        ("fired", 1_500, 1_500, []),
        ("fired", 1_501, 1_500, ["after its expiry"]),
        ("fired", 9_999, None, []),
        ("expired", 1_501, 1_500, []),
        ("expired", 1_500, 1_500, ["expired in time"]),
        ("expired", 1_500, None, ["expired in time"]),
        # It was to expire before it was due, at 1,000: dead when it was read.
        ("expired", 10, 999, []),
        ("unknown-target", 9_999, 1_500, []),
    ],
)
def test_a_message_expires_when_it_is_late_and_not_before(
    outcome: str, at_ms: int, expires_ms: int | None, faults: list[str]
) -> None:
    message = replace(FIRST, expires_ms=expires_ms)
    fields = {"outcome": "fired"} if outcome == "fired" else {"outcome": "dead", "reason": outcome}
    result = SeenResult({**fields, "at_ms": at_ms, "source": message.source}, 0)
    found = faults_of_expiry({message.source: message}, [result, SeenResult({**result.fields, "source": "x/0/0"}, 1)])
    assert [kind for kind, _ in found] == faults


def test_due_times_of_a_world_are_ticks_of_its_wheel(seed: int) -> None:
    world = World(seed, Shape(tick_ms=10, cancels=0.2, again=0.3))
    world.start()
    world.send(30, longest_ms=2_000)
    report = world.settle()
    assert report.is_clean, report
    assert {message.due_ms % 10 for message in world.sent} == {0}
    assert report.judged > 2  # 5 to 18 over 60 seeds
