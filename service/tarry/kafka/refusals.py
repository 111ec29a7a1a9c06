"""Why a take-over refuses a readable partition: its checkpoint does not belong to these logs.

Either a topic is not the one that the checkpoint names, or it is the same one but has lost records, for example after
an unclean leader election. In both cases a take-over would skip records as done, or trim them, that were never
delivered. A start with `--adopt` goes on with the records that there are (`adoption`).
"""

from collections.abc import Iterable, Mapping

from tarry.clock import Clock
from tarry.core.progress.journal import LostEnd
from tarry.core.progress.origin import Origin
from tarry.core.progress.recovery import Recovery
from tarry.core.progress.source import INTAKE, PARKED
from tarry.errors import RetriableError, UsageError
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.types import Place

SURE_AFTER_MS = 10_000
"""How long a log must end too soon until that is believed: the end that a new leader reports may lag for a moment."""

ADOPT = "to deliver all that the intake holds now, run `tarry serve --adopt` once"


def nothing_known(place: Place) -> str:
    """Return the error line for a partition of which neither offsets nor journal say which records are done."""
    return (
        f"{place[0]}/{place[1]} holds records, and neither the group's offsets nor the journal say which of them are "
        f"done: {ADOPT}"
    )


def another_origin(place: Place, had: Origin, now: Origin) -> str | None:
    """Return the error line for a partition whose checkpoint belongs to other logs than the present ones, or None."""
    changes = had.changes(place[0], now)
    return f"the checkpoint of {place[0]}/{place[1]} is of {'; and of '.join(changes)}: {ADOPT}" if changes else None


def level_gone(place: Place, had: Origin, now: Origin) -> str | None:
    """Return the error line for a partition that has lost the topic of a level that its checkpoint names, or None.

    `another_origin` compares topics that exist. A level that the configuration no longer has is not created again, so
    its topic may be missing; what the topic held would be taken for delivered.

    Args:
        place: the partition.
        had: the origin in its checkpoint.
        now: the present ids, of all levels of the checkpoint.
    """
    for level, (one, other) in enumerate(zip(had.levels, now.levels, strict=False), 1):
        if one and one != other:
            topic, _ = level_log_of(place, level)
            return f"{topic} was deleted, and messages of {place[0]}/{place[1]} may have waited in it: {ADOPT}"
    return None


def journal_cut(journal: Place, first: int, end: int, begin: int) -> str | None:
    """Return the error line for a partition whose journal lacks the offset at which a recovery begins, or None."""
    if first <= begin <= end:
        return None
    return (
        f"a recovery must read {journal[0]}/{journal[1]} from offset {begin}, but it holds only offsets {first} to "
        f"{end}: records were deleted, so tarry cannot know which messages were delivered; {ADOPT}"
    )


def intake_cut(place: Place, start: int, low: int) -> str | None:
    """Return the error line for a partition whose intake lacks the first offset that is not done, or None."""
    if start <= low:
        return None
    return (
        f"{place[0]}/{place[1]} holds offsets from {start} on, and {low} is the first that is not done: records were "
        f"deleted that were not delivered; {ADOPT}"
    )


def shortfall(place: Place, found: Recovery, end: int, spans: Mapping[int, tuple[int, int]]) -> str | None:
    """Return the error line for a partition that knows of records beyond the ends of its logs, or None.

    Args:
        place: the partition.
        found: its checkpoint, and what the journal says.
        end: the end of the intake.
        spans: for each level the first offset that its log holds, and its end; `PARKED` is the parked log.
    """
    reached = dict(enumerate(found.checkpoint.low, 1))
    for source, done in found.journal.done.items():
        reached[source.level] = max(done.end, reached.get(source.level, 0))
    for level, at in found.journal.index.reached.items():
        reached[level] = max(at, reached.get(level, 0))
    reached[PARKED] = max(found.journal.parked.reached, reached.get(PARKED, 0))
    if (intake := max(found.low, reached.pop(INTAKE.level, 0))) > end:
        return _ends_too_soon(place, f"{place[0]}/{place[1]}", end, intake)
    for level, at in sorted(reached.items()):
        if level in spans and at > spans[level][1]:
            log = level_log_of(place, level)
            return _ends_too_soon(place, f"{log[0]}/{log[1]}", spans[level][1], at)
    return None


def _ends_too_soon(place: Place, log: str, end: int, known: int) -> str:
    return (
        f"{log} ends at {end}, and {place[0]}/{place[1]} knows of records up to {known}: records are lost, as by an "
        f"unclean election; {ADOPT}"
    )


def end_lost(place: Place, lost: LostEnd) -> str:
    """Return the error line for a partition with a log that its owner has found to have lost its end."""
    log = level_log_of(place, lost.level)
    return (
        f"{log[0]}/{log[1]} went on at {lost.went_on_at}, although offsets up to {lost.end} were written: records are "
        f"lost, as by an unclean election; {ADOPT}"
    )


class Shortfalls:
    """Remembers since when the logs of partitions end too soon.

    Args:
        clock: monotonic time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[Place, int] = {}

    def forget(self, places: Iterable[Place]) -> None:
        """Forget partitions that belong to another member: when they come back, an end may lag again."""
        for place in places:
            self._since_ms.pop(place, None)

    def check(self, found: Mapping[Place, str | None]) -> None:
        """Refuse partitions whose logs end too soon: for now, and permanently after `SURE_AFTER_MS`.

        Args:
            found: for each partition that was looked at, the line from `shortfall` or `journal_cut`, or None.

        Raises:
            RetriableError: the end may only lag for a moment.
            UsageError: the log has ended too soon for `SURE_AFTER_MS`.
        """
        now_ms = self._clock.monotonic_ms()
        for place, line in found.items():
            if line is None:
                self._since_ms.pop(place, None)
            elif now_ms - self._since_ms.setdefault(place, now_ms) >= SURE_AFTER_MS:
                raise UsageError(line)
        if lines := [line for line in found.values() if line is not None]:
            raise RetriableError(lines[0])
