"""Take in the records of levels' logs as they are read.

    its bucket is                 then
    closed, and not done          the message is placed again, in the hot window or one level lower
    open                          the survey of the log learns where it is, or it is filed again
    done                          nothing: a message that was delivered or moved, and is not deleted yet
    none: it was not filed        it becomes a dead letter

A filed record where none should be is an error: it would not be delivered before the next take-over.

A bucket that is larger than the free memory is read in passes, from the start or as soon as it turns out to be too
large.
"""

from collections.abc import Sequence

from tarry.core.message import DeadMessage, FiledMessage, Headers, HeldCancel, order_key
from tarry.core.progress.source import Source
from tarry.core.wheel.closed_range import ClosedRange
from tarry.core.wheel.filed import due_ms_of, read_filed
from tarry.core.wheel.overflow import LEAST_OF_A_PASS, STRANGE, OverflowWheel, ToRead
from tarry.core.wheel.refiling import Refiling
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names
from tarry.core.window.placing import Placing
from tarry.core.window.ready import Ready
from tarry.errors import LogError
from tarry.headers import ErrorCode, derived_id


class LevelRecords:
    """Takes in the records of the levels' logs of one partition.

    Args:
        place: the intake and the partition's number.
        overflow: tracks how far the buckets are read.
        hot: takes the messages of a pass.
        placing: takes all other messages, and cancels.
        ready: takes dead letters.
        memory: counts the messages' memory.
        names: knows which messages are superseded, and takes them.
    """

    __slots__ = ("_hot", "_memory", "_names", "_overflow", "_partition", "_placing", "_ready", "_room_bytes", "_topic")

    def __init__(
        self,
        place: tuple[str, int],
        overflow: OverflowWheel,
        hot: HotWindow,
        placing: Placing,
        ready: Ready,
        memory: Memory,
        names: Names,
    ) -> None:
        self._topic, self._partition = place
        self._overflow = overflow
        self._hot = hot
        self._placing = placing
        self._ready = ready
        self._memory = memory
        self._names = names
        self._room_bytes = 0

    def to_read(self, room_bytes: int, least_bytes: int = 0) -> list[ToRead]:
        """Return what is to be read.

        Args:
            room_bytes: free memory, for all records that are read until the next call.
            least_bytes: memory that a pass after the first may take even if there is less room: all else waits for it.
        """
        typical_bytes = self._memory.typical_bytes
        if self._hot.next_due_ms() is None and not self._hot.is_gate_before(self._overflow.gate):
            self._overflow.begin_pass(max(room_bytes, least_bytes, LEAST_OF_A_PASS * typical_bytes))
        reading = list(self._overflow.to_read(room_bytes, typical_bytes))
        self._room_bytes = room_bytes - self._overflow.reserved_bytes
        return reading

    def accept(
        self,
        reading: Sequence[ToRead],
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        """Take in a record of a level's log.

        Args:
            reading: the entries of `to_read` that are being read of that log, each from its first offset on. One that
                waits for a later plan is not among them: it must not see this record.
            offset: the record's offset.
            key: the record's key.
            value: the record's value.
            headers: the record's headers.
            now_ms: wall time.

        Raises:
            LogError: the service has filed the record, and this process does not know of it. The brokers named too low
                an end of the log when the partition was taken over, so it must be taken over again.
        """
        level = reading[0].level
        try:
            due_ms = due_ms_of(headers)
        except ValueError as error:
            if self._overflow.meet(level, offset):
                self._reject(Source(level, STRANGE), offset, key, value, headers, str(error))
            return
        for of in reading:
            one = of.range
            if one is not None and one.covers(due_ms) and one.holds(offset):
                break
        else:
            self._survey(reading, offset, due_ms)
            return
        source = self._overflow.source_of(level, due_ms)
        if isinstance(one, Refiling):
            if one.read(source, offset):
                self._file_again(source, offset, key, value, headers)
            return
        is_new = one.is_first_read(offset)
        if not one.read(source, offset):
            return
        try:
            message = read_filed(source, offset, key, value, headers)
        except ValueError as error:
            if is_new:
                self._reject(source, offset, key, value, headers, str(error))
            return
        self._place(one, message, now_ms, is_new=is_new)

    def _survey(self, reading: Sequence[ToRead], offset: int, due_ms: int) -> None:
        """Take in a record that is in none of the ranges; it counts if the log is surveyed."""
        level = reading[0].level
        if any(of.range is None for of in reading) and not self._overflow.survey(level, offset, due_ms):
            log = f"{self._topic}.wheel-{level}/{self._partition}"
            text = f"{log} has a message at offset {offset} that this process does not know of"
            raise LogError(text, (self._topic, self._partition))

    def _file_again(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None
    ) -> None:
        try:
            message = read_filed(source, offset, key, value, headers)
        except ValueError:  # when its bucket is closed, it becomes a dead letter
            self._overflow.give_up_refiling()
            self._memory.held_bytes -= self._placing.forget_again()
            return
        self._memory.count(message)
        self._placing.put_again(message)

    def _place(self, one: ClosedRange, message: FiledMessage, now_ms: int, *, is_new: bool) -> None:
        if message.name is not None and self._names.is_superseded(message):
            # What an earlier pass has kept is dropped by whoever holds it.
            is_held = one.passes is not None and order_key(message) < one.passes.gate
            if not is_held and one.drop(message.offset):
                self._memory.count(message)
                self._names.drop(message)
            return
        is_hot = message.due_ms < self._placing.hot_below_ms and type(message) is not HeldCancel
        if one.passes is not None and is_hot:
            if is_new:
                self._memory.learn(message)
            self._memory.held_bytes += one.passes.offer(message)
            return
        if not is_new:
            return  # cancels are held from the first pass on, because their messages may come in any pass
        self._memory.count(message)
        self._placing.put(message, now_ms)
        if one.span.level > 1:
            if is_hot:  # it stayed as a refused dead letter, and the buckets below were closed in the meantime
                one.staying.add(message.offset)
            return
        if not is_hot:
            return
        one.whole.append(message)
        self._room_bytes -= message.size_bytes
        if self._room_bytes < 0:
            self._switch_to_passes(one)

    def _switch_to_passes(self, one: ClosedRange) -> None:
        """Read a range in passes, because memory has no room for the whole: offer what was read to the first pass."""
        whole = one.switch_to_passes()
        assert one.passes is not None, "switch_to_passes has just made them"  # noqa: S101
        for message in whole:
            if self._hot.take_back(message):
                self._memory.held_bytes += one.passes.offer(message) - message.size_bytes
            else:
                one.drop(message.offset)

    def reach_end(self, read: ToRead, now_ms: int) -> None:
        """Note that something was read to its end, past markers and aborted records."""
        for message in self._overflow.reach_end(read):
            self._hot.hold(message, now_ms)

    def _reject(
        self, source: Source, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: str
    ) -> None:
        # The record has no offset in the intake, so its id and name are made from its offset in the log.
        log = f"{self._topic}.wheel-{source.level}"
        place = f"{log}/{self._partition}, offset {offset}"
        code, id_ = ErrorCode.UNREADABLE_HEADERS, derived_id(log, self._partition, offset)
        dead = DeadMessage(offset, key, value, headers or [], code, f"{place}: {why}", id_, None, None, source, offset)
        dead = dead._replace(unfiled_source=f"{log}/{self._partition}/{offset}".encode())
        self._memory.held_bytes += dead.size_bytes
        self._ready.bury(dead)
