"""Reads files of messages: one JSON object per line, with the fields of `tarry send`.

The fields are `target`, `value`, `key`, `delay` or `at`, `id`, `partition`, `headers`, `name`, `if`, `expires_at` or
`expires_in`, and `window`; of a schedule also `every` or `cron`, and `zone`. `partition` is a number, `headers` is an
object of strings, and the others are strings in the format of the command's options. A null value, key or header is a
null in Kafka; a missing value is empty, and a missing key is null.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tarry.client import DelayedMessage, RepeatedMessage
from tarry.clock import Clock, SystemClock
from tarry.errors import UsageError
from tarry.units import MAX_EPOCH_MS, parse_duration_ms, parse_instant_ms, shown

if TYPE_CHECKING:
    from tarry.client.receipt import OnlyIf

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Read = TypeVar("_Read")
_FIELDS = (
    *("target", "value", "key", "delay", "at", "id", "partition", "headers", "name", "if"),
    *("expires_at", "expires_in", "window", "every", "cron", "zone"),
)


def delay_of(text: str) -> timedelta:
    """Parse a delay, such as `5s`.

    Raises:
        ValueError: the text is not a duration, or the delay is longer than the time up to the year 9999.
    """
    delay_ms = parse_duration_ms(text)
    if delay_ms > MAX_EPOCH_MS:
        raise ValueError("a delay beyond the year 9999")
    return timedelta(milliseconds=delay_ms)


def read_time(text: str) -> datetime:
    """Parse an RFC 3339 time with an offset.

    Raises:
        ValueError: the text is not such a time, or has no offset.
    """
    epoch_ms = parse_instant_ms(text)
    try:
        return _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError as error:
        raise ValueError("a time outside the years 1 to 9999") from error


def time_in(text: str, now_ms: int) -> datetime:
    """Return the time that is a duration from now.

    Raises:
        ValueError: the text is not a duration, or that time is after the year 9999.
    """
    epoch_ms = now_ms + parse_duration_ms(text)
    if epoch_ms > MAX_EPOCH_MS:
        raise ValueError("a time beyond the year 9999")
    return _EPOCH + timedelta(milliseconds=epoch_ms)


class MessageFile:
    """The messages of a file. It can be iterated only once.

    Args:
        path: the file.
        on_progress: called for each line with its length in bytes.
        clock: wall time, from which `expires_in` counts when its line is read.
    """

    def __init__(self, path: Path, on_progress: Callable[[int], None], clock: Clock | None = None) -> None:
        self._path = path
        self._on_progress = on_progress
        self._clock = clock or SystemClock()
        self._line = 0

    @property
    def place(self) -> str:
        """The position of the line that was read last, as `file:number`."""
        return f"{self._path}:{self._line}"

    def __iter__(self) -> Iterator[DelayedMessage | RepeatedMessage]:
        """Read the file line by line, and skip empty lines.

        Raises:
            UsageError: a line is not a message, or the file cannot be read.
        """
        try:
            with self._path.open("rb") as lines:
                for self._line, line in enumerate(lines, start=1):
                    self._on_progress(len(line))
                    if line.strip():
                        yield self._message(line)
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror}") from error

    def _message(self, line: bytes) -> DelayedMessage | RepeatedMessage:
        try:
            return to_message(json.loads(line), self._clock.now_ms())
        except json.JSONDecodeError as error:
            raise UsageError(f"{self.place}: not JSON: {error}") from error
        except RecursionError as error:
            raise UsageError(f"{self.place}: nested too deeply") from error
        except ValueError as error:  # UnicodeDecodeError is among them
            raise UsageError(f"{self.place}: {error}") from error


def to_message(fields: object, now_ms: int) -> DelayedMessage | RepeatedMessage:
    """Turn the JSON object of a line into a message, or a schedule.

    Args:
        fields: the JSON object.
        now_ms: the current time, from which `expires_in` counts.

    Raises:
        ValueError: the object is not a message; the text says why, in one line.
    """
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a value from outside, not a mistaken call
    unknown = next((name for name in fields if name not in _FIELDS), None)
    if unknown is not None:
        raise ValueError(f"unknown field {unknown!r} (known: {', '.join(_FIELDS)})")
    target = _text(fields, "target", None)
    if target is None:
        raise ValueError("target: missing")
    if (only_if := _text(fields, "if", None)) not in (None, "absent", "present"):
        raise ValueError(f"if: must be absent or present: {shown(str(only_if))}")
    if only_if is not None and fields.get("name") is None:
        raise ValueError("if: needs name")
    if fields.get("at") is not None and fields.get("cron") is not None:
        raise ValueError("at: excludes cron: the rule says when it begins")
    if not {"every", "cron"}.isdisjoint(fields):
        return _repeated(target, fields, now_ms)
    delay, at = _text(fields, "delay", None), _text(fields, "at", None)
    if "zone" in fields:
        raise ValueError("zone: needs cron")
    if (delay is None) == (at is None):
        raise ValueError("needs either delay or at; or every or cron, to repeat the message")
    return DelayedMessage(
        target,
        _text(fields, "value", ""),
        _text(fields, "key", None),
        None if delay is None else _named("delay", delay_of, delay),
        None if at is None else _named("at", read_time, at),
        _text(fields, "id", None),
        _headers(fields),
        fields.get("partition"),
        _text(fields, "name", None),
        cast("OnlyIf | None", _text(fields, "if", None)),
        _expiry(fields, now_ms),
        None if (window := _text(fields, "window", None)) is None else _named("window", delay_of, window),
    )


def _repeated(target: str, fields: dict[str, Any], now_ms: int) -> RepeatedMessage:
    """Return the schedule of a line; the client checks whether it can be one."""
    if "delay" in fields:
        raise ValueError("delay: excludes every and cron")
    key, name = _text(fields, "key", None), _text(fields, "name", None)
    if key is None or name is None:
        raise ValueError("every and cron need key and name")
    every, at, window = (_text(fields, field, None) for field in ("every", "at", "window"))
    return RepeatedMessage(
        target,
        _text(fields, "value", ""),
        key,
        name,
        None if every is None else _named("every", delay_of, every),
        _text(fields, "cron", None),
        _text(fields, "zone", None),
        None if at is None else _named("at", read_time, at),
        cast("OnlyIf | None", _text(fields, "if", None)),
        _text(fields, "id", None),
        _headers(fields),
        fields.get("partition"),
        _expiry(fields, now_ms),
        None if window is None else _named("window", delay_of, window),
    )


def _expiry(fields: dict[str, Any], now_ms: int) -> datetime | None:
    at, after = _text(fields, "expires_at", None), _text(fields, "expires_in", None)
    if at is not None and after is not None:
        raise ValueError("give either expires_at or expires_in, not both")
    if after is not None:
        return _named("expires_in", lambda text: time_in(text, now_ms), after)
    return None if at is None else _named("expires_at", read_time, at)


def _text(fields: dict[str, Any], name: str, default: str | None) -> str | None:
    value = fields.get(name, default)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: should be a string")
    return value


def _headers(fields: dict[str, Any]) -> dict[str, str | None] | None:
    headers = fields.get("headers")
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise ValueError("headers: should be an object of strings")  # noqa: TRY004 - as above
    return {name: _text(headers, name, None) for name in headers}


def _named(name: str, read: Callable[[str], _Read], text: str) -> _Read:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
