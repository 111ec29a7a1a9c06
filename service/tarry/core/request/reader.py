"""Parse a record of an intake into a request.

A record is untrusted input: any header may hold any bytes. The reader returns a `Request`, a `CancelRequest`, a
`NameCancelRequest`, a `PurgeRequest`, or a `Rejection` with the reason why the record can never be delivered. It never
raises and reads no clock.

If a record has several faults, the first in this order gives the error code:

1. `repeated-header`: a request header occurs twice. A record with `tarry-cancel` is a cancel, whose other
   headers are ignored, so for a cancel only a repeated `tarry-cancel` counts. A record with `tarry-cancel-name` is a
   cancel, too, and one with `tarry-purge` is a purge, for which the same holds.
2. `bad-handle`: of a cancel; as in 7: of a cancel by name; `bad-target`: of a purge.
3. `bad-id`.
4. The time: `two-delays`, `no-delay`, then `bad-delay` or `negative-delay`, or `bad-time` or
   `looks-like-seconds`.
   Then `tarry-window-ms`: `bad-delay`, or `beyond-max-delay` if it has more than 18 digits. Then `tarry-expires-at`:
   `bad-time` or `looks-like-seconds`. For a schedule, which has `tarry-every` or `tarry-cron` in place of a time:
   `schedules-not-accepted`, `two-delays`, `bad-schedule` or a fault of `tarry-deliver-at`, `too-large`, a fault of
   `tarry-window-ms`.
5. The target: `no-target`, `bad-target`, `internal-target`, `target-not-allowed`.
6. `bad-partition`.
7. The name: `names-not-accepted`, `bad-name`, `null-key`, `wrong-partition`.
8. A valid due time that is too far ahead: `beyond-max-delay`, then `beyond-horizon`. The times of a schedule may be as
   far ahead as its rule says.
9. `expired`: it expires before it is due.

A record with a header that the client library cannot decode is `unreadable-headers`.

An intake with a fixed delay needs no headers. Its own delay and target apply: `tarry-target`, `tarry-delay-ms`,
`tarry-deliver-at` and `tarry-window-ms` are removed without being read, so a wrong value is no fault (a repeated header
is). `tarry-id`, `tarry-partition` and `tarry-expires-at` apply as in other intakes, except that a message which expires
before it is due is accepted: it is dead when it is due. Its due time may depend on when it was read, and a rejection
must not.

An intake with a dialect takes time, target, key and partition from the headers of another scheduler
(`tarry.core.request.dialects`). The tarry headers for these are removed without being read; `tarry-id`,
`tarry-cancel`, `tarry-window-ms` and `tarry-expires-at` apply as in other intakes. With `same_key`, the key of a record
without `tarry-name` is its name, and one that the other scheduler would read as a cancel is a cancel by that name.
"""

from collections import Counter
from collections.abc import Sequence
from sys import intern

from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.murmur2 import partition_of
from tarry.core.progress.log_order import is_ahead
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.header_values import (
    HeaderFault,
    counted,
    instant,
    read_delay,
    read_epoch_ms_or_rfc3339,
    read_partition,
    shown,
)
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition, Naming, Planned, hash_of
from tarry.core.request.request import CancelRequest, NameCancelRequest, PurgeRequest, Rejection, Request
from tarry.core.request.schedules import REPEATS, read_next, read_schedule, shift_of
from tarry.core.request.target_names import TargetNames
from tarry.core.wire import batch_bytes
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import (
    CANCEL,
    CANCEL_NAME,
    CLOUDEVENTS_ID,
    CRON,
    DELAY_MS,
    DELIVER_AT,
    EVERY,
    EXPIRES_AT,
    ID,
    IF,
    NAME,
    NEXT,
    PARTITION,
    PURGE,
    REQUEST_HEADERS,
    TAKEN_OFF,
    TARGET,
    WINDOW_MS,
    ZONE,
    ErrorCode,
    derived_id,
    is_legal_topic,
    name_fault,
    occurrence_id,
    parse_cloudevents_id,
    parse_id,
)
from tarry.units import MAX_EPOCH_MS, format_duration

Header = tuple[str, bytes | None]

#: The request headers that few messages have.
_RARER = REQUEST_HEADERS - {TARGET, DELAY_MS, DELIVER_AT, ID, PARTITION}

#: A cancel is sent after its message, but the clock of its sender may be behind that of the message's sender.
_LATE_SENDER_MS = 60_000


class RequestReader:
    """Parses the records of one intake. For one thread only, because checks of target names are cached.

    Args:
        policy: what the intake accepts.
    """

    __slots__ = (
        "_dialect",
        "_keys_are_names",
        "_max_delay_ms",
        "_partition_name",
        "_request_headers",
        "_taken_off",
        "_targets",
        "_tick_ms",
        "partitions",
        "policy",
    )

    def __init__(self, policy: IntakePolicy) -> None:
        self.policy = policy
        """The intake's policy."""
        self.partitions = 0
        """How many partitions the intake has; 0: not known, so it is not checked that a named record is in its own."""
        self._tick_ms = policy.tick_ms
        self._max_delay_ms = policy.max_delay_ms if policy.fixed_delay_ms is None else policy.fixed_delay_ms
        dialect = self._dialect = None if policy.dialect is None else DIALECTS[policy.dialect]
        self._keys_are_names = policy.same_key is not None
        self._targets = TargetNames(policy, TARGET if dialect is None else dialect.target)
        self._partition_name = PARTITION if dialect is None else dialect.partition
        self._request_headers = REQUEST_HEADERS if dialect is None else dialect.request_headers
        self._taken_off = TAKEN_OFF if dialect is None else dialect.taken_off

    def read(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        headers: Sequence[Header] | None,
        now_ms: int,
        key: bytes | None = None,
        value: bytes | None = b"",
    ) -> Request | CancelRequest | NameCancelRequest | PurgeRequest | Rejection:
        """Parse one record.

        Args:
            partition: the record's partition in the intake.
            offset: its offset there.
            timestamp_ms: its timestamp, milliseconds since the epoch; negative if it has none.
            headers: as confluent-kafka returns them.
            now_ms: wall time; with a fixed delay, the latest time that it may be now. The horizon is counted from it. A
                fixed delay is counted from it if the timestamp is far ahead of it. A purge is due then.
            key: the record's key, to which its name belongs.
            value: the record's value; null is a cancel in some dialects.

        Returns:
            A message to deliver, a cancel, a purge, or the reason why the record can never be delivered.
        """
        found: dict[str, bytes | None] = dict(headers) if headers else {}
        repeated: set[str] | None = None
        if headers and len(found) != len(headers):
            repeated = _repeated(headers, self._request_headers)
            found = dict(reversed(headers))  # the first of each name counts
        # Most messages have none of the rarer headers, and pay for one look at them.
        has_more = self._keys_are_names or not found.keys().isdisjoint(_RARER)
        if has_more:
            other = self._no_message(found, repeated, key, value, (partition, offset), timestamp_ms, now_ms)
            if other is not None:
                return other
        carries = not found.keys() <= self._taken_off
        ce_id = found.get(CLOUDEVENTS_ID) if carries else None

        # All parts are read, even after a fault, because a rejection reports those that are known.
        message_id = self._id(found, ce_id, partition, offset)
        naming: Naming | HeaderFault | None = None
        expires_ms: int | HeaderFault = NO_EXPIRY_MS
        is_schedule = False
        if has_more:
            is_schedule = not found.keys().isdisjoint(REPEATS)
            due_ms, naming, expires_ms = self._further_parts(
                found, message_id, key, value, headers, (partition, offset), timestamp_ms, now_ms, is_schedule
            )
        else:
            due_ms = self._due_ms(found, timestamp_ms, now_ms)
        target = self._targets.read(found)
        name = self._partition_name
        to_partition = read_partition(name, found[name]) if name in found else -1
        no_schedule = None if self._dialect is None else self._dialect.refusal(found, is_null=value is None)

        if (
            repeated is not None
            or no_schedule is not None
            or type(message_id) is HeaderFault
            or type(due_ms) is HeaderFault
            or type(target) is HeaderFault
            or type(to_partition) is HeaderFault
            or type(expires_ms) is HeaderFault
            or (naming is not None and type(naming) is HeaderFault)
        ):
            fault = _first_fault(repeated, no_schedule, message_id, due_ms, expires_ms, target, to_partition, naming)
            message_id = self._known_id(message_id, partition, offset)
            return self._rejection(fault, message_id, due_ms, target, naming)

        # Rounded up, so that a message never fires before its due time.
        tick_ms = self._tick_ms
        rounded_ms = due_ms if tick_ms == 1 else -(-due_ms // tick_ms) * tick_ms
        if (
            (due_ms - timestamp_ms > self._max_delay_ms and not is_schedule)
            or rounded_ms > MAX_EPOCH_MS
            or (self.policy.horizon_ms is not None and rounded_ms - now_ms > self.policy.horizon_ms and not is_schedule)
            or (expires_ms < rounded_ms and self.policy.fixed_delay_ms is None)
        ):
            of_sender_ms = None if is_schedule else timestamp_ms
            fault = self._misplaced(due_ms, of_sender_ms, rounded_ms, now_ms, expires_ms)
            return self._rejection(fault, message_id, due_ms, target, naming)
        dialect = self._dialect
        if dialect is not None and dialect.sign is not None:
            carries = True
        if naming is not None and naming.planned is not None:
            message_id = occurrence_id(naming.planned.schedule, rounded_ms)
        return Request(rounded_ms, target, to_partition, message_id, carries, dialect, naming, expires_ms)

    def _no_message(
        self,
        found: dict[str, bytes | None],
        repeated: set[str] | None,
        key: bytes | None,
        value: bytes | None,
        place: tuple[int, int],
        timestamp_ms: int,
        now_ms: int,
    ) -> CancelRequest | NameCancelRequest | PurgeRequest | Rejection | None:
        """Parse a cancel, a cancel by name or a purge; return None if the record is a message."""
        partition, offset = place
        if CANCEL in found and (repeated is None or CANCEL not in repeated):
            return self._cancel(found[CANCEL], partition, offset, timestamp_ms)
        if (CANCEL_NAME in found and (repeated is None or CANCEL_NAME not in repeated)) or (
            self._keys_are_names and self._is_cancel_by_key(found, repeated, is_null=value is None)
        ):
            return self._cancel_name(found, key, partition, offset)
        if PURGE in found and (repeated is None or PURGE not in repeated):
            return self._purge(found[PURGE], partition, offset, now_ms)
        return None

    def _naming(self, found: dict[str, bytes | None], key: bytes | None, partition: int) -> Naming | HeaderFault | None:
        """Parse `tarry-name` and `tarry-if`; return None if the record needs no name, and has none."""
        is_by_key = NAME not in found and self._keys_are_names and key is not None
        if NAME not in found and not is_by_key:
            header = next((one for one in (IF, EVERY, CRON, ZONE, NEXT) if one in found), None)
            return None if header is None else HeaderFault(ErrorCode.BAD_NAME, f"{header} needs {NAME}")
        condition = found.get(IF, b"")
        if IF in found and condition not in (b"absent", b"present"):
            return HeaderFault(ErrorCode.BAD_NAME, f"{IF} is neither absent nor present: {shown(condition)}")
        if is_by_key:
            name = self._hash("same_key", key, key, partition)
        else:
            # The service writes the next record of a schedule into the partition of the one before.
            name = self._name(NAME, found[NAME], key, None if NEXT in found else partition)
        return name if isinstance(name, HeaderFault) else Naming(name, Condition((condition or b"").decode()))

    def _planned(
        self,
        found: dict[str, bytes | None],
        message_id: bytes | HeaderFault,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        partition: int,
        offset: int,
        timestamp_ms: int,
    ) -> tuple[int | HeaderFault, Naming | HeaderFault | None]:
        """Parse the headers of a schedule: return its due time, before rounding, and its name with its place in it."""
        schedule = self._known_id(message_id, partition, offset)
        naming = self._naming(found, key, partition)
        planned = read_next(found[NEXT], schedule) if NEXT in found else None
        if isinstance(naming, Naming) and isinstance(planned, Planned):
            # Also if it is rejected: then it ends its schedule.
            naming = naming._replace(planned=planned)
        size = batch_bytes(key, value, headers or ())
        planned = read_schedule(found, planned, schedule, size, timestamp_ms, self.policy)
        if isinstance(planned, HeaderFault):
            return planned, naming
        return planned.due_ms, naming._replace(planned=planned) if isinstance(naming, Naming) else naming

    def _name(self, header: str, name: bytes | None, key: bytes | None, partition: int | None) -> bytes | HeaderFault:
        """Return the hash of key and name."""
        topic = self.policy.topic
        if self.policy.fixed_delay_ms is not None:
            return HeaderFault(ErrorCode.NAMES_NOT_ACCEPTED, f"{header}: {topic} has a fixed delay: it keeps no names")
        if name is None or (fault := name_fault(name)) is not None:
            return HeaderFault(ErrorCode.BAD_NAME, f"{header} {fault if name is not None else 'is null'}")
        return self._hash(header, name, key, partition)

    def _hash(self, header: str, name: bytes | None, key: bytes | None, partition: int | None) -> bytes | HeaderFault:
        """Return the hash of a name and the key to which it belongs, which must be in its own partition.

        Args:
            header: the header that has the name.
            name: the name.
            key: the record's key.
            partition: the record's partition; None if it need not be checked.
        """
        if key is None or name is None:
            return HeaderFault(ErrorCode.NULL_KEY, f"{header}: a name belongs to a key, and this record has none")
        own = partition if partition is None or not self.partitions else partition_of(key, self.partitions)
        if own != partition:
            return HeaderFault(
                ErrorCode.WRONG_PARTITION,
                f"{header}: murmur2 puts this key into partition {own}, and the record is in {partition}:"
                " set partitioner=murmur2_random in a producer based on librdkafka",
            )
        return hash_of(key, name)

    def _cancel_name(
        self, found: dict[str, bytes | None], key: bytes | None, partition: int, offset: int
    ) -> NameCancelRequest | Rejection:
        """Parse a cancel by name, or by the key that is the name; its other headers are ignored."""
        derived = derived_id(self.policy.topic, partition, offset)
        if CANCEL_NAME in found:
            name = self._name(CANCEL_NAME, found[CANCEL_NAME], key, partition)
        else:
            name = self._hash("same_key", key, key, partition)
        if isinstance(name, HeaderFault):
            return Rejection(name.code, name.detail, derived, None, None)
        return NameCancelRequest(name, derived)

    def _is_cancel_by_key(self, found: dict[str, bytes | None], repeated: set[str] | None, *, is_null: bool) -> bool:
        """Whether a record of a dialect cancels what waits under its key. A repeated kind does not say so."""
        dialect = self._dialect
        if dialect is None or CANCEL_NAME in found or PURGE in found:
            return False
        if repeated is not None and dialect.kind in repeated:
            return False
        return dialect.is_cancel(found, is_null=is_null)

    def _cancel(self, value: bytes | None, partition: int, offset: int, timestamp_ms: int) -> CancelRequest | Rejection:
        """Parse a cancel; its other headers are ignored."""
        topic, fault = self.policy.topic, ""
        try:
            handle = Handle.parse(value.decode("utf-8", "replace") if value is not None else "")
        except HeaderError as error:
            fault = str(error)
        else:
            if self.policy.fixed_delay_ms is not None:
                fault = f"{topic} has a fixed delay and keeps the order of its log: its messages cannot be cancelled"
            elif (handle.topic, handle.partition) != (topic, partition):
                of = f"{handle.topic}/{handle.partition}"
                fault = f"the handle is of a message in {of}, but the cancel is in {topic}/{partition}"
            elif handle.due_ms > timestamp_ms + self._max_delay_ms + _LATE_SENDER_MS:
                fault = f"no message may wait until {instant(handle.due_ms)}"
            else:
                # Rounded up like its message's due time: the writer of a handle may not know the tick.
                return CancelRequest(-(-handle.due_ms // self._tick_ms) * self._tick_ms, handle.id.encode())
        derived = derived_id(topic, partition, offset)
        return Rejection(ErrorCode.BAD_HANDLE, f"{CANCEL}: {fault}", derived, None, None)

    def _purge(self, value: bytes | None, partition: int, offset: int, now_ms: int) -> PurgeRequest | Rejection:
        """Parse a purge; its other headers are ignored. It is due now, behind all that may be parked by now."""
        derived = derived_id(self.policy.topic, partition, offset)
        target = value.decode("utf-8", "replace") if value is not None else ""
        if not is_legal_topic(target):
            detail = f"{PURGE}: not a legal topic name: {shown(value)}"
            return Rejection(ErrorCode.BAD_TARGET, detail, derived, None, None)
        return PurgeRequest(now_ms, intern(target), derived)

    def unreadable(self, partition: int, offset: int, headers: Sequence[Header]) -> Rejection:
        """Reject a record with a header whose name is not UTF-8.

        The client library can neither decode such a name nor write it, so the record cannot be delivered unchanged.

        Args:
            partition: the record's partition in the intake.
            offset: its offset there.
            headers: the headers as far as they could be decoded.
        """
        found = dict(reversed(headers))
        message_id = self._id(found, found.get(CLOUDEVENTS_ID), partition, offset)
        return Rejection(
            ErrorCode.UNREADABLE_HEADERS,
            "a header's name is not UTF-8: the name is changed in this record, all else is unchanged",
            message_id if isinstance(message_id, bytes) else derived_id(self.policy.topic, partition, offset),
            None,
            self._targets.fixed,
        )

    def _id(
        self, found: dict[str, bytes | None], ce_id: bytes | None, partition: int, offset: int
    ) -> bytes | HeaderFault:
        """Return `tarry-id`, or the id of CloudEvents, or an id derived from topic, partition and offset."""
        if ID in found:
            value = found[ID]
            return parse_id(value) or HeaderFault(
                ErrorCode.BAD_ID, f"{ID} is not a UUID as 36 characters or 16 bytes: {shown(value)}"
            )
        own = None if ce_id is None else parse_cloudevents_id(ce_id)
        return own or derived_id(self.policy.topic, partition, offset)

    def _known_id(self, message_id: bytes | HeaderFault, partition: int, offset: int) -> bytes:
        """Return the id of a record; if its own is bad, the one that it would have without it."""
        if isinstance(message_id, HeaderFault):
            return derived_id(self.policy.topic, partition, offset)
        return message_id

    def _further_parts(
        self,
        found: dict[str, bytes | None],
        message_id: bytes | HeaderFault,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | None,
        place: tuple[int, int],
        timestamp_ms: int,
        now_ms: int,
        is_schedule: bool,
    ) -> tuple[int | HeaderFault, Naming | HeaderFault | None, int | HeaderFault]:
        """Return the due time before rounding, the name, and the expiry of a message that may have more headers."""
        partition, offset = place
        expires_ms = read_epoch_ms_or_rfc3339(EXPIRES_AT, found[EXPIRES_AT]) if EXPIRES_AT in found else NO_EXPIRY_MS
        if is_schedule:
            due_ms, naming = self._planned(found, message_id, key, value, headers, partition, offset, timestamp_ms)
            return due_ms, naming, expires_ms
        due_ms = self._due_ms(found, timestamp_ms, now_ms)
        if WINDOW_MS in found and not isinstance(due_ms, HeaderFault) and self.policy.fixed_delay_ms is None:
            shift_ms = shift_of(found, self._known_id(message_id, partition, offset))
            due_ms = shift_ms if isinstance(shift_ms, HeaderFault) else due_ms + shift_ms
        return due_ms, self._naming(found, key, partition), expires_ms

    def _due_ms(self, found: dict[str, bytes | None], timestamp_ms: int, now_ms: int) -> int | HeaderFault:
        """Return the due time of the record, before rounding and without its window."""
        fixed_delay_ms = self.policy.fixed_delay_ms
        if fixed_delay_ms is not None:
            return counted(now_ms if is_ahead(timestamp_ms, now_ms) else timestamp_ms, fixed_delay_ms)
        if self._dialect is not None:
            return self._dialect.due_ms(found, timestamp_ms)
        if DELAY_MS in found:
            if DELIVER_AT in found:
                return HeaderFault(ErrorCode.TWO_DELAYS, f"{DELAY_MS} and {DELIVER_AT} exclude each other")
            return read_delay(DELAY_MS, found[DELAY_MS], timestamp_ms)
        if DELIVER_AT in found:
            return read_epoch_ms_or_rfc3339(DELIVER_AT, found[DELIVER_AT])
        return HeaderFault(
            ErrorCode.NO_DELAY, f"needs {DELAY_MS} or {DELIVER_AT}; or {EVERY} or {CRON}, to repeat the message"
        )

    def _misplaced(
        self, due_ms: int, timestamp_ms: int | None, rounded_ms: int, now_ms: int, expires_ms: int
    ) -> HeaderFault:
        """Return the fault of a valid due time that is too far ahead, or later than the expiry.

        Args:
            due_ms: the due time, before rounding.
            timestamp_ms: the record's timestamp; None for a schedule, whose times are not bounded.
            rounded_ms: the due time.
            now_ms: wall time.
            expires_ms: the expiry.
        """
        if timestamp_ms is None and rounded_ms > MAX_EPOCH_MS:
            return HeaderFault(ErrorCode.BAD_SCHEDULE, "its next time is after the year 9999")
        if timestamp_ms is not None and (due_ms - timestamp_ms > self._max_delay_ms or rounded_ms > MAX_EPOCH_MS):
            return HeaderFault(
                ErrorCode.BEYOND_MAX_DELAY,
                f"due {instant(due_ms)}, more than {format_duration(self._max_delay_ms)} after the record's"
                f" timestamp ({instant(timestamp_ms)})",
            )
        horizon_ms = self.policy.horizon_ms
        if timestamp_ms is not None and horizon_ms is not None and rounded_ms - now_ms > horizon_ms:
            return HeaderFault(
                ErrorCode.BEYOND_HORIZON,
                f"due {instant(due_ms)}, more than {format_duration(horizon_ms)} ahead when it was read",
            )
        detail = f"{EXPIRES_AT} is {instant(expires_ms)}, before it is due ({instant(rounded_ms)})"
        return HeaderFault(ErrorCode.EXPIRED, detail)

    def _rejection(
        self,
        fault: HeaderFault,
        message_id: bytes,
        due_ms: int | HeaderFault,
        target: str | HeaderFault,
        naming: Naming | HeaderFault | None,
    ) -> Rejection:
        """Return a rejection with the parts that are known."""
        known_due_ms = None
        if not isinstance(due_ms, HeaderFault):
            rounded_ms = -(-due_ms // self._tick_ms) * self._tick_ms
            # A time past the year 9999 is not reported: it is not a plausible due time, and may exceed 64 bits.
            known_due_ms = rounded_ms if rounded_ms <= MAX_EPOCH_MS else None
        known_target = None if isinstance(target, HeaderFault) else target
        name = naming.hash if isinstance(naming, Naming) else None
        planned = naming.planned if isinstance(naming, Naming) else None
        return Rejection(fault.code, fault.detail, message_id, known_due_ms, known_target, name, planned)


def _repeated(headers: Sequence[Header], of: frozenset[str]) -> set[str] | None:
    """Return the request headers that occur more than once; None if there are none."""
    counts = Counter([name for name, _ in headers])
    return {name for name in of if counts[name] > 1} or None


def _first_fault(repeated: set[str] | None, *parts: object) -> HeaderFault:
    """Return the fault that gives the error code: `parts` are in the order of the module's docstring."""
    if repeated is not None:
        name = next((one for one in (CANCEL, CANCEL_NAME, PURGE) if one in repeated), min(repeated))
        return HeaderFault(ErrorCode.REPEATED_HEADER, f"{name} occurs more than once")
    return next(part for part in parts if isinstance(part, HeaderFault))
