"""An intake on the fake cluster, a worker that serves it, and an inspector that looks on."""

from functools import partial
from typing import TYPE_CHECKING

from tarry.cli.pending_rows import PendingRow, at_most
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.overflow import Upkeep
from tarry.handle import Handle
from tarry.headers import derived_id
from tarry.kafka.birth import Birth
from tarry.kafka.each_once import all_waiting
from tarry.kafka.inspector import Inspector, Waiting
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin, wheel_topic
from tarry.kafka.whereabouts import Whereabouts, find
from tarry.service.worker import Plan, Worker
from tarry.service.worker.plan import IntakePlan
from tarry.testing import FakeBroker, ManualClock, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tarry.kafka.types import Place

GEOMETRY = Geometry(1_000, 3, 3)
"""Buckets of 1, 3 and 9 s."""

POLICY = IntakePolicy("in")


class InspectedIntake:
    """An intake of two partitions with an overflow wheel, a target, one worker, and an inspector."""

    def __init__(self, **broker: tuple[int, int]) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=3, **broker)  # type: ignore[arg-type]
        self.handles: list[Handle] = []
        self.read = [0, 0]
        cluster = self._cluster("setup")
        admin = cluster.clients.admin(cluster.client())
        give = partial(Birth(cluster, admin, "group", self.clock).give, "in", 2, GEOMETRY)
        make_or_check(TopicAdmin(admin), "in", 2, 1, GEOMETRY, fixed_delay=False, before_intake=give)
        self.broker.make_topic("out", 1)
        self._offsets = Offsets(admin, "group", cluster)
        self.looking = Cluster("fake", {}, self.broker.clients("inspector", self._meanwhile))
        self.inspector = Inspector(self.looking, "group", self.clock, self._progress)
        self.turns_meanwhile = 0
        """How often the worker turns at each request of the inspector."""
        self.once_before: dict[str, Callable[[], object]] = {}
        """What is to happen before the inspector's next request of a kind."""
        self._worker: Worker | None = None

    def send(self, delay_ms: int, partition: int = 0, name: bytes | None = None) -> Handle:
        headers: list[tuple[str, bytes | None]] = [("tarry-target", b"out"), ("tarry-delay-ms", b"%d" % delay_ms)]
        if name is not None:
            headers.append(("tarry-name", name))
        due_ms = self.clock.now_ms() + delay_ms
        offset = self.broker.append("in", b"k", b"v", headers, partition)
        self.handles.append(Handle("in", partition, due_ms, derived_id("in", partition, offset).decode()))
        return self.handles[-1]

    def cancel(self, handle: Handle) -> None:
        self.broker.append("in", None, None, [("tarry-cancel", str(handle).encode())], handle.partition)

    def serve(self, for_ms: int) -> None:
        """Let the worker turn for so long, and until no transaction is open."""
        ends_ms = self.clock.now_ms() + for_ms
        worker = self._worker = self._worker or self._new_worker()
        for _ in range(200_000):
            worker.turn()
            if self.clock.now_ms() >= ends_ms and self._is_quiet():
                return
        raise AssertionError("it never comes to rest")

    def serve_until_delivered(self, count: int) -> None:
        """Let the worker turn until so many messages are delivered, and not once more."""
        worker = self._worker = self._worker or self._new_worker()
        for _ in range(200_000):
            if len(self.broker.records("out")) >= count:
                return
            worker.turn()
        raise AssertionError("they are never delivered")

    def stop(self) -> None:
        """Let the worker end; the next one takes over."""
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def waiting(self, policy: IntakePolicy = POLICY) -> list[Waiting]:
        backlogs, states = self.inspector.look("in")
        return list(all_waiting(self.inspector, backlogs, states, RequestReader(policy)))

    def rows(self) -> list[PendingRow]:
        return list(at_most(*self.inspector.look("in")))

    def at_most(self) -> int:
        return sum(row.size for row in self.rows())

    def find(self, handle: Handle) -> Whereabouts:
        return find(self.inspector, handle, POLICY)

    def delivered(self) -> set[str]:
        headers = [dict(record.headers or ()) for record in self.broker.records("out")]
        return {(found["tarry-id"] or b"").decode() for found in headers}

    def _progress(self, read: int, more: int) -> None:
        self.read[0] += read
        self.read[1] += more

    def _meanwhile(self, step: Step) -> None:
        if (happen := self.once_before.pop(step.call, None)) is not None:
            happen()
        if self._worker is not None:
            for _ in range(self.turns_meanwhile):
                self._worker.turn()

    def _is_quiet(self) -> bool:
        logs: list[Place] = [(name, p) for name in ("in.journal", "in.results") for p in (0, 1)]
        logs += [("out", 0), *[(wheel_topic("in", level), p) for level in (1, 2, 3) for p in (0, 1)]]
        return self._offsets.ends(logs, committed=True) == self._offsets.ends(logs, committed=False)

    def _cluster(self, process: str) -> Cluster:
        return Cluster("fake", {}, self.broker.clients(process))

    def _new_worker(self) -> Worker:
        cluster = self._cluster("worker")
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name="group.worker",
            intakes={"in": IntakePlan(RequestReader(POLICY), False, GEOMETRY, 3_600_000)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=5,
            most=100,
            upkeep=Upkeep(refile_from=30, tell_from=4, index_after=2),
            idle_wait_ms=10,
        )
        return Worker(plan, self.clock, lambda: False, lambda _event, **_fields: None)
