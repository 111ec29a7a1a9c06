"""The policy of an intake: which targets, delays and headers it accepts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """The targets, delays and headers that an intake accepts.

    Args:
        topic: the intake's topic.
        targets: globs for names of target topics; ignored if `fixed_target` is set.
        max_delay_ms: the longest delay, counted from the record's timestamp.
        horizon_ms: the longest delay that may be left when the record is read, or None for no such limit.
        fixed_delay_ms: the delay of every record, or None: each record's headers give it.
        fixed_target: the target of every record, or None. It is set together with `fixed_delay_ms`, or with a dialect.
        tick_ms: due times are rounded up to multiples of this; at least 1.
        intakes: the topics of all intakes; topics that belong to them (`I.results` and so on) are not valid targets.
        dialect: the name of the dialect, whose headers count instead of tarry's own; None for tarry's own.
        same_key: `replace`: in a dialect, the key of a record is its name; None: it is not.
        schedule_bytes: the largest record of a schedule: the intake must take the next one, too; None if the service
            must not write to the intake.
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
    same_key: str | None = None
    schedule_bytes: int | None = 1 << 20

    def __post_init__(self) -> None:
        if self.tick_ms < 1:
            raise ValueError(f"tick_ms must be at least 1: {self.tick_ms}")
        if self.dialect is None and (self.fixed_delay_ms is None) != (self.fixed_target is None):
            raise ValueError("a fixed delay and a fixed target must be set together")
        if self.dialect is not None and self.fixed_delay_ms is not None:
            raise ValueError("an intake with a fixed delay cannot have a dialect, because it needs no headers")
        if self.same_key is not None and self.dialect is None:
            raise ValueError("only an intake with a dialect takes the key of a record for its name")

    @property
    def why_no_schedules(self) -> str | None:
        """Why the intake takes no schedules; None if it does."""
        if self.fixed_delay_ms is not None:
            return "it has a fixed delay"
        if self.dialect is not None:
            return f"its records are in the dialect {self.dialect}"
        if self.schedule_bytes is None:
            return "the service has no right to write to it (WRITE), as it must for each next occurrence"
        return None
