"""Why nobody can take a partition over though all is there to be read: its checkpoint is not of these logs.

Either a topic is another one than the checkpoint speaks of, or it is the same one and has lost records, as behind an
unclean election. Both would be skipped as done, or trimmed, though nobody has delivered them. A start with `--adopt`
goes on with what there is (`adoption`).
"""

from collections.abc import Iterable, Mapping

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.origin import Origin
from tarry.core.progress.source import INTAKE, Source
from tarry.errors import RetriableError, UsageError
from tarry.kafka.topics import wheel_topic
from tarry.kafka.types import Place

SURE_AFTER_MS = 10_000
"""How long a log must end too soon until it is believed: an end asked of a new leader may lag behind for a moment."""

ADOPT = "to deliver all that the intake holds now, run `tarry serve --adopt` once"


def nothing_known(place: Place) -> str:
    """The line that refuses a partition of which nothing says what is done."""
    return (
        f"{place[0]}/{place[1]} holds records, and neither the group's offsets nor the journal say which of them are "
        f"done: {ADOPT}"
    )


def another_origin(place: Place, had: Origin, now: Origin) -> str | None:
    """The line that refuses a partition whose checkpoint is of other logs than there are now; None where it is not."""
    changes = had.changes(place[0], now)
    return f"the checkpoint of {place[0]}/{place[1]} is of {'; and of '.join(changes)}: {ADOPT}" if changes else None


def journal_cut(journal: Place, first: int, end: int, begin: int) -> str | None:
    """The line that refuses a partition whose journal does not hold the offset at which a recovery begins, or None."""
    if first <= begin <= end:
        return None
    return (
        f"{journal[0]}/{journal[1]} holds offsets {first} to {end}, and {begin} is where a recovery begins: records of "
        f"the journal were deleted, and what was delivered is not known: {ADOPT}"
    )


def intake_cut(place: Place, start: int, low: int) -> str | None:
    """The line that refuses a partition whose intake does not hold the first offset that is not done, or None."""
    if start <= low:
        return None
    return (
        f"{place[0]}/{place[1]} holds offsets from {start} on, and {low} is the first that is not done: records were "
        f"deleted that nobody had delivered; {ADOPT}"
    )


def shortfall(
    place: Place,
    low: int,
    checkpoint: Checkpoint,
    done: Mapping[Source, DoneSet],
    end: int,
    spans: Mapping[Source, tuple[int, int]],
) -> str | None:
    """The line that refuses a partition of which more is done than its logs hold; None where all is well.

    Args:
        place: the partition.
        low: its low watermark.
        checkpoint: committed with it.
        done: what the journal says is done, by source.
        end: where the intake ends.
        spans: for each slot the first offset that its log holds, and its end.
    """
    reached = {source: found.end for source, found in done.items()}
    if (intake := max(low, reached.pop(INTAKE, 0))) > end:
        return _ends_too_soon(place, f"{place[0]}/{place[1]}", end, intake)
    ends = [(one.level, one.slot, one.end) for one in checkpoint.draining]
    ends += [(one.level, one.slot, one.end) for one in checkpoint.emptying]
    for level, number, slot_end in ends:
        source = Source(level, number)
        reached[source] = max(slot_end, reached.get(source, 0))
    for source, at in sorted(reached.items()):
        if source in spans and at > spans[source][1]:
            return _ends_too_soon(
                place, f"slot {source.slot} of {wheel_topic(place[0], source.level)}", spans[source][1], at
            )
    return None


def _ends_too_soon(place: Place, log: str, end: int, done: int) -> str:
    return (
        f"{log} ends at {end}, and {place[0]}/{place[1]} was done up to {done}: records are lost, as by an unclean "
        f"election; {ADOPT}"
    )


class Shortfalls:
    """Partitions whose logs end too soon, from when on.

    Args:
        clock: monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[Place, int] = {}

    def forget(self, places: Iterable[Place]) -> None:
        """These are somebody else's: when they come back, an end that is too short then may lag anew."""
        for place in places:
            self._since_ms.pop(place, None)

    def judge(self, found: Mapping[Place, str | None]) -> None:
        """Refuse partitions, for now, and for good once that has lasted.

        Args:
            found: for each partition that was looked at what `shortfall` says.

        Raises:
            RetriableError: it may be a moment's lag.
            UsageError: it is none.
        """
        now_ms = self._clock.monotonic_ms()
        for place, line in found.items():
            if line is None:
                self._since_ms.pop(place, None)
            elif now_ms - self._since_ms.setdefault(place, now_ms) >= SURE_AFTER_MS:
                raise UsageError(line)
        if lines := [line for line in found.values() if line is not None]:
            raise RetriableError(lines[0])
