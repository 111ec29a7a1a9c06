"""The first checkpoints, where brokers do not answer at once."""

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.errors import RetriableError
from tarry.kafka.birth import PATIENCE_S, Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.testing import FakeBroker, ManualClock

GEOMETRY = Geometry(20_000, 10, 0)


class Start:
    """A service that starts, and the cluster that it finds."""

    def __init__(self, back_after_s: float) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=1)
        self.cluster = Cluster("fake", {}, self.broker.clients("setup"))
        self.admin = self.cluster.clients.admin(self.cluster.client())
        self.clock.sleep = self.sleep  # type: ignore[method-assign]  # while it waits, the broker comes back
        self.back_at_ms = self.clock.monotonic_ms() + int(back_after_s * 1_000)
        self.is_away = False

    def sleep(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1_000))
        if self.is_away and self.clock.monotonic_ms() >= self.back_at_ms:
            self.is_away = False
            self.broker.bring_back("in")

    def leave(self) -> None:
        """The intake loses its leader, as it does when a broker is killed."""
        self.is_away = True
        self.broker.take_away("in")

    def give(self) -> None:
        Birth(self.cluster, self.admin, "group", self.clock).give("in", 2, GEOMETRY)


def made(back_after_s: float) -> Start:
    start = Start(back_after_s)
    make_or_check(TopicAdmin(start.admin), "in", 2, 1, GEOMETRY, fixed_delay=False, before_intake=start.give)
    return start


def test_a_start_while_a_leader_comes_back_waits_for_it() -> None:
    start = made(back_after_s=PATIENCE_S / 2)
    start.leave()
    start.give()
    assert not start.is_away


def test_a_start_without_a_leader_gives_up() -> None:
    start = made(back_after_s=PATIENCE_S * 10)
    start.leave()
    with pytest.raises(RetriableError):
        start.give()
