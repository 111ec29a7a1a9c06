"""A named record that replaces or cancels a message whose delivery is under way, in a transaction that hangs.

It waits for a second, so that a steady stream of such records does not abort each try; then the transaction is aborted.
"""

from datetime import timedelta

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
