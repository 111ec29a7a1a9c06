"""Records of closed buckets as they are read: each is placed anew, in the hot window or one level lower.

What is larger than memory is read in passes. A record that the service has not filed is a dead letter, and one that a
killed broker has brought back of an earlier turn is done.
"""

from collections.abc import Iterable

from tarry.core.filed import read_filed
from tarry.core.hot_window import HotWindow
from tarry.core.memory import Memory
from tarry.core.message import DeadMessage, Headers, HeldCancel
from tarry.core.overflow import LEAST_OF_A_PASS, Overflow
from tarry.core.placing import Placing
from tarry.core.ready import Ready
from tarry.core.source import Source
from tarry.headers import ErrorCode, derived_id


class Draining:
    """Takes in the records of one partition's closed slots.

    Args:
        topic: the intake.
        partition: its number.
        overflow: how far its slots are read.
        hot: holds what a pass hands out.
        placing: takes all else.
        ready: takes what is dead.
        memory: counts what is taken in.
    """

    __slots__ = ("_hot", "_memory", "_overflow", "_partition", "_placing", "_ready", "_topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        overflow: Overflow,
        hot: HotWindow,
        placing: Placing,
        ready: Ready,
        memory: Memory,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._overflow = overflow
        self._hot = hot
        self._placing = placing
        self._ready = ready
        self._memory = memory

    def unread(self, room_bytes: int, least_bytes: int = 0) -> Iterable[tuple[Source, int, int]]:
        """The closed slots that are to be read: where from, and to which end.

        Args:
            room_bytes: of memory, for one that is begun now.
            least_bytes: what a pass after the first may take in any case: all else waits for it.
        """
        typical_bytes = self._memory.typical_bytes
        if self._hot.next_due_ms() is None:
            self._overflow.begin_pass(max(room_bytes, least_bytes, LEAST_OF_A_PASS * typical_bytes))
        return self._overflow.unread(room_bytes // typical_bytes, typical_bytes)

    def accept(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, now_ms: int
    ) -> None:
        """Take in a record of a closed slot, to be held, or to be filed anew."""
        slot = self._overflow.closed(source)
        if slot is None:
            return
        is_new = slot.is_new(offset)
        if not slot.read(offset):
            return
        try:
            message = read_filed(source, offset, key, value, headers)
        except ValueError as error:
            if is_new:
                self._reject(source, offset, key, value, headers, str(error))
            return
        if slot.is_of_an_earlier_turn(message.due_ms):
            slot.ledger.mark([offset])
            return
        is_hot = message.due_ms < self._placing.hot_below_ms and type(message) is not HeldCancel
        if slot.passes is not None and is_hot and offset not in slot.placed:
            self._memory.held_bytes += slot.passes.offer(message)
            return
        if not is_new:
            return  # all cancels are held from the first pass on: their messages may come with any
        if slot.passes is not None and not is_hot:
            slot.placed.add(offset)  # it may become hot before it is filed, and is held then
        self._memory.count(message)
        self._placing.put(message, now_ms)

    def reach(self, source: Source, position: int, now_ms: int) -> None:
        """Take note of the reader's position in a closed slot, past markers and aborted records."""
        for message in self._overflow.reach(source, position):
            self._hot.hold(message, now_ms)

    def _reject(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: str
    ) -> None:
        place = f"slot {source.slot} of level {source.level} of {self._topic}/{self._partition}, offset {offset}"
        code, id_ = ErrorCode.UNREADABLE_HEADERS, derived_id(self._topic, self._partition, offset)
        dead = DeadMessage(offset, key, value, headers or [], code, f"{place}: {why}", id_, None, None, source, offset)
        self._memory.held_bytes += dead.size_bytes
        self._ready.dead.append(dead)
