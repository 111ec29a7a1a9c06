"""Where a message goes by its due time: into the hot window, or to a bucket of the overflow wheel.

What goes to a bucket waits until a transaction files it. As buckets are closed the hot window grows: what has become
hot while it waited is held after all.
"""

from tarry.core.batch import Filing
from tarry.core.hot_window import HotWindow
from tarry.core.message import FiledMessage
from tarry.core.overflow import Overflow
from tarry.core.source import Source


class Placing:
    """Places the messages of one partition.

    Args:
        hot: holds what is due soon.
        overflow: says which slot all else goes to.
        width_ms: of a bucket of level 1.
    """

    __slots__ = ("_hot", "_overflow", "_waiting", "_width_ms", "hot_below_ms")

    def __init__(self, hot: HotWindow, overflow: Overflow, width_ms: int) -> None:
        self._hot = hot
        self._overflow = overflow
        self._width_ms = width_ms
        self._waiting: list[FiledMessage] = []
        self.hot_below_ms = overflow.levels.hot_below_ms
        """What is due before it is hot."""

    @property
    def to_file(self) -> int:
        """How many messages wait to be filed."""
        return len(self._waiting)

    def put(self, message: FiledMessage, now_ms: int) -> None:
        """Hold what is due soon, and have filed what is not."""
        if message.due_ms < self.hot_below_ms:
            self._hot.hold(message, now_ms)
        else:
            self._waiting.append(message)

    def take_to_file(self, limit: int, now_ms: int) -> Filing:
        """Take up to `limit` messages to file, with the slot of each; what has become hot meanwhile is held."""
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
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

    def put_back_filed(self, filing: Filing) -> None:
        """The transaction that filed them aborted."""
        self._waiting[:0] = [message for message, _ in filing.records]

    def look_again(self, now_ms: int) -> None:
        """Buckets were closed: what waits to be filed may be hot by now, and must be held before the gate opens."""
        self.hot_below_ms = self._overflow.levels.hot_below_ms
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.put(message, now_ms)
