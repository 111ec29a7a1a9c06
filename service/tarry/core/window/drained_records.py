"""Take in the records of closed buckets as they are read: each is placed again, in the hot window or one level lower.

A bucket that is larger than the free memory is read in passes, from the start or as soon as it turns out to be too
large. A record that the service has not filed becomes a dead letter. A record of an earlier turn, which a killed broker
has brought back, counts as done.
"""

from collections.abc import Iterable

from tarry.core.message import DeadMessage, FiledMessage, Headers, HeldCancel
from tarry.core.progress.source import Source
from tarry.core.wheel.closed_slot import ClosedSlot
from tarry.core.wheel.filed import read_filed
from tarry.core.wheel.overflow import LEAST_OF_A_PASS, OverflowWheel
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.memory import Memory
from tarry.core.window.placing import Placing
from tarry.core.window.ready import Ready
from tarry.headers import ErrorCode, derived_id


class DrainedRecords:
    """Takes in the records of one partition's closed slots.

    Args:
        place: the intake and the partition's number.
        overflow: tracks how far the slots are read.
        hot: takes the messages of a pass.
        placing: takes all other messages, and cancels.
        ready: takes dead letters.
        memory: counts the messages' memory.
    """

    __slots__ = ("_hot", "_memory", "_overflow", "_partition", "_placing", "_ready", "_room_bytes", "_topic")

    def __init__(
        self,
        place: tuple[str, int],
        overflow: OverflowWheel,
        hot: HotWindow,
        placing: Placing,
        ready: Ready,
        memory: Memory,
    ) -> None:
        self._topic, self._partition = place
        self._overflow = overflow
        self._hot = hot
        self._placing = placing
        self._ready = ready
        self._memory = memory
        self._room_bytes = 0

    def unread(self, room_bytes: int, least_bytes: int = 0) -> Iterable[tuple[Source, int, int]]:
        """Return the closed slots to read, each with its first offset and its end.

        Args:
            room_bytes: free memory, for all records that are read until the next call.
            least_bytes: memory that a pass after the first may take even if there is less room: all else waits for it.
        """
        typical_bytes = self._memory.typical_bytes
        if self._hot.next_due_ms() is None and not self._hot.is_held_before(self._overflow.gate):
            self._overflow.begin_pass(max(room_bytes, least_bytes, LEAST_OF_A_PASS * typical_bytes))
        unread = list(self._overflow.unread(room_bytes, typical_bytes))
        self._room_bytes = room_bytes - self._overflow.reserved_bytes
        return unread

    def accept(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, now_ms: int
    ) -> None:
        """Take in a record of a closed slot: it is held in memory, or waits to be filed to another slot."""
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
        self._place(slot, message, now_ms, is_new=is_new)

    def _place(self, slot: ClosedSlot, message: FiledMessage, now_ms: int, *, is_new: bool) -> None:
        is_hot = message.due_ms < self._placing.hot_below_ms and type(message) is not HeldCancel
        if slot.passes is not None and is_hot and message.offset not in slot.placed:
            if is_new:
                self._memory.learn(message)
            self._memory.held_bytes += slot.passes.offer(message)
            return
        if not is_new:
            return  # cancels are held from the first pass on, because their messages may come in any pass
        self._memory.count(message)
        self._placing.put(message, now_ms)
        if slot.bucket.level > 1:
            if is_hot:  # it stayed as a refused dead letter, and the buckets below were closed in the meantime
                slot.staying.add(message.offset)
            return
        if not is_hot:
            slot.placed.add(message.offset)  # if it becomes hot before it is filed, it is held
            return
        slot.whole.append(message)
        self._room_bytes -= message.size_bytes
        if self._room_bytes < 0:
            self._switch_to_passes(slot)

    def _switch_to_passes(self, slot: ClosedSlot) -> None:
        """Read a slot in passes, because memory has no room for the whole: offer what was read to the first pass."""
        whole = slot.switch_to_passes()
        assert slot.passes is not None, "switch_to_passes has just made them"  # noqa: S101
        for message in whole:
            self._hot.take_back(message)
            self._memory.held_bytes += slot.passes.offer(message) - message.size_bytes

    def reach(self, source: Source, position: int, now_ms: int) -> None:
        """Note the reader's position in a closed slot, which may be past markers and aborted records."""
        for message in self._overflow.reach(source, position):
            self._hot.hold(message, now_ms)

    def _reject(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: str
    ) -> None:
        place = f"slot {source.slot} of level {source.level} of {self._topic}/{self._partition}, offset {offset}"
        # The record has no offset in the intake, so its id and name are made from its offset in the bucket.
        log, number = f"{self._topic}.wheel-{source.level}", self._partition * self._overflow.slots + source.slot
        code, id_ = ErrorCode.UNREADABLE_HEADERS, derived_id(log, number, offset)
        dead = DeadMessage(offset, key, value, headers or [], code, f"{place}: {why}", id_, None, None, source, offset)
        dead = dead._replace(unfiled_source=f"{log}/{number}/{offset}".encode())
        self._memory.held_bytes += dead.size_bytes
        self._ready.bury(dead)
