"""What an intake accepts: targets, how long a message may wait, and whose headers say so."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """What an intake accepts.

    Args:
        topic: the intake's topic.
        targets: globs over topic names; not used where the target is fixed.
        max_delay_ms: the longest a message may wait, from its record's timestamp.
        horizon_ms: the longest it may still wait when it is read, or None: as long as `max_delay_ms` allows.
        fixed_delay_ms: every record waits so long, or None: its headers say.
        fixed_target: every record goes there; set together with `fixed_delay_ms`, or beside a dialect.
        tick_ms: due times are rounded up to its multiples, at least 1.
        intakes: the topics of all intakes: what belongs to them (`I.results` and so on) is no target.
        dialect: the name of another scheduler's headers, which count instead of ours; None: ours.
    """

    topic: str
    targets: tuple[str, ...] = ("*",)
    max_delay_ms: int = 30 * 86_400_000
    horizon_ms: int | None = None
    fixed_delay_ms: int | None = None
    fixed_target: str | None = None
    tick_ms: int = 1
    intakes: frozenset[str] = frozenset()
    dialect: str | None = None

    def __post_init__(self) -> None:
        if self.tick_ms < 1:
            raise ValueError(f"tick_ms is at least 1: {self.tick_ms}")
        if self.dialect is None and (self.fixed_delay_ms is None) != (self.fixed_target is None):
            raise ValueError("a fixed delay and a fixed target come together")
        if self.dialect is not None and self.fixed_delay_ms is not None:
            raise ValueError("a fixed delay needs no headers, in whatever dialect")
