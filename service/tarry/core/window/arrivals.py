"""Take in the records of the intake: each is a message, a cancel, a purge or a dead letter, or is skipped as done.

A named message, and a cancel by name, is decided first (`names`): it may be done at once.

While too many messages wait to be filed, those that are due far in the future are passed over (`passed_over`).
"""

from tarry.core.message import NEVER_MS, DeadMessage, FiledMessage, Headers, HeldCancel, HeldMessage, HeldPurge
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.log_order import is_ahead
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.source import INTAKE
from tarry.core.request.occurrence import occurrence_of
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.core.request.translated import TranslatedMessage
from tarry.core.window.deferred import Deferred, NamedRecord
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names, NameVerdict
from tarry.core.window.passed_over import PassedOver
from tarry.core.window.placing import Placing
from tarry.core.window.ready import Ready
from tarry.headers import ErrorCode


class Arrivals:
    """Takes in the records of one partition of the intake.

    Args:
        place: the intake and the partition's number.
        reader: parses records into requests.
        intake: tracks how far the intake is read.
        hot: takes messages that are due soon.
        placing: takes messages that may be due later, and cancels.
        passed_over: takes the messages that are read again later.
        ready: takes dead letters.
        memory: counts the messages' memory.
        names: decides what a named record does.
        deferred: takes named records that cannot be decided yet.
    """

    __slots__ = (
        "_hot",
        "_intake",
        "_memory",
        "_names",
        "_partition",
        "_passed_over",
        "_placing",
        "_reader",
        "_ready",
        "_topic",
        "deferred",
        "passes_over_from_ms",
    )

    def __init__(
        self,
        place: tuple[str, int],
        reader: RequestReader,
        intake: IntakeProgress,
        hot: HotWindow,
        placing: Placing,
        passed_over: PassedOver,
        ready: Ready,
        memory: Memory,
        names: Names,
        deferred: Deferred,
    ) -> None:
        self.deferred = deferred
        """Named records that wait to be decided."""
        self.passes_over_from_ms = NEVER_MS
        """Messages and cancels that are due at or after this time, and are not hot, are passed over."""
        self._topic, self._partition = place
        self._reader = reader
        self._intake = intake
        self._hot = hot
        self._placing = placing
        self._passed_over = passed_over
        self._ready = ready
        self._memory = memory
        self._names = names

    def accept(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
        latest_ms: int | None = None,
    ) -> None:
        """Take in a record of the intake; skip a record below the position, which was read before.

        Args:
            offset: the record's offset in the intake.
            timestamp_ms: the record's timestamp.
            key: the record's key.
            value: the record's value.
            headers: the record's headers.
            now_ms: wall time.
            latest_ms: the latest time that it may be now, if `now_ms` may be behind. With a fixed delay, timestamps are
                compared with it: one that is far ahead of it counts as this time.
        """
        intake = self._intake
        ledger, order = intake.ledger, intake.order
        if offset < ledger.position:
            return
        known_done = intake.found_done is not None and offset in intake.found_done
        if known_done and order is None:
            ledger.reach(offset + 1)
            return
        read_ms = now_ms if order is None or latest_ms is None else latest_ms
        request = self._reader.read(self._partition, offset, timestamp_ms, headers, read_ms, key, value)
        if type(request) is not Request:
            if known_done:
                ledger.reach(offset + 1)
                return
            ledger.read(offset)
            self._accept_other(request, offset, timestamp_ms, key, value, headers, now_ms, read_ms)
            return
        due_ms, target, target_partition, message_id, carries, dialect, naming, expires_ms = request
        if order is not None:
            due_ms = order.next(offset, due_ms)
            # Also if the record is done: a replay would give the records after it other due times again.
            if is_ahead(timestamp_ms, read_ms):
                order.note_ahead(offset)
            if known_done:
                ledger.reach(offset + 1)
                return
        ledger.read(offset)
        if naming is not None:
            named = NamedRecord(request, offset, timestamp_ms, key, value, headers, read_ms)
            self._accept_named(named, now_ms)
        elif due_ms < self._placing.hot_below_ms and dialect is None:
            message = HeldMessage(
                due_ms, offset, key, value, headers, carries, target, target_partition, message_id, expires_ms
            )
            self._memory.count(message)
            self._hot.hold(message, now_ms)
        else:
            self._accept_far(request, due_ms, offset, timestamp_ms, key, value, headers, now_ms, read_ms)

    def accept_again(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
    ) -> None:
        """Take in a record that was passed over; skip any other record.

        Args:
            offset: the record's offset in the intake.
            timestamp_ms: the record's timestamp.
            key: the record's key.
            value: the record's value.
            headers: the record's headers.
            now_ms: wall time.

        Raises:
            ValueError: the record was accepted before, and is rejected now.
        """
        passed_over = self._passed_over
        if offset not in passed_over:
            return
        passed_over.take(offset)
        # Not earlier than it was read first: where the clock has stepped back, its due time may now be too far ahead.
        read_ms = max(now_ms, passed_over.read_ms)
        request = self._reader.read(self._partition, offset, timestamp_ms, headers, read_ms, key, value)
        if type(request) is Rejection:
            raise ValueError(_changed(offset, request))
        if type(request) is PurgeRequest or type(request) is NameCancelRequest:
            raise ValueError(_changed(offset, request))
        if type(request) is CancelRequest:
            self._put(_cancel(request, offset, key, value, headers), now_ms)
            return
        message = self._filed(request, request.due_ms, offset, timestamp_ms, key, value, headers)
        if self._names.is_superseded(message):
            self._memory.count(message)
            self._names.drop(message)
        else:
            self._put(message, now_ms)

    # -- names --------------------------------------------------------------------------------------------------------

    def _accept_named(self, record: NamedRecord, now_ms: int) -> None:
        """Take in a named message, or a cancel by name."""
        if len(self.deferred) or not self._decide(record, now_ms):
            self.deferred.add(record)
            self._memory.held_bytes += record.size_bytes

    def resume(self, now_ms: int) -> None:
        """Decide records that waited for a side transaction, if it is over."""
        while len(self.deferred) and self._decide(self.deferred.first, now_ms):
            self._memory.held_bytes -= self.deferred.pop().size_bytes

    def _decide(self, record: NamedRecord, now_ms: int) -> bool:
        """Decide a named record; return whether it can be decided now."""
        names, memory, message = self._names, self._memory, self._named(record)
        verdict, older = self._verdict(record, message)
        if verdict is NameVerdict.WAIT:
            return False
        if older is not None:
            self._hot.recall(older)
        if verdict is NameVerdict.DONE:
            memory.count(message)
            memory.held_bytes -= message.drop_content()
        elif verdict is NameVerdict.SUPERSEDED:
            memory.count(message)
            names.drop(message)
        elif type(record.request) is Rejection:
            dead = _dead(record.offset, record.key, record.value, record.headers, record.request)
            memory.held_bytes += dead.size_bytes
            # The next record of a schedule ends it, and its dead letter waits under the schedule's name.
            self._ready.bury(dead._replace(name=message.name, ends_schedule=verdict is NameVerdict.KEEP))
        elif verdict is NameVerdict.REFUSE:
            dead = DeadMessage.of(message, *self._refusal(message))
            dead = dead._replace(ends_schedule=False)  # it has not begun
            memory.held_bytes += dead.size_bytes
            self._ready.bury(dead)
        elif type(message) is HeldMessage:
            memory.count(message)
            self._hot.hold(message, now_ms)
        elif isinstance(message, FiledMessage) and self._holds(record.offset, message.due_ms, record.read_ms):
            self._put(message, now_ms)
        return True

    def _verdict(self, record: NamedRecord, message: HeldMessage) -> tuple[NameVerdict, NameEntry | None]:
        """Return what becomes of a named record, and the message that it replaces or cancels, if there is one."""
        names = self._names
        if type(record.request) is NameCancelRequest:
            return names.decide_cancel(message)
        if record.offset >= names.decided_below:
            planned = record.planned
            if planned is not None and planned.follows is not None:
                return names.decide_next(message, planned.follows), None
            if type(record.request) is Rejection:
                return names.reject(message, record.request.code), None
            naming = record.request.naming
            assert naming is not None, "the record has a name"  # noqa: S101
            # A schedule whose first occurrence was delivered goes on with the next one.
            repeats = planned is None and self._hot.has_delivered(message)
            return names.decide(message, naming.condition, repeats=repeats)
        return names.verdict_again(message), None

    def _refusal(self, message: HeldMessage) -> tuple[ErrorCode, str]:
        """Return why a message without a fault is refused, and that in words."""
        assert message.name is not None, "it has a hidden name"  # noqa: S101
        code = self._names.code_of(message.name)
        if code is ErrorCode.TOO_MANY_NAMES:
            return code, f"{self._names.limit} names wait in this partition"
        return code, "it was refused when it was read first, and the service stopped before it wrote this dead letter"

    def _named(self, record: NamedRecord) -> HeldMessage:
        """Return the message, or the cancel, of a named record."""
        request, offset, key, value, headers = record.request, record.offset, record.key, record.value, record.headers
        message: HeldMessage
        if type(request) is NameCancelRequest:
            message = HeldMessage(0, offset, None, None, None, False, "", -1, request.id)
            message.name = request.hash
            return message
        if type(request) is Rejection:
            message = HeldMessage(request.due_ms or 0, offset, None, None, None, False, "", -1, request.id)
            message.name = request.name
            return message
        assert type(request) is Request, "only messages, cancels by name and rejections are named"  # noqa: S101
        due_ms, target, target_partition, message_id, carries, dialect, naming, expires_ms = request
        is_plain = dialect is None and (naming is None or naming.planned is None)
        if is_plain and due_ms < self._placing.hot_below_ms:
            message = HeldMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
        else:
            message = self._filed(request, due_ms, offset, record.timestamp_ms, key, value, headers)
        message.name = None if naming is None else naming.hash
        message.expires_ms = expires_ms
        return message

    def _accept_other(
        self,
        request: CancelRequest | NameCancelRequest | PurgeRequest | Rejection,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
        read_ms: int,
    ) -> None:
        """Take in a record that is no message."""
        if type(request) is CancelRequest:
            if self._holds(offset, request.due_ms, read_ms):
                self._put(_cancel(request, offset, key, value, headers), now_ms)
        elif type(request) is NameCancelRequest:
            self._accept_named(NamedRecord(request, offset, timestamp_ms, key, None, None, read_ms), now_ms)
        elif type(request) is PurgeRequest:
            purge = HeldPurge(request.due_ms, offset, None, None, headers, False, request.target, -1, request.id)
            self._memory.count(purge)
            self._hot.hold_purge(purge, now_ms)
        elif request.name is not None and offset >= self._names.decided_below:
            self._accept_named(NamedRecord(request, offset, timestamp_ms, key, value, headers, read_ms), now_ms)
        else:
            self._reject(offset, key, value, headers, request)

    def _accept_far(
        self,
        request: Request,
        due_ms: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        now_ms: int,
        read_ms: int,
    ) -> None:
        """Take in a message that may have to be filed."""
        if self._holds(offset, due_ms, read_ms):
            self._put(self._filed(request, due_ms, offset, timestamp_ms, key, value, headers), now_ms)

    def _holds(self, offset: int, due_ms: int, read_ms: int) -> bool:
        """Return whether a record is held; if not, it is passed over, because it is due far enough in the future."""
        if due_ms < self.passes_over_from_ms or due_ms < self._placing.hot_below_ms:
            return True
        if offset < self._passed_over.end:  # it waited to be decided, and those behind it did not
            return True
        self._passed_over.add(offset, due_ms, read_ms)
        return False

    def _filed(
        self,
        request: Request,
        due_ms: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
    ) -> FiledMessage:
        """Return the message of a request; `due_ms` may be later than the request says."""
        _, target, target_partition, message_id, carries, dialect, naming, expires_ms = request
        message: FiledMessage
        if naming is not None and naming.planned is not None:
            return occurrence_of(request, naming.planned, offset, key, value, headers)
        if dialect is not None:
            message = TranslatedMessage(dialect, request, offset, key, value, headers, timestamp_ms, self._topic)
        else:
            message = FiledMessage(due_ms, offset, key, value, headers, carries, target, target_partition, message_id)
            message.source, message.offset = INTAKE, offset
        message.name = None if naming is None else naming.hash
        message.expires_ms = expires_ms
        return message

    def _put(self, message: FiledMessage, now_ms: int) -> None:
        self._memory.count(message)
        self._placing.put(message, now_ms)

    def accept_unreadable(self, offset: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Take in a record with a header whose name cannot be decoded: it becomes a dead letter."""
        intake = self._intake
        if offset < intake.position:
            return
        if intake.found_done is not None and offset in intake.found_done:
            intake.ledger.reach(offset + 1)
            return
        intake.ledger.read(offset)
        self._reject(offset, key, value, headers, self._reader.unreadable(self._partition, offset, headers))

    def _reject(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: Rejection
    ) -> None:
        dead = _dead(offset, key, value, headers, why)
        self._memory.held_bytes += dead.size_bytes
        if offset < self._names.decided_below:
            hidden = self._names.rejected_name(offset)
            if hidden is not None:
                dead = dead._replace(name=hidden)
            elif why.name is not None:
                # It was accepted by another configuration, so its name may be taken, or another message has it by now.
                dead = dead._replace(name=why.name, ends_schedule=why.planned is not None)
            if self._names.is_superseded(dead):
                self._names.drop(dead)
                return
        self._ready.bury(dead)

    def reach(self, position: int) -> None:
        """Note the reader's position: offsets below it that were not taken in are transaction markers."""
        self._intake.reach(position)


def _dead(offset: int, key: bytes | None, value: bytes | None, headers: Headers | None, why: Rejection) -> DeadMessage:
    return DeadMessage(
        offset, key, value, headers or [], why.code, why.detail, why.id, why.due_ms, why.target, INTAKE, offset
    )


def _cancel(
    request: CancelRequest, offset: int, key: bytes | None, value: bytes | None, headers: Headers | None
) -> HeldCancel:
    cancel = HeldCancel(request.due_ms, offset, key, value, headers, False, "", -1, request.id)
    cancel.source, cancel.offset = INTAKE, offset
    return cancel


def _changed(offset: int, request: object) -> str:
    return f"the record at offset {offset} was accepted before, and is read differently now: {request}"
