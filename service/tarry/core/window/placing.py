"""Place messages by due time: in the hot window, or in a bucket of the overflow wheel.

A message for a bucket waits until a transaction files it. When buckets are closed, the hot window grows, and a message
that has become hot while it waited is held in memory. Messages that must not be filed yet wait apart, so that they do
not stop filing or reading of others. Otherwise a deadlock would be possible. Held-up messages wait for the end of the
replay. But reading pauses while too many messages wait to be filed, so the replay would wait for the held-up messages.
"""

from collections.abc import Callable
from operator import attrgetter, itemgetter

from tarry.core.batch import UNBOUNDED, fitting
from tarry.core.message import FiledMessage, HeldMessage
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.overflow import OverflowWheel
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.names import Names

MOST_HELD_UP = 5_000
"""The most messages of a partition that are held up. If there would be more, all of them are filed."""

_bucket = itemgetter(1)
_sequence = attrgetter("sequence")


class Placing:
    """Places the messages of one partition.

    Args:
        hot: takes messages that are due soon.
        overflow: determines the bucket for each other message.
        width_ms: the width of a bucket of level 1.
        is_held_up: whether the message at an offset of the intake must not be filed yet.
        names: knows which messages are superseded, or must not be filed yet.
    """

    __slots__ = (
        "_again",
        "_held_up",
        "_hot",
        "_is_held_up",
        "_moving",
        "_names",
        "_overflow",
        "_waiting",
        "_width_ms",
        "hot_below_ms",
    )

    def __init__(
        self, hot: HotWindow, overflow: OverflowWheel, width_ms: int, is_held_up: Callable[[int], bool], names: Names
    ) -> None:
        self._hot = hot
        self._is_held_up = is_held_up
        self._names = names
        self._overflow = overflow
        self._width_ms = width_ms
        self._moving: list[FiledMessage] = []
        """Messages of buckets, to be filed one level lower. They are filed first, because they are due soonest."""
        self._waiting: list[FiledMessage] = []
        """Messages of the intake, in its order."""
        self._held_up: list[FiledMessage] = []
        """Messages of the intake before all of those."""
        self._again: list[FiledMessage] = []
        """Messages of open buckets, to be filed again: they are in no hurry, and no other waits for them."""
        self.hot_below_ms = overflow.levels.hot_below_ms
        """The end of the hot window: a message that is due before it is hot."""

    @property
    def to_file(self) -> int:
        """The number of messages that wait to be filed, including those that are held up."""
        return len(self._moving) + len(self._waiting) + len(self._held_up)

    @property
    def moving(self) -> int:
        """The number of messages of buckets among them."""
        return len(self._moving)

    @property
    def again(self) -> int:
        """The number of messages of open buckets that wait to be filed again; `to_file` is without them."""
        return len(self._again)

    @property
    def held_up(self) -> int:
        """The number of messages that must not be filed yet, at the last check; at most `MOST_HELD_UP`."""
        return len(self._held_up)

    def put(self, message: FiledMessage, now_ms: int) -> None:
        """Hold a message that is due soon; let any other wait to be filed."""
        if message.due_ms < self.hot_below_ms:
            self._hot.hold(message, now_ms)
        elif message.source == INTAKE:
            self._waiting.append(message)
        else:
            self._moving.append(message)

    def take_to_file(
        self, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED, *, only_moving: bool = False
    ) -> list[tuple[HeldMessage, Source]]:
        """Take messages to file, with the bucket of each, sorted by it. Messages that are hot now are held instead.

        Args:
            limit: the most messages to take.
            now_ms: wall time.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
            only_moving: whether to take only messages of buckets.
        """
        self._hold_up()
        of_intake = 0 if only_moving else max(0, limit - len(self._moving))
        first = [*self._moving[:limit], *self._waiting[:of_intake]]
        taken = first[: fitting([message.size_bytes for message in first], limit_bytes)]
        moved = min(len(taken), len(self._moving))
        self._moving, self._waiting = self._moving[moved:], self._waiting[len(taken) - moved :]
        records: list[tuple[HeldMessage, Source]] = []
        # All messages due within one width of level 1 go to the same bucket: bounds are multiples of that width.
        width_ms, buckets, names = self._width_ms, dict[int, Source](), self._names
        early: list[FiledMessage] = []
        for message in taken:
            if message.name is not None:
                if names.is_superseded(message):
                    names.drop(message)
                    continue
                if not names.is_admitted(message):
                    early.append(message)
                    continue
            if message.due_ms < self.hot_below_ms:
                self._hot.hold(message, now_ms)
                continue
            source = buckets.get(message.due_ms // width_ms)
            if source is None:
                source = buckets[message.due_ms // width_ms] = self._overflow.bucket_for(message.due_ms)
            records.append((message, source))
        self._waiting[:0] = early
        records.sort(key=_bucket)
        return records

    def put_again(self, message: FiledMessage) -> None:
        """Let a message of an open bucket wait to be filed again."""
        self._again.append(message)

    def take_again(self, limit: int, limit_bytes: int) -> list[tuple[HeldMessage, Source]]:
        """Take messages of open buckets to file again, sorted by bucket.

        Args:
            limit: the most messages to take.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        count = fitting([message.size_bytes for message in self._again[:limit]], limit_bytes)
        taken, self._again = self._again[:count], self._again[count:]
        return sorted(((message, message.source) for message in taken), key=_bucket)

    def forget_again(self) -> int:
        """Forget the messages that wait to be filed again: they wait where they are. Return their size in bytes."""
        gone, self._again = self._again, []
        return sum(message.size_bytes for message in gone)

    def _hold_up(self) -> None:
        """Move messages that are held up out of the queue; move them back if they no longer are, or are too many."""
        of_intake = [*self._held_up, *self._waiting]
        # If the first one is held up, all after it are, too.
        if of_intake and len(of_intake) <= MOST_HELD_UP and self._is_held_up(of_intake[0].sequence):
            self._held_up, self._waiting = of_intake, []
        else:
            self._held_up, self._waiting = [], of_intake

    def put_back_filed(self, back: list[FiledMessage], again: list[FiledMessage]) -> None:
        """Let messages wait once more: the transaction that filed them aborted.

        Args:
            back: from `take_to_file`.
            again: from `take_again`.
        """
        self._again[:0] = again
        back = sorted(back, key=_sequence)
        self._moving[:0] = [message for message in back if message.source != INTAKE]
        self._waiting[:0] = [message for message in back if message.source == INTAKE]

    def place_again(self, now_ms: int) -> None:
        """Place all waiting messages again: buckets were closed, and messages that are hot now must be held."""
        self.hot_below_ms = self._overflow.levels.hot_below_ms
        waiting = [*self._moving, *self._held_up, *self._waiting]
        self._moving, self._held_up, self._waiting = [], [], []
        for message in waiting:
            self.put(message, now_ms)
