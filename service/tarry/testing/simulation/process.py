"""A process of the service in a simulation. A *life* of it is the time from one start to its end."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tarry.clock import Clock
from tarry.core.partition import PartitionState
from tarry.core.wheel.overflow import Upkeep
from tarry.errors import TarryError
from tarry.kafka.settings import Cluster
from tarry.kafka.types import Place
from tarry.service.metrics.tally import Tally
from tarry.service.worker import Plan, Worker
from tarry.service.worker.health import Health
from tarry.service.worker.plan import IntakePlan
from tarry.testing.fake import FakeBroker, Fate, Step


class Crash(BaseException):
    """Unwinds the stack of a process that is killed as by kill -9. The service's code must not catch it."""


@dataclass(slots=True)
class OwnClock:
    """The clock of one machine.

    Attributes:
        clock: the clock of the world.
        ahead_ms: how far this machine's wall time is ahead of the world's.
    """

    clock: Clock
    ahead_ms: int = 0

    def now_ms(self) -> int:
        """Return this machine's wall time."""
        return self.clock.now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Return the world's monotonic time."""
        return self.clock.monotonic_ms()

    def sleep(self, seconds: float) -> None:
        """Advance the world's clock."""
        self.clock.sleep(seconds)


Disturbance = Callable[["Process", Step], Fate | None]
"""Called at every step of a process. It may crash or pause the process, or lose an answer."""


@dataclass(frozen=True, slots=True)
class Role:
    """The settings that all processes of a simulation share.

    Attributes:
        broker: the cluster.
        clock: the clock of the world.
        group: the consumer group.
        protocol: the protocol of the group.
        intakes: the intakes, by topic.
        tick_ms: the tick of the wheel.
        most: the largest number of messages in a transaction.
        most_to_file: how many messages may wait to be filed before others are passed over.
        upkeep: how often the levels' logs are looked after.
        memory_budget_bytes: the memory for messages.
        max_poll_ms: the maximum poll interval.
        park_after_ms: how long a message stays in memory before it is filed to the parked log.
        obeys_pauses: whether it reads which targets are paused.
    """

    broker: FakeBroker
    clock: Clock
    group: str
    protocol: Literal["classic", "consumer"]
    intakes: Mapping[str, IntakePlan]
    tick_ms: int
    most: int
    most_to_file: int
    upkeep: Upkeep
    memory_budget_bytes: int
    max_poll_ms: int
    park_after_ms: int
    obeys_pauses: bool


@dataclass(slots=True)
class Process:
    """One process, which a simulation starts, runs turn by turn, kills and starts again.

    Attributes:
        role: the settings that it shares with the others.
        name: its name, which is unique.
        instance: the instance id of static membership; None: dynamic membership.
        disturb: called at each of its steps.
        on_event: called with the process, the name of an event and its fields.
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
    """The errors that have ended it."""
    health: Health | None = None
    """The last health that it has reported."""
    tally: Tally = field(default_factory=Tally)
    clock: OwnClock = field(init=False)

    def __post_init__(self) -> None:
        """Give it a clock that follows the world's."""
        self.clock = OwnClock(self.role.clock)

    @property
    def handle(self) -> str:
        """Its name in this life, under which the broker knows its clients."""
        return f"{self.name}-{self.life}"

    @property
    def states(self) -> Mapping[Place, PartitionState]:
        """The partitions that it has taken over."""
        return self.worker.look().states if self.worker is not None else {}

    @property
    def quarantined(self) -> Mapping[Place, str]:
        """The partitions that need an operator, and the reason."""
        return self.worker.look().aside.quarantined if self.worker is not None else {}

    def start(self) -> None:
        """Start the process."""
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
            most_to_file=role.most_to_file,
            upkeep=role.upkeep,
            sum_up_after=10,
            park_after_ms=role.park_after_ms,
            obeys_pauses=role.obeys_pauses,
            # Nothing depends on what it finds, and each of its requests would change what happens in a world.
            open_after_ms=0,
        )
        brokers_ms = role.clock.now_ms() - role.clock.monotonic_ms()
        self.worker = Worker(plan, self.clock, lambda: False, self._say, self.tally, self._note, brokers_ms=brokers_ms)

    def turn(self) -> None:
        """Run one turn of its loop. The process may have ended when this returns."""
        if self.worker is not None:
            self._run(self.worker.turn)

    def stop(self) -> None:
        """Release its partitions and end, as after SIGTERM."""
        if self.worker is not None:
            worker = self.worker
            self._run(worker.hand_over)
        self._end()

    def crash(self) -> None:
        """End as by kill -9, inside a step or between two turns."""
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
        """End in the same way as a process that is not killed: close the worker first."""
        worker, self.worker = self.worker, None
        if worker is not None:
            with suppress(Crash):  # the process ends in any case
                worker.close()
            self.role.broker.kill(self.handle)

    def _step(self, step: Step) -> Fate | None:
        return self.disturb(self, step)

    def _say(self, event: str, **fields: Any) -> None:
        self.on_event(self, event, fields)
