"""Disturbances of processes and of the cluster: at one exact step, or at random.

Each request to the cluster has two steps: before it arrives there, and after it is executed but before the answer is
back. Between two steps, a process changes nothing that others can see. So a crash at a step has the same effect as a
crash at any time since the previous step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS
from tarry.kafka.topics import DEAD, RESULTS
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.world import INTAKE, LEADERLESS_MS, World, nothing

QUIET = frozenset({"fetch"})
"""Calls that each turn makes and that change nothing in the cluster. They are not counted as steps."""


ENDING = frozenset({"send_offsets", "commit_transaction"})
"""Calls that may be answered, at random, that their transaction must be aborted."""

SESSION_MS = 6_000
CRASH_BACK_MS = (50, 2_000)
NAP_MS = (20, 2_000)
TIGHT_MS = 60_000
"""How late messages may be while processes may write only slowly."""
FREEZE_MS = (SESSION_MS + 1_000, 45_000)


@dataclass(slots=True)
class Recorder:
    """Records the steps of one process, and disturbs nothing."""

    name: str
    steps: list[Step] = field(default_factory=list)

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Record a step."""
        if process.name == self.name and step.call not in QUIET:
            self.steps.append(step)
        return None


@dataclass(slots=True)
class At:
    """Disturbs a process once, at one of its steps. Steps are counted from 0, over both phases.

    Attributes:
        name: the name of the process.
        index: the index of the step in the list of a `Recorder`.
        do: the disturbance.
    """

    name: str
    index: int
    do: Callable[[Process], Fate | None]
    met: Step | None = None
    """The step at which the disturbance happened; None before."""
    _seen: int = 0

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Count a step, and disturb the process if it is the chosen one."""
        if process.name != self.name or step.call in QUIET:
            return None
        self._seen += 1
        if self._seen - 1 != self.index:
            return None
        self.met = step
        return self.do(process)


@dataclass(slots=True)
class Chance:
    """Disturbs at random. A disturbance of a process happens at a step, one of the world between two rounds.

    Attributes:
        world: the world to disturb.
        most: the largest number of disturbances in a run; after them, the run is calm.
        kinds: the kinds to choose from, out of crash, nap, freeze, lose, stop, twin, ghost, jump, away, coordinator,
            expire, undelete, narrow, throttle, leader, foreign, anew, hide, behind.
    """

    world: World
    most: int
    kinds: frozenset[str]
    done: list[str] = field(default_factory=list)
    """The disturbances so far, in order, as text."""
    decided: list[str] = field(default_factory=list)
    """The pauses and resumptions so far, which do not count."""
    _is_tight: bool = False

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Disturb a process at a step, with some probability."""
        choose = self.world.random
        if step.call in QUIET or len(self.done) >= self.most:
            return None
        if self._is_to_be_aborted(step):
            self._note(f"{step.call} of {process.handle} is answered: abort")
            self.world.touch()
            return Fate.WANT_ABORT
        kind = choose.choice(("crash", "crash", "nap", "freeze", "lose", "lose"))
        if kind not in self.kinds or choose.random() > 0.02:
            return None
        if kind == "lose":
            if step.phase == "before":
                return None
            self._note(f"lose the answer of {step.call} to {process.handle}")
            return self.world.lose_answer()
        if kind == "crash":
            self._note(f"crash {process.handle} {step.phase} {step.call}")
            self.world.crash_here(process, back_after_ms=choose.randint(*CRASH_BACK_MS))
        for_ms = choose.randint(*(FREEZE_MS if kind == "freeze" else NAP_MS))
        self._note(f"{kind} {process.handle} {step.phase} {step.call} for {for_ms} ms")
        self.world.pause_here(process, for_ms, frozen=kind == "freeze")
        return None

    def _is_to_be_aborted(self, step: Step) -> bool:
        aborts = self.world.shape.aborts
        return aborts > 0 and step.phase == "before" and step.call in ENDING and self.world.random.random() < aborts

    def round(self) -> None:
        """Disturb the world between two rounds, with some probability."""
        world, choose = self.world, self.world.random
        if len(self.done) >= self.most or choose.random() > 0.004:
            return
        kind = choose.choice(sorted(self.kinds))
        if kind in self._of_the_world:
            self._of_the_world[kind]()
        world.touch()

    def decide(self) -> None:
        """Pause a target, for good or for a while, or resume it."""
        world, choose = self.world, self.world.random
        topic, now_ms = choose.choice(world.shape.targets)[0], world.clock.now_ms()
        if world.pausing.is_paused(topic, now_ms):
            world.resume(topic)
            what = "is resumed"
        else:
            for_ms = choose.choice((None, None, choose.randint(200, 5_000)))
            world.pause(topic, None if for_ms is None else now_ms + for_ms)
            what = "is paused" if for_ms is None else f"is paused for {for_ms} ms"
        self.decided.append(f"{world.clock.monotonic_ms()}: {topic} {what}")

    def _make_anew(self) -> None:
        """Delete the intake and create it again while the service is down, and then adopt it as an operator would."""
        world = self.world
        if world.leaderless or world.held:
            return  # an operator can adopt an intake only if its logs are available
        self._note("the intake is recreated")
        for process in world.processes:
            world.crash(process, back_after_ms=None)
        disturb, world.disturb = world.disturb, nothing
        places = range(world.shape.partitions)
        ends = [world.broker.end(INTAKE, partition) for partition in places]
        world.make_anew("")
        while any(world.broker.end(INTAKE, partition) <= ends[partition] for partition in places):
            world.send(10)
        if (line := world.until_refused()) is not None:
            self._note(f"adopted: {line}")
            world.adopt()
        for process in world.processes:
            if process.worker is None:
                world.restart(process, 0)
        world.disturb = disturb

    @property
    def _of_the_world(self) -> Mapping[str, Callable[[], None]]:
        """The kinds of disturbances that do not happen at a step of a process."""
        return {
            "stop": self._stop,
            "twin": self._start_a_twin,
            "ghost": self._join_once_more,
            "jump": self._jump,
            "behind": self._fall_behind,
            "away": partial(self._begin_or_end, "away"),
            "narrow": partial(self._begin_or_end, "narrow"),
            "throttle": partial(self._begin_or_end, "throttle"),
            "leader": self._lose_a_leader,
            "foreign": self._put_foreign,
            "coordinator": self._lose_the_coordinator,
            "expire": self._expire,
            "undelete": self._undelete,
            "hide": self._hide,
            "anew": self._make_anew,
        }

    def _stop(self) -> None:
        process = self.world.random.choice(self.world.processes)
        self._note(f"stop {process.handle}")
        process.stop()
        self.world.restart(process, self.world.random.randint(*CRASH_BACK_MS))

    def _start_a_twin(self) -> None:
        world = self.world
        if len(world.processes) < 4:
            other = world.random.choice(world.processes)
            self._note(f"twin of {other.handle}")
            world.newcomer(f"p{len(world.processes)}", instance=other.instance)

    def _jump(self) -> None:
        by_ms = self.world.random.choice((-5_000, -900, -40, 40, 900, 5_000))
        self._note(f"jump {by_ms} ms")
        self.world.clock.jump(by_ms)

    def _fall_behind(self) -> None:
        """Set one machine's clock back for a while, which must not change delays that start at broker timestamps."""
        world, choose = self.world, self.world.random
        process = choose.choice(world.processes)
        if world.shape.fixed_delay_ms is None or process.clock.ahead_ms:
            return
        by_ms, for_ms = choose.choice((15_000, 60_000)), choose.randint(500, 4_000)
        self._note(f"the clock of {process.handle} is {by_ms} ms behind for {for_ms} ms")
        process.clock.ahead_ms = -by_ms
        world.clock.call_at(world.clock.monotonic_ms() + for_ms, lambda: setattr(process.clock, "ahead_ms", 0))
        world.touch(for_ms)

    def _lose_the_coordinator(self) -> None:
        world = self.world
        for_ms = world.random.randint(200, 4_000)
        self._note(f"coordinator away for {for_ms} ms")
        world.broker.coordinator_away(world.group, for_ms)
        world.touch(for_ms)

    def _undelete(self) -> None:
        self._note("what was deleted is back")
        self.world.broker.undelete()

    def _hide(self) -> None:
        world, choose = self.world, self.world.random
        topic, for_ms = choose.choice(world.shape.targets)[0], choose.choice((500, 2_000, 8_000))
        # A topic of the service comes back before the service is sure that it is deleted and waits for an operator.
        if choose.random() < 0.5:
            topic, for_ms = choose.choice(world.own_logs())[0][0], min(for_ms, 2_000)
        self._note(f"a broker does not know {topic} for {for_ms} ms")
        world.hide(topic, for_ms)

    def _expire(self) -> None:
        self._note("offsets expire")
        self.world.broker.expire_offsets(self.world.group)
        # If a process crashes now and no copy of a checkpoint names it yet, a new owner cannot fence it. Its open
        # transaction ends only at the transaction timeout.
        self.world.touch(TRANSACTION_TIMEOUT_MS)

    def _join_once_more(self) -> None:
        process = self.world.random.choice(self.world.processes)
        if process.instance is not None and self.world.shape.protocol == "classic":
            self._note(f"{process.handle} joins once more, late")
            self.world.broker.join_once_more(self.world.group, process.instance)

    def _lose_a_leader(self) -> None:
        world = self.world
        if not world.leaderless:
            log, place = world.random.choice(world.own_logs())
            for_ms = world.random.randint(*LEADERLESS_MS)
            self._note(f"{log[0]}/{log[1]} has no leader for {for_ms} ms")
            world.lose_leader(log, place, for_ms)

    def _put_foreign(self) -> None:
        world = self.world
        place = (INTAKE, world.random.randrange(world.shape.partitions))
        if place not in world.held:
            for_ms = world.random.randint(*LEADERLESS_MS)
            self._note(f"a foreign record in the journal of {place[1]}, mended after {for_ms} ms")
            world.put_foreign(place, for_ms)

    def _away_or_back(self) -> None:
        world = self.world
        topic = world.random.choice(world.shape.targets)[0]
        if topic in world.away:
            self._note(f"{topic} is back")
            world.bring_back(topic)
        else:
            self._note(f"{topic} goes away")
            world.take_away(topic)

    def _begin_or_end(self, kind: str) -> None:
        """Begin or end a lasting disturbance: an offline target, topics that accept only small batches, slow writes."""
        world, choose = self.world, self.world.random
        if kind == "away":
            self._away_or_back()
            return
        if self._is_tight:
            self._note("topics and processes take as much as ever")
            world.widen()
        elif kind == "narrow":
            suffix = choose.choice((DEAD, RESULTS))
            self._note(f"{suffix} takes little at a time")
            world.narrow(suffix, 2_000)
        else:
            bytes_per_s = choose.choice((10_000, 50_000))
            self._note(f"{bytes_per_s} bytes a second")
            world.broker.throttle(bytes_per_s)
            world.touch(TIGHT_MS)
        self._is_tight = not self._is_tight

    def _note(self, text: str) -> None:
        self.done.append(f"{self.world.clock.monotonic_ms()}: {text}")
