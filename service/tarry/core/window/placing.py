"""Where a message goes by its due time: into the hot window, or to a bucket of the overflow wheel.

What goes to a bucket waits until a transaction files it. As buckets are closed the hot window grows: what has become
hot while it waited is held after all. What must not be filed yet waits apart, so that it keeps nothing else from being
filed, or from being read: a replay that waits for what is held up, which waits for the replay, would never end.
"""

from collections.abc import Callable

from tarry.core.batch import UNBOUNDED, Filing, fitting
from tarry.core.message import FiledMessage
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.overflow import Overflow
from tarry.core.window.hot_window import HotWindow

MOST_HELD_UP = 5_000
"""Messages of a partition that wait behind one that holds them up: beyond, they are filed all the same."""


class Placing:
    """Places the messages of one partition.

    Args:
        hot: holds what is due soon.
        overflow: says which slot all else goes to.
        width_ms: of a bucket of level 1.
        is_held_up: whether what stands at an offset of the intake must not be filed yet.
    """

    __slots__ = ("_held_up", "_hot", "_is_held_up", "_overflow", "_waiting", "_width_ms", "hot_below_ms")

    def __init__(self, hot: HotWindow, overflow: Overflow, width_ms: int, is_held_up: Callable[[int], bool]) -> None:
        self._hot = hot
        self._is_held_up = is_held_up
        self._overflow = overflow
        self._width_ms = width_ms
        self._waiting: list[FiledMessage] = []
        self._held_up: list[FiledMessage] = []
        """Of the intake, in front of all those of it that wait."""
        self.hot_below_ms = overflow.levels.hot_below_ms
        """What is due before it is hot."""

    @property
    def to_file(self) -> int:
        """How many messages wait to be filed, those that are held up too."""
        return len(self._waiting) + len(self._held_up)

    @property
    def held_up(self) -> int:
        """How many of them must not be filed yet, as of the last look: `MOST_HELD_UP` at most."""
        return len(self._held_up)

    def put(self, message: FiledMessage, now_ms: int) -> None:
        """Hold what is due soon, and have filed what is not."""
        if message.due_ms < self.hot_below_ms:
            self._hot.hold(message, now_ms)
        else:
            self._waiting.append(message)

    def take_to_file(self, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Filing:
        """Take up to `limit` messages to file, with the slot of each; what has become hot meanwhile is held.

        Of bytes no more than `limit_bytes`, but for the first message.
        """
        self._hold_up()
        count = fitting([message.size_bytes for message in self._waiting[:limit]], limit_bytes)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        records: list[tuple[FiledMessage, Source]] = []
        # All that is due within a width of level 1 goes to one slot: the bounds of all levels are its multiples.
        width_ms, slots = self._width_ms, dict[int, Source]()
        for message in taken:
            if message.due_ms < self.hot_below_ms:
                self._hot.hold(message, now_ms)
                continue
            source = slots.get(message.due_ms // width_ms)
            if source is None:
                source = slots[message.due_ms // width_ms] = self._overflow.slot_for(message.due_ms)
                self._overflow.fill(source)
            records.append((message, source))
        return Filing(records)

    def _hold_up(self) -> None:
        """Put aside what is held up, and take back what no longer is, or is too much."""
        first = self._held_up[0] if self._held_up else next(filter(self._is_of_intake, self._waiting), None)
        if first is not None and self._is_held_up(first.sequence):  # and so is all of the intake behind it
            held_up = [*self._held_up, *filter(self._is_of_intake, self._waiting)]
            if len(held_up) <= MOST_HELD_UP:
                self._waiting = [message for message in self._waiting if not self._is_of_intake(message)]
                self._held_up = held_up
                return
        self._waiting[:0], self._held_up = self._held_up, []

    def _is_of_intake(self, message: FiledMessage) -> bool:
        """Whether a message comes from the intake, and is not held after all."""
        return message.source == INTAKE and message.due_ms >= self.hot_below_ms

    def put_back_filed(self, filing: Filing) -> None:
        """The transaction that filed them aborted."""
        self._waiting[:0] = [message for message, _ in filing.records]

    def look_again(self, now_ms: int) -> None:
        """Buckets were closed: what waits to be filed may be hot by now, and must be held before the gate opens."""
        self.hot_below_ms = self._overflow.levels.hot_below_ms
        waiting, self._waiting, self._held_up = [*self._held_up, *self._waiting], [], []
        for message in waiting:
            self.put(message, now_ms)
