"""From a record in an intake to what is to be done with it.

A record is outside input: any bytes may stand in any header. Reading one gives a `Request`, or a `Rejection`
that says why it can never be delivered; it never raises, reads no clock and keeps no record.

Where several things are wrong, the first in this order names the error:

1. `repeated-header`: a request header stands twice. A record with `tarry-cancel` is a cancel, whose other
   headers are ignored, so there only `tarry-cancel` itself counts.
2. `bad-handle`: a cancel.
3. `bad-id`.
4. The time: `two-delays`, `no-delay`, then `bad-delay` or `negative-delay`, or `bad-time` or
   `looks-like-seconds`.
5. The target: `no-target`, `bad-target`, `internal-target`, `target-not-allowed`.
6. `bad-partition`.
7. What reads well but lies too far away: `beyond-max-delay`, then `beyond-horizon`.

A record whose headers cannot be read at all is `unreadable-headers`.

An intake with a fixed delay needs no headers. Its delay and target win: a `tarry-target`, `tarry-delay-ms` or
`tarry-deliver-at` there is taken off unread, even a wrong one (but not twice). `tarry-id` and
`tarry-partition` count as elsewhere.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from sys import intern
from typing import NamedTuple, final

from tarry.headers import (
    CANCEL,
    CLOUDEVENTS_ID,
    DELAY_MS,
    DELIVER_AT,
    ID,
    PARTITION,
    REQUEST_HEADERS,
    TAKEN_OFF,
    TARGET,
    ErrorCode,
    derived_id,
    is_legal_topic,
    owner_of_internal_topic,
    parse_cloudevents_id,
    parse_id,
)
from tarry.units import MAX_EPOCH_MS, format_duration, format_instant, parse_instant_ms

Header = tuple[str, bytes | None]

#: Numbers below it, read as milliseconds, lie before September 2001: they are seconds.
_LEAST_PLAUSIBLE_MS = 10**12
_MAX_PARTITION = 2**31 - 1
#: No number that means something has more digits; int() of many thousand is slow, then refused.
_MAX_DIGITS = 18
#: Verdicts kept, each for a name of at most 249 bytes.
_MAX_VERDICTS = 4_096
_MAX_VERDICT_BYTES = 249
_LONGEST_SHOWN = 60

_NEGATIVE = re.compile(rb"-[0-9]+")


@final
class Request(NamedTuple):
    """A message to be delivered later.

    Args:
        due_ms: when, milliseconds since the epoch, rounded up to the tick.
        target: the topic; the same `str` object for the same bytes, so that a million held messages share it.
        partition: the target's partition, or -1: by key.
        id: `tarry-id`, 36 ASCII characters in lower case.
        carries: whether it came with other headers, which travel on.
    """

    due_ms: int
    target: str
    partition: int
    id: bytes
    carries: bool


@final
class Rejection(NamedTuple):
    """Why a record can never be delivered, and what is known of it all the same.

    Args:
        code: the value of `tarry-error`.
        detail: one line for people, the value of `tarry-error-detail`.
        id: 36 ASCII characters; the one made from topic, partition and offset where the record's own is bad.
        due_ms: when it would have been due, rounded up to the tick, or None.
        target: where it would have gone, if that can be a topic's name, or None.
    """

    code: ErrorCode
    detail: str
    id: bytes
    due_ms: int | None
    target: str | None


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """What an intake accepts.

    Args:
        topic: the intake's topic.
        targets: globs over topic names; not used where the target is fixed.
        max_delay_ms: the longest a message may wait, from its record's timestamp.
        horizon_ms: the longest it may still wait when it is read, or None: as long as `max_delay_ms` allows.
        fixed_delay_ms: every record waits so long, or None: its headers say.
        fixed_target: every record goes there; set together with `fixed_delay_ms`.
        tick_ms: due times are rounded up to its multiples, at least 1.
        intakes: the topics of all intakes: what belongs to them (`I.results` and so on) is no target.
    """

    topic: str
    targets: tuple[str, ...] = ("*",)
    max_delay_ms: int = 30 * 86_400_000
    horizon_ms: int | None = None
    fixed_delay_ms: int | None = None
    fixed_target: str | None = None
    tick_ms: int = 1
    intakes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.tick_ms < 1:
            raise ValueError(f"tick_ms is at least 1: {self.tick_ms}")
        if (self.fixed_delay_ms is None) != (self.fixed_target is None):
            raise ValueError("a fixed delay and a fixed target come together")


@final
class _Fault(NamedTuple):
    """What is wrong with one part of a record."""

    code: ErrorCode
    detail: str


class RequestReader:
    """Reads the records of one intake.

    One thread only: what it says about target names is cached.

    Args:
        policy: what the intake accepts.
    """

    __slots__ = ("_fixed_target", "_max_delay_ms", "_policy", "_tick_ms", "_verdicts")

    def __init__(self, policy: IntakePolicy) -> None:
        self._policy = policy
        self._tick_ms = policy.tick_ms
        self._max_delay_ms = policy.max_delay_ms if policy.fixed_delay_ms is None else policy.fixed_delay_ms
        self._fixed_target = None if policy.fixed_target is None else intern(policy.fixed_target)
        self._verdicts: dict[bytes, str | _Fault] = {}

    def read(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        headers: Sequence[Header] | None,
        now_ms: int,
    ) -> Request | Rejection:
        """Decide about one record.

        Args:
            partition: the record's partition in the intake.
            offset: its offset there.
            timestamp_ms: its timestamp, milliseconds since the epoch; negative where it has none.
            headers: as confluent-kafka gives them.
            now_ms: the time by the service's clock; only the horizon is measured from it.

        Returns:
            What to deliver, or why it can never be delivered.
        """
        found: dict[str, bytes | None] = dict(headers) if headers else {}
        repeated: set[str] | None = None
        if headers and len(found) != len(headers):
            repeated = _repeated(headers)
            found = dict(reversed(headers))  # the first of each name counts
        carries = not found.keys() <= TAKEN_OFF
        ce_id = found.get(CLOUDEVENTS_ID) if carries else None

        # Every part is read, also behind a fault: a rejection tells what is known.
        message_id = self._id(found, ce_id, partition, offset)
        due_ms = self._due_ms(found, timestamp_ms)
        target = self._target(found)
        to_partition = _partition(found[PARTITION]) if PARTITION in found else -1

        if (
            repeated is not None
            or CANCEL in found
            or type(message_id) is _Fault
            or type(due_ms) is _Fault
            or type(target) is _Fault
            or type(to_partition) is _Fault
        ):
            fault = _first_fault(repeated, CANCEL in found, message_id, due_ms, target, to_partition)
            if isinstance(message_id, _Fault):
                message_id = derived_id(self._policy.topic, partition, offset)
            return self._rejection(fault, message_id, due_ms, target)

        # Rounded up, so that a due time between two ticks is never served at the earlier one.
        tick_ms = self._tick_ms
        rounded_ms = due_ms if tick_ms == 1 else -(-due_ms // tick_ms) * tick_ms
        if (
            due_ms - timestamp_ms > self._max_delay_ms
            or rounded_ms > MAX_EPOCH_MS
            or (self._policy.horizon_ms is not None and rounded_ms - now_ms > self._policy.horizon_ms)
        ):
            fault = self._too_far(due_ms, timestamp_ms, rounded_ms)
            return self._rejection(fault, message_id, due_ms, target)
        return Request(rounded_ms, target, to_partition, message_id, carries)

    def unreadable(self, partition: int, offset: int) -> Rejection:
        """Decide about a record whose headers the client library could not give.

        confluent-kafka raises SystemError where a header's *name* is not UTF-8. A second call then gives a list
        with a hole in it that must not be touched, so nothing of the headers is known, nor can they travel on.
        """
        return Rejection(
            ErrorCode.UNREADABLE_HEADERS,
            "a header's name is not UTF-8: the headers are lost, key and value are here",
            derived_id(self._policy.topic, partition, offset),
            None,
            self._fixed_target,
        )

    def _id(self, found: dict[str, bytes | None], ce_id: bytes | None, partition: int, offset: int) -> bytes | _Fault:
        """The message's own id, or CloudEvents', or one made from its place."""
        if ID in found:
            value = found[ID]
            return parse_id(value) or _Fault(
                ErrorCode.BAD_ID, f"{ID} is not a UUID as 36 characters or 16 bytes: {_shown(value)}"
            )
        own = None if ce_id is None else parse_cloudevents_id(ce_id)
        return own or derived_id(self._policy.topic, partition, offset)

    def _due_ms(self, found: dict[str, bytes | None], timestamp_ms: int) -> int | _Fault:
        """When the record is due, before rounding."""
        fixed_delay_ms = self._policy.fixed_delay_ms
        if fixed_delay_ms is not None:
            return _counted(timestamp_ms, fixed_delay_ms)
        if DELAY_MS in found:
            if DELIVER_AT in found:
                return _Fault(ErrorCode.TWO_DELAYS, f"{DELAY_MS} and {DELIVER_AT} exclude each other")
            value = found[DELAY_MS]
            if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS:
                return _counted(timestamp_ms, int(value))
            return _delay_fault(value)
        if DELIVER_AT in found:
            return _deliver_at(found[DELIVER_AT])
        return _Fault(ErrorCode.NO_DELAY, f"needs {DELAY_MS} or {DELIVER_AT}")

    def _target(self, found: dict[str, bytes | None]) -> str | _Fault:
        """Where the record goes."""
        if self._fixed_target is not None:
            return self._fixed_target
        if TARGET not in found:
            return _Fault(ErrorCode.NO_TARGET, f"needs {TARGET}")
        value = found[TARGET]
        if value is None:
            return _Fault(ErrorCode.BAD_TARGET, f"{TARGET} is null")
        verdict = self._verdicts.get(value)
        if verdict is None:
            verdict = self._judge(value)
            if len(value) <= _MAX_VERDICT_BYTES:
                if len(self._verdicts) >= _MAX_VERDICTS:
                    self._verdicts.clear()
                self._verdicts[value] = verdict
        return verdict

    def _judge(self, value: bytes) -> str | _Fault:
        """Say whether a name may be a target."""
        name = value.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return _Fault(ErrorCode.BAD_TARGET, f"not a legal topic name: {_shown(value)}")
        if name.startswith("__"):
            return _Fault(ErrorCode.INTERNAL_TARGET, f"Kafka's own topics are no targets: {name}")
        owner = owner_of_internal_topic(name)
        if owner is not None and (owner == self._policy.topic or owner in self._policy.intakes):
            return _Fault(ErrorCode.INTERNAL_TARGET, f"a topic of intake {owner} is no target: {name}")
        if not any(fnmatchcase(name, glob) for glob in self._policy.targets):
            return _Fault(ErrorCode.TARGET_NOT_ALLOWED, f"not among the targets of {self._policy.topic}: {name}")
        return intern(name)

    def _too_far(self, due_ms: int, timestamp_ms: int, rounded_ms: int) -> _Fault:
        """Say why a message that reads well can't wait so long."""
        if due_ms - timestamp_ms > self._max_delay_ms or rounded_ms > MAX_EPOCH_MS:
            return _Fault(
                ErrorCode.BEYOND_MAX_DELAY,
                f"due {_instant(due_ms)}, more than {format_duration(self._max_delay_ms)} after the record's"
                f" timestamp ({_instant(timestamp_ms)})",
            )
        horizon_ms = self._policy.horizon_ms or 0
        return _Fault(
            ErrorCode.BEYOND_HORIZON,
            f"due {_instant(due_ms)}, more than {format_duration(horizon_ms)} ahead when it was read",
        )

    def _rejection(self, fault: _Fault, message_id: bytes, due_ms: int | _Fault, target: str | _Fault) -> Rejection:
        """Put together what is known."""
        known_due_ms = None
        if not isinstance(due_ms, _Fault):
            rounded_ms = -(-due_ms // self._tick_ms) * self._tick_ms
            # Past the year 9999 it is nobody's due time, and may be no 64-bit number: not worth telling.
            known_due_ms = rounded_ms if rounded_ms <= MAX_EPOCH_MS else None
        known_target = None if isinstance(target, _Fault) else target
        return Rejection(fault.code, fault.detail, message_id, known_due_ms, known_target)


def _repeated(headers: Sequence[Header]) -> set[str] | None:
    """The request headers that stand more than once."""
    counts = Counter(name for name, _ in headers)
    return {name for name in REQUEST_HEADERS if counts[name] > 1} or None


def _first_fault(repeated: set[str] | None, is_cancel: bool, *parts: object) -> _Fault:
    """The fault that names the error: the module's order is the order of `parts`."""
    if repeated is not None and (not is_cancel or CANCEL in repeated):
        name = CANCEL if is_cancel else min(repeated)
        return _Fault(ErrorCode.REPEATED_HEADER, f"{name} stands more than once")
    if is_cancel:
        return _Fault(ErrorCode.BAD_HANDLE, f"{CANCEL}: cancels are not served by this version")
    return next(part for part in parts if isinstance(part, _Fault))


def _counted(timestamp_ms: int, delay_ms: int) -> int | _Fault:
    """A due time by a delay from the record's timestamp."""
    if timestamp_ms < 0:
        return _Fault(ErrorCode.BAD_DELAY, "the record has no timestamp to count a delay from")
    return timestamp_ms + delay_ms


def _delay_fault(value: bytes | None) -> _Fault:
    """Say what is wrong with a `tarry-delay-ms` that isn't a short row of digits."""
    if value is not None and value.isdigit():
        return _Fault(ErrorCode.BEYOND_MAX_DELAY, f"{DELAY_MS} is longer than any delay: {_shown(value)}")
    if value is not None and _NEGATIVE.fullmatch(value):
        return _Fault(ErrorCode.NEGATIVE_DELAY, f"{DELAY_MS} is negative: {_shown(value)}")
    return _Fault(ErrorCode.BAD_DELAY, f"{DELAY_MS} is not a decimal integer: {_shown(value)}")


def _deliver_at(value: bytes | None) -> int | _Fault:
    """A due time by `tarry-deliver-at`."""
    if value is not None and value.isdigit():
        due_ms = int(value) if len(value) <= _MAX_DIGITS else MAX_EPOCH_MS + 1
        if due_ms < _LEAST_PLAUSIBLE_MS:
            return _Fault(
                ErrorCode.LOOKS_LIKE_SECONDS,
                f"{DELIVER_AT} is in milliseconds, and this would lie before 2001-09-09: {_shown(value)}",
            )
        if due_ms > MAX_EPOCH_MS:
            return _Fault(
                ErrorCode.BAD_TIME,
                f"{DELIVER_AT} is in milliseconds, and this would lie after the year 9999: {_shown(value)}",
            )
        return due_ms
    try:
        due_ms = -1 if value is None else parse_instant_ms(value.decode("ascii"))
    except ValueError:
        return _Fault(
            ErrorCode.BAD_TIME,
            f"{DELIVER_AT} is not epoch milliseconds or an RFC 3339 time with its offset: {_shown(value)}",
        )
    if due_ms < 0 or due_ms > MAX_EPOCH_MS:
        return _Fault(ErrorCode.BAD_TIME, f"{DELIVER_AT} is not between 1970 and 9999: {_shown(value)}")
    return due_ms


def _partition(value: bytes | None) -> int | _Fault:
    """The target's partition; whether it exists is for the service to find out."""
    if value is not None and value.isdigit() and len(value) <= _MAX_DIGITS:
        partition = int(value)
        if partition <= _MAX_PARTITION:
            return partition
    return _Fault(ErrorCode.BAD_PARTITION, f"{PARTITION} is not a partition's number: {_shown(value)}")


def _instant(epoch_ms: int) -> str:
    """An instant for a detail, also where it has no RFC 3339 text."""
    return format_instant(epoch_ms) if 0 <= epoch_ms <= MAX_EPOCH_MS else f"at {epoch_ms} ms"


def _shown(value: bytes | None) -> str:
    """A header's value for a detail: on one line, escaped, and cut where it is long."""
    if value is None:
        return "null"
    text = value[:_LONGEST_SHOWN].decode("utf-8", "backslashreplace")
    return repr(text) + ("…" if len(value) > _LONGEST_SHOWN else "")
