"""A process of the service in a simulation, through all its lives."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.errors import TarryError
from tarry.kafka.place import Place
from tarry.kafka.settings import Cluster
from tarry.testing.fake import FakeBroker, Fate, Step
from tarry.worker import Plan, Worker
from tarry.worker.plan import IntakePlan


class Crash(BaseException):
    """kill -9: the process's stack is gone. Raised through the service's own code, which must not catch it."""


Disturbance = Callable[["Process", Step], Fate | None]
"""Told of every step of a process before and after it is done; may crash or pause the process, or lose an answer."""


@dataclass(frozen=True, slots=True)
class Role:
    """What all processes of a simulation have in common.

    Attributes:
        broker: the cluster.
        clock: of everything.
        group: the consumer group.
        protocol: of the group.
        intakes: by topic.
        most: messages a transaction.
        memory_budget_bytes: for messages held.
    """

    broker: FakeBroker
    clock: Clock
    group: str
    protocol: Literal["classic", "consumer"]
    intakes: Mapping[str, IntakePlan]
    most: int
    memory_budget_bytes: int


@dataclass(slots=True)
class Process:
    """One process: started, turned, killed, started again.

    Attributes:
        role: what it does.
        name: tells it from the others.
        instance: of static membership; None for dynamic.
        disturb: is told of each of its steps.
        on_event: takes the process, an event's name and its fields.
    """

    role: Role
    name: str
    instance: str | None
    disturb: Disturbance
    on_event: Callable[["Process", str, Mapping[str, Any]], None]
    life: int = 0
    paused: bool = False
    worker: Worker | None = None
    errors: list[TarryError] = field(default_factory=list)
    """What ended it by itself."""

    @property
    def handle(self) -> str:
        """Its name in this life, by which the broker knows its clients."""
        return f"{self.name}-{self.life}"

    @property
    def states(self) -> Mapping[Place, PartitionState]:
        """The partitions that it has taken over."""
        return self.worker.look().states if self.worker is not None else {}

    def start(self) -> None:
        """Begin a life."""
        self.life += 1
        role = self.role
        cluster = Cluster("fake", {}, role.broker.clients(self.handle, self._step))
        plan = Plan(
            cluster=cluster,
            group=role.group,
            member=cluster.member(role.group, role.protocol, self.instance),
            name=f"{role.group}.{self.instance or self.handle}",
            intakes=role.intakes,
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=role.memory_budget_bytes,
            interval_ms=5,
            most=role.most,
        )
        self.worker = Worker(plan, role.clock, lambda: False, self._say)

    def turn(self) -> None:
        """Go once around the loop; the process may be gone when this returns."""
        if self.worker is not None:
            self._run(self.worker.turn)

    def stop(self) -> None:
        """SIGTERM: hand the partitions over and end."""
        if self.worker is not None:
            worker = self.worker
            self._run(worker.hand_over)
        self._end()

    def crash(self) -> None:
        """End as by kill -9, from within a step or between two turns."""
        self.role.broker.kill(self.handle)
        self.worker = None

    def _run(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Crash:
            self.crash()
        except TarryError as error:
            self.errors.append(error)
            self._end()

    def _end(self) -> None:
        """Close what a process closes that ends by itself, and be gone."""
        worker, self.worker = self.worker, None
        if worker is not None:
            with suppress(Crash):  # it was about to end anyway
                worker.close()
            self.role.broker.kill(self.handle)

    def _step(self, step: Step) -> Fate | None:
        return self.disturb(self, step)

    def _say(self, event: str, **fields: Any) -> None:
        self.on_event(self, event, fields)
