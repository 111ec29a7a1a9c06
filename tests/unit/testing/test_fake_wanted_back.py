"""A named record that replaces or cancels a message whose delivery is under way, in a transaction that hangs.

It waits for a second, then the transaction is aborted, but never two in a row: a steady stream of such records does not
abort each try.
"""

from datetime import timedelta
from functools import partial

import pytest

from tarry.client import Receipt
from tarry.testing import FakeService, Fate, Step

HOUR = timedelta(hours=1)
A_SECOND_MS = 1_000


class Hanging:
    """A parked named message, and its delivery, which hangs: its target goes away again as soon as it is back."""

    def __init__(self, fake: FakeService) -> None:
        self.fake = fake
        self._is_armed = True
        fake.make_topic("orders")
        fake.broker.take_away("orders")
        self.sent = fake.send("orders", b"old", "k", name="n", delay=timedelta(0))
        fake.clock.advance(100)
        fake.broker.clients("service", self._look)
        fake.broker.bring_back("orders")
        while self._is_armed:
            fake.clock.advance(1)

    def _look(self, step: Step) -> Fate | None:
        """Let the service learn that the target can be written to, and take it away before anything is written."""
        if self._is_armed and (step.call, step.phase) == ("describe_topics", "after"):
            self._is_armed = False
            self.fake.broker.take_away("orders")
        return None

    def outcomes_of(self, receipt: Receipt) -> list[str]:
        return [one["outcome"] for one in self.fake.outcomes() if one["id"] == receipt.id]

    def delivered(self) -> list[bytes | None]:
        self.fake.broker.bring_back("orders")
        self.fake.clock.advance(60_000)
        return [record.value for record in self.fake.delivered("orders")]


@pytest.fixture
def hanging(tarry_fake: FakeService) -> Hanging:
    return Hanging(tarry_fake)


def test_a_delivery_that_takes_less_than_a_second_is_not_aborted_by_a_replace(hanging: Hanging) -> None:
    fake = hanging.fake
    for _ in range(3):
        younger = fake.send("orders", b"new", "k", name="n", delay=HOUR, only_if="present")
        fake.clock.advance(A_SECOND_MS // 10)
        assert hanging.outcomes_of(younger) == []
    assert hanging.delivered() == [b"old"]
    assert hanging.outcomes_of(hanging.sent) == ["fired"]
    assert hanging.outcomes_of(younger) == ["skipped"]


def test_a_delivery_that_hangs_is_aborted_after_a_second_if_a_replace_waits_for_it(hanging: Hanging) -> None:
    fake = hanging.fake
    younger = fake.send("orders", b"new", "k", name="n", delay=timedelta(0), only_if="present")
    fake.clock.advance(A_SECOND_MS + 200)
    assert hanging.outcomes_of(hanging.sent) == ["replaced"]
    assert hanging.outcomes_of(younger) == ["scheduled"]
    assert hanging.delivered() == [b"new"]


def test_a_delivery_that_hangs_is_aborted_after_a_second_if_a_cancel_waits_for_it(hanging: Hanging) -> None:
    fake = hanging.fake
    fake.clock.advance(A_SECOND_MS)
    assert hanging.outcomes_of(hanging.sent) == []
    fake.cancel_named("k", "n")
    fake.clock.advance(200)
    assert hanging.outcomes_of(hanging.sent) == ["cancelled"]
    assert hanging.delivered() == []


def test_a_delivery_that_hangs_is_not_aborted_for_a_record_of_another_name(hanging: Hanging) -> None:
    fake = hanging.fake
    other = fake.send("orders", b"new", "k", name="other", delay=HOUR, only_if="absent")
    fake.clock.advance(A_SECOND_MS + 200)
    assert hanging.outcomes_of(other) == ["scheduled"]
    assert hanging.outcomes_of(hanging.sent) == []
    assert hanging.delivered() == [b"old"]


def test_a_delivery_that_is_written_when_the_second_is_over_is_not_aborted(hanging: Hanging) -> None:
    fake = hanging.fake
    younger = fake.send("orders", b"new", "k", name="n", delay=timedelta(0), only_if="present")
    fake.clock.advance(A_SECOND_MS - 1)
    fake.broker.bring_back("orders")
    fake.clock.advance(A_SECOND_MS)
    assert [record.value for record in fake.delivered("orders")] == [b"old"]
    assert hanging.outcomes_of(hanging.sent) == ["fired"]
    assert hanging.outcomes_of(younger) == ["skipped"]


def test_a_cancel_that_waits_for_a_delivery_that_is_written_comes_too_late(hanging: Hanging) -> None:
    fake = hanging.fake
    fake.cancel_named("k", "n")
    fake.clock.advance(A_SECOND_MS - 1)
    fake.broker.bring_back("orders")
    fake.clock.advance(A_SECOND_MS)
    assert [record.value for record in fake.delivered("orders")] == [b"old"]
    assert [one["outcome"] for one in fake.outcomes()] == ["fired", "cancel-too-late"]


class Slow(Hanging):
    """The same, but each delivery takes a second and a half."""

    TAKES_MS = 1_500

    def __init__(self, fake: FakeService) -> None:
        self._number = 0
        self._is_writing = True
        super().__init__(fake)
        self._is_writing = False

    def _look(self, step: Step) -> Fate | None:
        if step.phase == "before" and step.transaction.endswith("-park"):
            if step.call == "produce" and not self._is_writing:
                self._is_writing = True
                self._number += 1
                at_ms = self.fake.clock.monotonic_ms() + self.TAKES_MS
                self.fake.clock.call_at(at_ms, partial(self._write, self._number))
            elif step.call in {"commit_transaction", "abort_transaction"}:
                self._is_writing = False
                self.fake.broker.take_away("orders")
        return super()._look(step)

    def _write(self, number: int) -> None:
        if self._is_writing and number == self._number:
            self.fake.broker.bring_back("orders")


def test_a_message_that_is_replaced_each_second_comes_to_a_target_that_takes_longer(tarry_fake: FakeService) -> None:
    slow = Slow(tarry_fake)
    sent = {b"old": slow.sent}
    for number in range(20):
        value = b"%d" % number
        sent[value] = tarry_fake.send("orders", value, "k", name="n", delay=timedelta(0))
        tarry_fake.clock.advance(A_SECOND_MS)
    assert len(tarry_fake.delivered("orders")) >= 5
    delivered = slow.delivered()
    outcomes = {value: slow.outcomes_of(receipt) for value, receipt in sent.items()}
    assert delivered == [value for value, of_it in outcomes.items() if of_it == ["fired"]]
    assert all(of_it == ["replaced"] for value, of_it in outcomes.items() if value not in delivered)


def test_a_message_that_is_replaced_each_second_does_not_keep_others_from_a_slow_target(
    tarry_fake: FakeService,
) -> None:
    slow = Slow(tarry_fake)
    others = [tarry_fake.send("orders", b"%d" % number, "k", delay=timedelta(0)) for number in range(4)]
    for _ in range(20):
        tarry_fake.send("orders", b"new", "k", name="n", delay=timedelta(0))
        tarry_fake.clock.advance(A_SECOND_MS)
    assert [slow.outcomes_of(receipt) for receipt in others] == [["fired"]] * 4
