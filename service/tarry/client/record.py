"""Turns messages and cancels into intake records: the client's half of the header convention; pure.

It refuses messages that could never be delivered, as far as that is known without the service's configuration.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

from tarry.client.receipt import DelayedMessage, MessageHeaders, RepeatedMessage
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import (
    CANCEL,
    CANCEL_NAME,
    CRON,
    DELAY_MS,
    DELIVER_AT,
    EVERY,
    EXPIRES_AT,
    ID,
    IF,
    NAME,
    PARTITION,
    REQUEST_HEADERS,
    TARGET,
    WINDOW_MS,
    ZONE,
    is_legal_topic,
    name_fault,
    parse_id,
)
from tarry.jitter import jitter_ms
from tarry.units import MAX_EPOCH_MS, format_duration, format_instant, shown

_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The service refuses smaller numbers, because they are probably seconds.
_LEAST_EPOCH_MS = 10**12
_MAX_PARTITION = 2**31 - 1
_LEAST_EVERY = timedelta(seconds=1)
_LONGEST_EVERY = timedelta(days=18_300)
_FIELDS_OF_CRON = 5


class IntakeRecord(NamedTuple):
    """A record for an intake, ready to be produced.

    Args:
        key: the message's key.
        value: the message's value.
        headers: the application's headers, then the request headers.
        id: the `tarry-id`, 36 characters.
        delay_ms: the delay after the record's timestamp; None: `deliver_at_ms` is set.
        deliver_at_ms: the due time, epoch milliseconds; None: `delay_ms` is set. A schedule has neither.
        jitter_ms: how much later the message is due, because of its window and its id.
    """

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    id: str
    delay_ms: int | None
    deliver_at_ms: int | None
    jitter_ms: int = 0

    def due_ms(self, timestamp_ms: int, tick_ms: int) -> int:
        """Return the due time that the service computes from the record's timestamp, rounded up to the tick."""
        due_ms = timestamp_ms + self.delay_ms if self.delay_ms is not None else self.deliver_at_ms or 0
        due_ms += self.jitter_ms
        return -(-due_ms // tick_ms) * tick_ms


def to_record(message: DelayedMessage, now_ms: int) -> IntakeRecord:
    """Turn a message into an intake record.

    Args:
        message: the message to send.
        now_ms: the current time, to check that the due time is not after the year 9999 or after the expiry.

    Raises:
        HeaderError: the delay is negative, the time is naive or out of range, both or neither are given, the id is not
            a UUID, the target is not a legal topic name, an application header has the name of a request header, the
            name is none or has no key, the message expires before it is due, the window is empty, or a value has the
            wrong type.
    """
    if not isinstance(message, DelayedMessage):
        raise HeaderError(f"message: not a DelayedMessage: {type(message).__name__}")
    delay_ms, deliver_at_ms = _delay_ms(message.delay), _instant_ms(message.at, "at")
    if delay_ms is not None and deliver_at_ms is not None:
        raise HeaderError("give either delay or at, not both")
    message_id = _id(message.id)
    headers = _addressed(message, message_id)
    if delay_ms is not None:
        due_ms = now_ms + delay_ms
        headers.append((DELAY_MS, b"%d" % delay_ms))
    elif deliver_at_ms is not None:
        due_ms = deliver_at_ms
        headers.append((DELIVER_AT, b"%d" % deliver_at_ms))
    else:
        raise HeaderError("needs a due time: delay=timedelta(...) or at=datetime(...)")
    later_ms = 0
    if message.window is not None:
        window_ms = _window_ms(message.window)
        headers.append((WINDOW_MS, b"%d" % window_ms))
        later_ms = jitter_ms(message_id.encode(), window_ms)
        due_ms += later_ms
    if due_ms > MAX_EPOCH_MS:
        raise HeaderError(f"due after the year 9999: {message.delay or message.at}")
    headers += _expiry(message.expires_at, due_ms)
    return IntakeRecord(
        to_bytes(message.key, "key"),
        to_bytes(message.value, "value"),
        headers,
        message_id,
        delay_ms,
        deliver_at_ms,
        later_ms,
    )


def to_schedule(message: RepeatedMessage, now_ms: int) -> IntakeRecord:
    """Turn a message that is repeated into an intake record.

    The service checks the rule itself: only it knows the times of a cron rule, and the zones. If they are wrong, the
    record becomes a dead letter (`bad-schedule`).

    Args:
        message: the message to repeat.
        now_ms: the current time, to check that the schedule does not expire before it begins.

    Raises:
        HeaderError: neither or both of `every` and `cron` are given, the interval is shorter than a second, the cron
            rule does not have five fields, `zone` stands without `cron` or `first` without `every`, the key or the name
            is missing, or an argument is wrong as in `to_record`.
    """
    if not isinstance(message, RepeatedMessage):
        raise HeaderError(f"message: not a RepeatedMessage: {type(message).__name__}")
    if message.name is None:
        raise HeaderError("name: a schedule needs one, by which it can be replaced and cancelled")
    rule = _rule(message)
    first_ms = _instant_ms(message.first, "first")
    if first_ms is not None:
        if message.every is None:
            raise HeaderError("first: needs every: a cron rule says by itself when it begins")
        if first_ms > MAX_EPOCH_MS:
            raise HeaderError(f"first: after the year 9999: {message.first}")
        rule.append((DELIVER_AT, b"%d" % first_ms))
    message_id = _id(message.id)
    begins_ms = max(now_ms, first_ms or 0)
    headers = _addressed(message, message_id) + rule
    if message.window is not None:
        window_ms = _window_ms(message.window)
        headers.append((WINDOW_MS, b"%d" % window_ms))
        begins_ms += jitter_ms(message_id.encode(), window_ms) if first_ms is not None else 0
    headers += _expiry(message.expires_at, begins_ms)
    key, value = to_bytes(message.key, "key"), to_bytes(message.value, "value")
    return IntakeRecord(key, value, headers, message_id, None, None)


def to_cancel(handle: Handle) -> IntakeRecord:
    """Return the record that cancels a message; it must go to the handle's partition."""
    return IntakeRecord(None, None, [(CANCEL, str(handle).encode())], handle.id, None, handle.due_ms)


def to_name_cancel(key: str | bytes, name: str | bytes) -> IntakeRecord:
    """Return the record that cancels the message that waits under a name; its key decides the partition.

    Raises:
        HeaderError: the name is none, or the key is null.
    """
    named = to_bytes(key, "key")
    if named is None:
        raise HeaderError("key: must not be null, because a name needs a key")
    return IntakeRecord(named, None, [(CANCEL_NAME, _name(name))], "", None, None)


def _addressed(message: DelayedMessage | RepeatedMessage, message_id: str) -> list[tuple[str, bytes | None]]:
    """Return the headers that say what is sent where: the application's own, target, id and name."""
    headers = _own_headers(message.headers)
    if message.partition is not None:
        headers.append((PARTITION, b"%d" % to_partition(message.partition)))
    headers += ((TARGET, to_topic(message.target, "target").encode()), (ID, message_id.encode()))
    return headers + _naming(message)


def _rule(message: RepeatedMessage) -> list[tuple[str, bytes | None]]:
    """Return the headers of a schedule's rule."""
    every, cron, zone = message.every, message.cron, message.zone
    if every is not None and cron is not None:
        raise HeaderError("give either every or cron, not both")
    if cron is not None:
        rule: list[tuple[str, bytes | None]] = [(CRON, _text_of_rule(cron, "cron"))]
        if len(cron.split()) != _FIELDS_OF_CRON:
            raise HeaderError(f"cron: needs five fields (minute, hour, day, month, weekday): {shown(cron)}")
        return rule if zone is None else [*rule, (ZONE, _text_of_rule(zone, "zone"))]
    if zone is not None:
        raise HeaderError("zone: needs cron: an interval has no zone")
    if every is None:
        raise HeaderError('needs a rule: every=timedelta(...) or cron="0 9 * * MON-FRI"')
    if not isinstance(every, timedelta):
        raise HeaderError(f"every: not a timedelta: {shown(str(every))}")
    if every < _LEAST_EVERY:
        raise HeaderError(f"every: must be a second or longer: {every}")
    if every % _MS:
        raise HeaderError(f"every: must be whole milliseconds: {every}")
    if every > _LONGEST_EVERY:
        raise HeaderError(f"every: must be 50 years (18300 days) or shorter: {every}")
    return [(EVERY, format_duration(every // _MS).encode())]


def _text_of_rule(text: object, what: str) -> bytes:
    if not isinstance(text, str) or not text.isascii():
        raise HeaderError(f"{what}: not ASCII text: {shown(str(text))}")
    return text.encode()


def _naming(message: DelayedMessage | RepeatedMessage) -> list[tuple[str, bytes | None]]:
    """Return the headers of a message's name; none if it has no name."""
    if message.only_if not in (None, "absent", "present"):
        raise HeaderError(f"only_if: must be absent or present: {shown(str(message.only_if))}")
    if message.name is None:
        if message.only_if is not None:
            raise HeaderError("only_if: needs a name")
        return []
    if message.key is None:
        raise HeaderError("name: needs a key, which must not be null")
    named: list[tuple[str, bytes | None]] = [(NAME, _name(message.name))]
    return named if message.only_if is None else [*named, (IF, message.only_if.encode())]


def _name(name: str | bytes) -> bytes:
    raw = to_bytes(name, "name")
    if fault := name_fault(raw):
        raise HeaderError(f"name: {fault}")
    return raw or b""


def _delay_ms(delay: timedelta | None) -> int | None:
    """Return whole milliseconds, rounded up so that the message is never early."""
    if delay is None:
        return None
    if not isinstance(delay, timedelta):
        raise HeaderError(f"delay: not a timedelta: {shown(str(delay))}")
    if delay < timedelta(0):
        raise HeaderError(f"delay: must not be negative: {delay}")
    # Not -(-delay // ms): the longest timedelta cannot be negated.
    return delay // _MS + (1 if delay % _MS else 0)


def _instant_ms(at: datetime | None, what: str) -> int | None:
    """Return milliseconds since the epoch, rounded up, as the service rounds."""
    if at is None:
        return None
    if not isinstance(at, datetime):
        raise HeaderError(f"{what}: not a datetime: {shown(str(at))}")
    if at.utcoffset() is None:
        raise HeaderError(f"{what}: needs a time zone, such as datetime.now(UTC): {at.isoformat()}")
    epoch_ms = -((_EPOCH - at) // _MS)
    if epoch_ms < _LEAST_EPOCH_MS:
        raise HeaderError(
            f"{what}: must be 2001-09-09 or later, because the service takes smaller numbers for seconds:"
            f" {at.isoformat()}"
        )
    return epoch_ms


def _window_ms(window: timedelta) -> int:
    """Return whole milliseconds, at least 1, rounded up."""
    if not isinstance(window, timedelta):
        raise HeaderError(f"window: not a timedelta: {shown(str(window))}")
    if window <= timedelta(0):
        raise HeaderError(f"window: must be longer than zero: {window}")
    return window // _MS + (1 if window % _MS else 0)


def _expiry(expires_at: datetime | None, due_ms: int) -> list[tuple[str, bytes | None]]:
    """Return the header of a message's expiry; none if it does not expire."""
    expires_ms = _instant_ms(expires_at, "expires_at")
    if expires_ms is None:
        return []
    if expires_ms > MAX_EPOCH_MS:
        raise HeaderError(f"expires_at: after the year 9999: {expires_at}")
    if expires_ms < due_ms:
        raise HeaderError(
            f"expires_at: {format_instant(expires_ms)} is before the message is due ({format_instant(due_ms)})"
        )
    return [(EXPIRES_AT, b"%d" % expires_ms)]


def _id(value: UUID | str | bytes | None) -> str:
    """Return the id as 36 characters in lower case; a random one for None."""
    if value is None:
        return str(uuid4())
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str | bytes):
        raise HeaderError(f"id: neither a UUID nor text nor bytes: {type(value).__name__}")
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
    parsed = parse_id(raw) if isinstance(value, bytes) or len(raw) == 36 else None
    if parsed is None:
        raise HeaderError(f"id: not a UUID: {shown(str(value))}")
    return parsed.decode()


def _own_headers(headers: MessageHeaders | None) -> list[tuple[str, bytes | None]]:
    """Return the application's headers as pairs."""
    pairs = to_headers(headers)
    for name, _ in pairs:
        if name in REQUEST_HEADERS:
            raise HeaderError(f"headers: {name} is a request header: use the other arguments")
    return pairs


def to_headers(headers: object) -> list[tuple[str, bytes | None]]:
    """Return headers as they are produced: pairs of a name and bytes.

    Args:
        headers: a mapping of names to values, a sequence of (name, value) pairs, or None. `to_bytes` converts the
            values.

    Raises:
        HeaderError: they have another type, or a name has a NUL, at which the client library would cut it: what is left
            may be a request header.
    """
    if headers is None:
        return []
    if not isinstance(headers, Mapping | Sequence) or isinstance(headers, str | bytes):
        raise HeaderError(f"headers: neither a mapping nor pairs: {type(headers).__name__}")
    pairs = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise HeaderError(f"headers: not a pair of a name and a value: {shown(repr(pair))}")
        name, value = pair
        if not isinstance(name, str):
            raise HeaderError(f"headers: a name is not text: {type(name).__name__}")
        if "\0" in name:
            raise HeaderError(f"headers: a name with a NUL: {shown(name)}")
        to_bytes(name, "headers")
        pairs.append((name, to_bytes(value, f"headers: {name}")))
    return pairs


def to_topic(name: object, what: str) -> str:
    """Check a topic name, and return it.

    Raises:
        HeaderError: it is not a legal topic name; the text begins with `what`.
    """
    if not isinstance(name, str):
        raise HeaderError(f"{what}: a topic name must be text: {type(name).__name__}")
    if not is_legal_topic(name):
        raise HeaderError(f"{what}: not a legal topic name: {shown(name)}")
    return name


def to_partition(number: object) -> int:
    """Check a partition number, and return it.

    Raises:
        HeaderError: it is not a number from 0 to 2,147,483,647.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MAX_PARTITION:
        raise HeaderError(f"partition: not a number from 0 to {_MAX_PARTITION}: {shown(repr(number))}")
    return number


def to_handle(handle: Handle | str, intake: str) -> Handle:
    """Parse a handle, and check that it belongs to an intake.

    A handle may come from an untrusted source, such as a web page. It must not decide which topic the client writes to.

    Raises:
        HeaderError: it is not a handle, it names another topic, or it is that of a schedule.
    """
    if not isinstance(handle, Handle | str):
        raise HeaderError(f"handle: neither a Handle nor text: {type(handle).__name__}")
    parsed = Handle.parse(str(handle))
    if parsed.topic != intake:
        raise HeaderError(f"handle: its message is in {parsed.topic}, but this producer's intake is {intake}: {parsed}")
    if not parsed.due_ms:
        raise HeaderError("handle: it is the handle of a schedule: call cancel_named(key, name) instead")
    return parsed


def to_bytes(value: object, what: str) -> bytes | None:
    """Return the bytes to produce: text as UTF-8, None as Kafka's null.

    Raises:
        HeaderError: it is neither text nor bytes nor None; the text begins with `what`.
    """
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise HeaderError(f"{what}: text that UTF-8 cannot encode") from error
    if value is None or isinstance(value, bytes):
        return value
    raise HeaderError(f"{what}: neither text nor bytes nor None: {type(value).__name__}")
