"""Place messages by due time: in the hot window, or in a bucket of the overflow wheel.

A message for a bucket waits until a transaction files it. When buckets are closed, the hot window grows, and a message
that has become hot while it waited is held in memory. Messages that must not be filed yet wait apart, so that they do
not stop filing or reading of others. Otherwise a deadlock would be possible. Held-up messages wait for the end of the
replay. But reading pauses while too many messages wait to be filed, so the replay would wait for the held-up messages.
"""

from collections.abc import Callable

from tarry.core.batch import UNBOUNDED, Filing, fitting
from tarry.core.message import FiledMessage
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.overflow import OverflowWheel
from tarry.core.window.hot_window import HotWindow

MOST_HELD_UP = 5_000
"""The most messages of a partition that are held up. If there would be more, all of them are filed."""


class Placing:
    """Places the messages of one partition.

    Args:
        hot: takes messages that are due soon.
        overflow: determines the slot for each other message.
        width_ms: the width of a bucket of level 1.
        is_held_up: whether the message at an offset of the intake must not be filed yet.
    """

    __slots__ = ("_held_up", "_hot", "_is_held_up", "_overflow", "_waiting", "_width_ms", "hot_below_ms")

    def __init__(
        self, hot: HotWindow, overflow: OverflowWheel, width_ms: int, is_held_up: Callable[[int], bool]
    ) -> None:
        self._hot = hot
        self._is_held_up = is_held_up
        self._overflow = overflow
        self._width_ms = width_ms
        self._waiting: list[FiledMessage] = []
        self._held_up: list[FiledMessage] = []
        """Messages of the intake; they are before all messages of the intake in `_waiting`."""
        self.hot_below_ms = overflow.levels.hot_below_ms
        """The end of the hot window: a message that is due before it is hot."""

    @property
    def to_file(self) -> int:
        """The number of messages that wait to be filed, including those that are held up."""
        return len(self._waiting) + len(self._held_up)

    @property
    def held_up(self) -> int:
        """The number of messages that must not be filed yet, at the last check; at most `MOST_HELD_UP`."""
        return len(self._held_up)

    def put(self, message: FiledMessage, now_ms: int) -> None:
        """Hold a message that is due soon; let any other wait to be filed."""
        if message.due_ms < self.hot_below_ms:
            self._hot.hold(message, now_ms)
        else:
            self._waiting.append(message)

    def take_to_file(self, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Filing:
        """Take messages to file, with the slot of each. Messages that have become hot are held instead.

        Args:
            limit: the most messages to take.
            now_ms: wall time.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        self._hold_up()
        count = fitting([message.size_bytes for message in self._waiting[:limit]], limit_bytes)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        records: list[tuple[FiledMessage, Source]] = []
        # All messages due within one width of level 1 go to the same slot: bucket bounds are multiples of that width.
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
        """Move messages that are held up out of the queue; move them back if they no longer are, or are too many."""
        first = self._held_up[0] if self._held_up else next(filter(self._is_of_intake, self._waiting), None)
        if first is not None and self._is_held_up(first.sequence):  # then all of the intake after it are, too
            held_up = [*self._held_up, *filter(self._is_of_intake, self._waiting)]
            if len(held_up) <= MOST_HELD_UP:
                self._waiting = [message for message in self._waiting if not self._is_of_intake(message)]
                self._held_up = held_up
                return
        self._waiting[:0], self._held_up = self._held_up, []

    def _is_of_intake(self, message: FiledMessage) -> bool:
        """Whether a message comes from the intake and has not become hot."""
        return message.source == INTAKE and message.due_ms >= self.hot_below_ms

    def put_back_filed(self, filing: Filing) -> None:
        """Let messages wait to be filed again: the transaction that filed them aborted."""
        self._waiting[:0] = [message for message, _ in filing.records]

    def place_again(self, now_ms: int) -> None:
        """Place all waiting messages again: buckets were closed, and messages that are hot now must be held."""
        self.hot_below_ms = self._overflow.levels.hot_below_ms
        waiting, self._waiting, self._held_up = [*self._held_up, *self._waiting], [], []
        for message in waiting:
            self.put(message, now_ms)
