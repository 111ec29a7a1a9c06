"""Filing on the fake cluster: what follows a refused record, and a report that does not tell an offset."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from tarry.core.batch import Filing
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.kafka.membership import Membership
from tarry.kafka.topics import JOURNAL
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place
from tarry.service.worker.connections import GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.filing import FILE_EVERY_MS, Filer
from tarry.testing import Fate, Step
from tarry.timer import TimingWheel
from tests.unit.testing.stage import GROUP, TopicStage

LOG = "in.wheel-1"
START_MS = 1_700_000_000_000
MOST = 100


class Filed:
    """A partition with one level, and what files its messages."""

    def __init__(self, stage: TopicStage) -> None:
        self.stage = stage
        self.clock = stage.clock
        self.sent = 0
        self.taken: list[int] = []
        """How many messages each transaction took."""
        self.events: list[tuple[str, str]] = []
        """Each event, and its reason."""
        self.lost_answers = 0
        """The answers to this many requests that write are lost."""
        for topic in ("in", LOG, "in" + JOURNAL):
            stage.broker.make_topic(topic)
        cluster = stage.cluster("worker", self._hook)
        membership = Membership(cluster.clients, cluster.member(GROUP, "classic", None), ["in"], self._fail)
        membership.join(self)
        while not self.is_owner:
            membership.poll()
            self.clock.advance(100)
        transactor = Transactor(cluster, "id", compressed=True, properties={"delivery.report.only.error": False})
        context = Context(self.clock, lambda event, reason: self.events.append((event, reason)))
        self.filer = Filer(GroupProducer(transactor, membership), cluster.clients, MOST, context)
        self.state = self._take_over()

    is_owner = False

    def assigned(self, _places: Sequence[Place]) -> None:
        self.is_owner = True

    def revoked(self, _places: Sequence[Place]) -> None:
        raise AssertionError("nothing else is in the group")

    lost = revoked

    def _fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def _hook(self, step: Step) -> Fate | None:
        if self.lost_answers and (step.call, step.phase) == ("produce", "after"):
            self.lost_answers -= 1
            return Fate.LOSE_ANSWER
        return None

    def _take_over(self) -> PartitionState:
        taken = self.taken

        class Told(PartitionState):
            def take_to_file(told, *arguments: Any, **named: Any) -> Filing:  # noqa: N805
                filing = super().take_to_file(*arguments, **named)
                taken.append(len(filing))
                return filing

        checkpoint = Checkpoint(("w",), False, Geometry(1_000, 10, 1), (START_MS,), (START_MS,), (0,))
        recovered = Recovered(0, checkpoint, DoneSet(), 0, Buckets({1: (0, 0)}, {}, 50))
        reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
        return Told("in", 0, reader, False, partial(TimingWheel, 1, 64), recovered, self.clock.now_ms())

    def send(self, count: int, size: int = 10) -> None:
        """Let messages arrive that belong into the bucket of a minute from now."""
        now_ms = self.clock.now_ms()
        for _ in range(count):
            value = Random(self.sent).randbytes(size)
            headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"60000")]
            self.state.arrivals.accept(self.sent, now_ms, b"%d" % self.sent, value, headers, now_ms, now_ms)
            self.sent += 1

    def turn(self, times: int = 200) -> None:
        for _ in range(times):
            self.filer.turn([self.state], [])
            self.clock.advance(FILE_EVERY_MS)

    def filed(self) -> list[int]:
        """Return the committed messages of the level."""
        return [int(record.key or b"-1") for record in self.stage.broker.records(LOG)]


@pytest.fixture
def filed(stage: TopicStage) -> Filed:
    return Filed(stage)


def test_after_a_refusal_only_the_messages_that_were_refused_are_sent_one_a_batch(filed: Filed) -> None:
    filed.stage.broker.configure(LOG, max_message_bytes="5000")
    filed.send(3, size=2_000)
    while not filed.filer.is_open:
        filed.turn(1)
    filed.send(200)
    filed.turn()
    assert filed.filed() == list(range(203))
    assert [count for count in filed.taken if count] == [3, 3, MOST, MOST]
    [(event, reason)] = filed.events
    assert event == "filing_aborted"
    assert LOG in reason
    assert "too large" in reason


def test_a_report_without_an_offset_is_not_trusted(filed: Filed) -> None:
    """A broker that is sent a batch again, because its answer was lost, need not tell the offset."""
    filed.lost_answers = 1
    filed.send(5)
    filed.turn()
    assert filed.filed() == list(range(5))
    assert filed.state.overflow.in_buckets == {1: 5}
    assert filed.events == [("filing_aborted", f"{LOG}: delivered, without an offset")]
