"""A process of the service in a simulation, through all its lives."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.errors import TarryError
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place
from tarry.service.metrics.tally import Tally
from tarry.service.worker import Plan, Worker
from tarry.service.worker.health import Health
from tarry.service.worker.plan import IntakePlan
from tarry.testing.fake import FakeBroker, Fate, Step


class Crash(BaseException):
    """kill -9: the process's stack is gone. Raised through the service's own code, which must not catch it."""


@dataclass(slots=True)
class OwnClock:
    """The clock of one machine.

    Attributes:
        clock: of the world.
        ahead_ms: how far its wall time is ahead of that.
    """

    clock: Clock
    ahead_ms: int = 0

    def now_ms(self) -> int:
        """Wall time."""
        return self.clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """The world's."""
        return self.clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        """Let the world's time pass."""
        self.clock.sleep(seconds)


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
        tick_ms: of the wheel.
        most: messages a transaction.
        memory_budget_bytes: for messages held.
        max_poll_ms: how long a process may not look at the group.
    """

    broker: FakeBroker
    clock: Clock
    group: str
    protocol: Literal["classic", "consumer"]
    intakes: Mapping[str, IntakePlan]
    tick_ms: int
    most: int
    memory_budget_bytes: int
    max_poll_ms: int


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
    health: Health | None = None
    """What it said of itself last."""
    tally: Tally = field(default_factory=Tally)
    clock: OwnClock = field(init=False)

    def __post_init__(self) -> None:
        """Set its clock by the world's."""
        self.clock = OwnClock(self.role.clock)

    @property
    def handle(self) -> str:
        """Its name in this life, by which the broker knows its clients."""
        return f"{self.name}-{self.life}"

    @property
    def states(self) -> Mapping[Place, PartitionState]:
        """The partitions that it has taken over."""
        return self.worker.look().states if self.worker is not None else {}

    @property
    def quarantined(self) -> Mapping[Place, str]:
        """The partitions that only a person can mend, and why."""
        return self.worker.look().aside.quarantined if self.worker is not None else {}

    def start(self) -> None:
        """Begin a life."""
        self.life += 1
        role = self.role
        cluster = Cluster("fake", {}, role.broker.clients(self.handle, self._step))
        plan = Plan(
            cluster=cluster,
            group=role.group,
            member={
                **cluster.member(role.group, role.protocol, self.instance),
                "max.poll.interval.ms": role.max_poll_ms,
            },
            name=f"{role.group}.{self.instance or self.handle}",
            intakes=role.intakes,
            tick_ms=role.tick_ms,
            wheel_size=64,
            memory_budget_bytes=role.memory_budget_bytes,
            interval_ms=5,
            most=role.most,
            sum_up_after=10,
        )
        brokers_ms = role.clock.now_ms() - role.clock.monotonic_ms()
        self.worker = Worker(plan, self.clock, lambda: False, self._say, self.tally, self._note, brokers_ms=brokers_ms)

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

    def _note(self, health: Health) -> None:
        self.health = health

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
