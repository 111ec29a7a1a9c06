"""What `I.operations` of one intake says now: its operations, and who did what; pure.

It holds the last thousand operations and the last two thousand single acts, so it is bounded however much was done.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tarry.api.operations.picked import Picked
from tarry.api.operations.records import Asked, Content, Progress, Single, State, Stop

MOST: Final = 1_000
MOST_ACTS: Final = 2_000

SILENT_MS: Final = 10_000
"""How long nothing is heard of an operation before another replica goes on with it."""


@dataclass(slots=True)
class Row:
    """An operation.

    Attributes:
        asked: what was asked; once it is over without the list of its records.
        total: how many records it is about.
        progress: how far it is; None: nobody has begun it.
        stop: that it shall stop.
        heard_ms: when this replica last heard of it, monotonic.
    """

    asked: Asked
    total: int
    progress: Progress | None = None
    stop: Stop | None = None
    heard_ms: int = 0

    @property
    def state(self) -> State:
        """How far it is."""
        state = State.WAITING if self.progress is None else self.progress.state
        return State.STOPPING if self.stop is not None and not state.is_over else state

    @property
    def track(self) -> tuple[str, bool]:
        """Operations of one track are executed one after the other: they use the same transactional id."""
        return self.asked.intake, self.asked.act.is_of_letters

    @property
    def is_released(self) -> bool:
        """Whether the replica that executed it has given it back."""
        return self.progress is not None and self.progress.state is State.WAITING


class Table:
    """The operations and acts of one intake.

    Args:
        intake: the intake.
    """

    def __init__(self, intake: str) -> None:
        self.intake = intake
        self._rows: OrderedDict[str, Row] = OrderedDict()
        self._early: dict[str, tuple[Progress | None, Stop | None]] = {}
        """What was read of operations before what was asked: compaction may leave it behind."""
        self._acts: OrderedDict[str, Single] = OrderedDict()

    def take(self, id_: str, content: Content, now_ms: int) -> None:
        """Take a record.

        Args:
            id_: the id in its key.
            content: what it says.
            now_ms: monotonic.
        """
        if isinstance(content, Single):
            self._acts[id_] = content
            if len(self._acts) > MOST_ACTS:
                self._acts.popitem(last=False)
            return
        if isinstance(content, Asked):
            if content.id != id_ or content.intake != self.intake:
                return
            progress, stop = self._early.pop(id_, (None, None))
            before = self._rows.get(id_)
            if before is not None:  # the same token, at two replicas
                progress, stop = before.progress, before.stop
            self._rows[id_] = Row(content, len(content.picked), progress, stop)
            if len(self._rows) > MOST:
                self._rows.popitem(last=False)
        elif id_ not in self._rows:
            progress, stop = self._early.get(id_, (None, None))
            self._early[id_] = (content, stop) if isinstance(content, Progress) else (progress, content)
            if len(self._early) > MOST:
                del self._early[next(iter(self._early))]
            return
        elif isinstance(content, Progress):
            self._rows[id_].progress = content
        else:
            self._rows[id_].stop = self._rows[id_].stop or content
        self._heard(self._rows[id_], now_ms)

    @staticmethod
    def _heard(row: Row, now_ms: int) -> None:
        row.heard_ms = now_ms
        if row.state.is_over:
            row.asked = replace(row.asked, picked=Picked({}))

    def find(self, id_: str) -> Row | None:
        """Return an operation."""
        return self._rows.get(id_)

    def rows(self) -> Iterator[Row]:
        """Yield the operations, in the order in which they were asked for."""
        yield from self._rows.values()

    def acts(self) -> Iterator[tuple[str, Single]]:
        """Yield the single acts, the oldest first."""
        yield from self._acts.items()

    def next_of(self, *, of_letters: bool) -> Row | None:
        """Return the operation of a track whose turn it is; None: there is none."""
        track = self.intake, of_letters
        return next((row for row in self._rows.values() if row.track == track and not row.state.is_over), None)

    @property
    def unfinished(self) -> int:
        """How many operations are not over."""
        return sum(not row.state.is_over for row in self._rows.values())


class Turns:
    """Whose turn it is among the operations of several tracks: one that cannot go on holds up no other track."""

    def __init__(self) -> None:
        self._had: dict[tuple[str, bool], int] = {}

    def next(self, rows: Iterable[Row]) -> Row | None:
        """Return the operation whose track had its last turn before those of the others; None: there is none."""
        row = min(rows, key=lambda one: self._had.get(one.track, 0), default=None)
        if row is not None:
            self._had[row.track] = max(self._had.values(), default=0) + 1
        return row
