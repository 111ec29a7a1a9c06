"""A process, as the cluster knows it: its clients' connections live and end together."""

from dataclasses import dataclass

from tarry.testing.fake.refusals import ProcessKilled
from tarry.testing.fake.steps import Hook


@dataclass(slots=True, eq=False)
class Process:
    """One process.

    Attributes:
        name: of it.
        hook: is told of its steps.
        alive: until it is killed.
        frozen: whether it is stopped, so that its heartbeats are too.
        freezes: how often it was.
    """

    name: str
    hook: Hook | None
    alive: bool = True
    frozen: bool = False
    freezes: int = 0

    @property
    def responds(self) -> bool:
        """Whether its clients' own threads do their work."""
        return self.alive and not self.frozen

    def must_live(self) -> None:
        """Go no further in a process that is gone.

        Raises:
            ProcessKilled: it was killed.
        """
        if not self.alive:
            raise ProcessKilled(self.name)
