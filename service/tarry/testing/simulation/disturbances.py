"""What befalls processes: at one exact step, or by chance.

A step is one request to the cluster, seen twice: before it arrives there, and when it is done but the answer is not yet
back. Between two steps a process changes nothing that others could see, so a crash at a step stands for every crash
since the last one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.world import World

QUIET = frozenset({"fetch"})
"""Calls that each turn makes and that change nothing at the cluster."""

SESSION_MS = 6_000
CRASH_BACK_MS = (50, 2_000)
NAP_MS = (20, 2_000)
FREEZE_MS = (SESSION_MS + 1_000, 45_000)


@dataclass(slots=True)
class Recorder:
    """Notes the steps of one process, and disturbs nothing."""

    name: str
    steps: list[Step] = field(default_factory=list)

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Note a step."""
        if process.name == self.name and step.call not in QUIET:
            self.steps.append(step)
        return None


@dataclass(slots=True)
class At:
    """Does something to a process at one of its steps, counted from 0 over both phases, and then nothing more.

    Attributes:
        name: of the process.
        index: of the step, as `Recorder` has them.
        do: what to do.
    """

    name: str
    index: int
    do: Callable[[Process], Fate | None]
    met: Step | None = None
    """The step at which it was done."""
    _seen: int = 0

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Count a step, and act when it is the one."""
        if process.name != self.name or step.call in QUIET:
            return None
        self._seen += 1
        if self._seen - 1 != self.index:
            return None
        self.met = step
        return self.do(process)


@dataclass(slots=True)
class Chance:
    """Disturbs by chance: each kind with a probability a step or, where it is no step's business, a round.

    Attributes:
        world: where.
        most: disturbances of a run; the rest of it is calm.
        kinds: which of crash, nap, freeze, lose, stop, twin, ghost, jump, away, coordinator, expire,
            undelete.
    """

    world: World
    most: int
    kinds: frozenset[str]
    done: list[str] = field(default_factory=list)
    """What was done, in order."""

    def __call__(self, process: Process, step: Step) -> Fate | None:
        """Perhaps disturb a process at a step."""
        choose = self.world.random
        if step.call in QUIET or len(self.done) >= self.most:
            return None
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

    def round(self) -> None:
        """Perhaps disturb the world between two rounds."""
        world, choose = self.world, self.world.random
        if len(self.done) >= self.most or choose.random() > 0.004:
            return
        kind = choose.choice(sorted(self.kinds))
        if kind == "stop":
            process = choose.choice(world.processes)
            self._note(f"stop {process.handle}")
            process.stop()
            world.restart(process, choose.randint(*CRASH_BACK_MS))
        elif kind == "twin" and len(world.processes) < 4:
            other = choose.choice(world.processes)
            self._note(f"twin of {other.handle}")
            world.newcomer(f"p{len(world.processes)}", instance=other.instance)
        elif kind == "ghost":
            self._join_once_more(choose.choice(world.processes))
        elif kind == "jump":
            by_ms = choose.choice((-5_000, -900, -40, 40, 900, 5_000))
            self._note(f"jump {by_ms} ms")
            world.clock.jump(by_ms)
        elif kind == "away":
            self._away_or_back()
        elif kind == "coordinator":
            for_ms = choose.randint(200, 4_000)
            self._note(f"coordinator away for {for_ms} ms")
            world.broker.coordinator_away(world.group, for_ms)
            world.touch(for_ms)
        elif kind == "undelete":
            self._note("what was deleted is back")
            world.broker.undelete()
        elif kind == "expire":
            self._note("offsets expire")
            world.broker.expire_offsets(world.group)
            # Whose name is in no copy yet, and who crashes now, can't be fenced: the broker ends what it left open.
            world.touch(TRANSACTION_TIMEOUT_MS)
        world.touch()

    def _join_once_more(self, process: Process) -> None:
        if process.instance is not None and self.world.shape.protocol == "classic":
            self._note(f"{process.handle} joins once more, late")
            self.world.broker.join_once_more(self.world.group, process.instance)

    def _away_or_back(self) -> None:
        world = self.world
        topic = world.random.choice(world.shape.targets)[0]
        if topic in world.away:
            self._note(f"{topic} is back")
            world.bring_back(topic)
        else:
            self._note(f"{topic} goes away")
            world.take_away(topic)

    def _note(self, text: str) -> None:
        self.done.append(f"{self.world.clock.monotonic_ms()}: {text}")
