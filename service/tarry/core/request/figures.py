"""The figures that the owner of a partition publishes with its status, for people: how it does, as of a time.

No promise depends on them. A reader shows how old they are, and ignores fields that it does not know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MOST_TARGETS: Final = 50
"""The most targets in each list: of delivered ones those with the most messages, of others those that wait longest."""


@dataclass(frozen=True, slots=True)
class DeliveredFigures:
    """Deliveries to one target by the process, in the last period; lateness from the due time to the commit.

    Attributes:
        target: the target.
        messages: how many.
        p50_ms: half of them were at most so late.
        p99_ms: 99 of 100 were.
        worst_ms: all of them were.
    """

    target: str
    messages: int
    p50_ms: int
    p99_ms: int
    worst_ms: int


@dataclass(frozen=True, slots=True)
class ParkedFigures:
    """The parked messages of one target in the partition.

    Attributes:
        target: the target.
        messages: how many.
        since_ms: since when the owner knows of some; epoch milliseconds.
    """

    target: str
    messages: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class PausedFigures:
    """A paused target.

    Attributes:
        target: the target.
        since_ms: when it was paused.
        until_ms: when the pause ends by itself; None: never.
    """

    target: str
    since_ms: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """The figures of the process that owns the partition; they are in the records of all its partitions.

    Attributes:
        host: the name of its machine.
        resident_bytes: the memory that it occupies; 0 if the system does not tell.
        held_bytes: the memory of the messages that it holds.
        delivered: how many messages it has delivered since its start.
        period_ms: how long the last period was.
        targets: what it delivered of the partition's intake in that period.
        clock_skew_ms: its clock less the brokers' clock; None if unknown.
        takeovers: how many partitions it has taken over since its start.
        quarantined: partitions of all intakes that wait for an operator, as `topic/partition`.
        standby: partitions whose state it keeps, because the group may give them back.
    """

    host: str = ""
    resident_bytes: int = 0
    held_bytes: int = 0
    delivered: int = 0
    period_ms: int = 0
    targets: tuple[DeliveredFigures, ...] = ()
    clock_skew_ms: int | None = None
    takeovers: int = 0
    quarantined: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one partition.

    Attributes:
        at_ms: as of when, epoch milliseconds.
        held: how many messages are in memory.
        waiting: the same, and those in the parked log.
        bytes: the memory of the partition.
        parked: its parked messages.
        paused: the targets that are paused in its intake.
        obeyed: the offset of the log of pauses below which it obeys; None if it has not read that log.
        process: of its owner.
    """

    at_ms: int
    held: int = 0
    waiting: int = 0
    bytes: int = 0
    parked: tuple[ParkedFigures, ...] = ()
    paused: tuple[PausedFigures, ...] = ()
    obeyed: int | None = None
    process: ProcessFigures = field(default_factory=ProcessFigures)

    def fields(self) -> dict[str, Any]:
        """Return the figures as a value for JSON."""
        return asdict(self)


def read_figures(found: object) -> Figures | None:
    """Read what `Figures.fields` returned; None if there are none, or they are damaged: nothing depends on them."""
    if not isinstance(found, Mapping):
        return None
    try:
        process = found["process"]
        return Figures(
            at_ms=int(found["at_ms"]),
            held=int(found["held"]),
            waiting=int(found["waiting"]),
            bytes=int(found["bytes"]),
            parked=tuple(ParkedFigures(one["target"], one["messages"], one["since_ms"]) for one in found["parked"]),
            paused=tuple(PausedFigures(one["target"], one["since_ms"], one["until_ms"]) for one in found["paused"]),
            obeyed=_whole(found["obeyed"]),
            process=ProcessFigures(
                host=str(process.get("host", "")),  # an earlier service did not write it
                resident_bytes=int(process["resident_bytes"]),
                held_bytes=int(process["held_bytes"]),
                delivered=int(process["delivered"]),
                period_ms=int(process["period_ms"]),
                targets=tuple(map(_delivered, process["targets"])),
                clock_skew_ms=_whole(process["clock_skew_ms"]),
                takeovers=int(process["takeovers"]),
                quarantined=tuple(map(str, process["quarantined"])),
                standby=tuple(map(str, process["standby"])),
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _whole(found: Any) -> int | None:
    return None if found is None else int(found)


def _delivered(one: Mapping[str, Any]) -> DeliveredFigures:
    lateness = (int(one[name]) for name in ("messages", "p50_ms", "p99_ms", "worst_ms"))
    return DeliveredFigures(str(one["target"]), *lateness)


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that at least a share of the values do not exceed.

    Args:
        ordered: the values, ascending; at least one.
        share: from 0 to 1.
    """
    return ordered[max(0, -(-int(len(ordered) * share * 1_000) // 1_000) - 1)]
