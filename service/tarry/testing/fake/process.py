"""The cluster's record of a process. The connections of all its clients end together."""

from dataclasses import dataclass

from tarry.testing.fake.refusals import ProcessKilled
from tarry.testing.fake.steps import Hook


@dataclass(slots=True, eq=False)
class ClientProcess:
    """One process.

    Attributes:
        name: the process's name.
        hook: called for each of its steps.
        alive: True until the process is killed.
        frozen: whether the process is stopped, with its heartbeats.
        freezes: how often it was stopped.
    """

    name: str
    hook: Hook | None
    alive: bool = True
    frozen: bool = False
    freezes: int = 0

    @property
    def responds(self) -> bool:
        """Whether the background threads of its clients run."""
        return self.alive and not self.frozen

    def must_live(self) -> None:
        """Unwind the stack of a killed process.

        Raises:
            ProcessKilled: the process was killed.
        """
        if not self.alive:
            raise ProcessKilled(self.name)
