"""The bodies of requests that send: their fields, their bounds, and the messages that they describe."""

import base64
import binascii
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from tarry.api.problems import ProblemError
from tarry.client import DelayedMessage, RepeatedMessage
from tarry.headers import ErrorCode, is_legal_topic
from tarry.units import MAX_EPOCH_MS, parse_duration_ms, parse_instant_ms

LONGEST_WAIT_MS: Final = 30_000
MOST_HEADERS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _check_time(text: str) -> str:
    if not 0 <= parse_instant_ms(text) <= MAX_EPOCH_MS:
        raise ValueError("a time outside the years 1970 to 9999")
    return text


def _check_duration(text: str) -> str:
    if parse_duration_ms(text) > MAX_EPOCH_MS:
        raise ValueError("a duration beyond the year 9999")
    return text


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    return text


def _check_topic(name: str) -> str:
    if not is_legal_topic(name):
        raise ValueError("not a legal topic name")
    return name


def check_text(text: str) -> str:
    """Refuse half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("text that UTF-8 cannot encode") from None
    return text


Topic = Annotated[str, StringConstraints(min_length=1, max_length=249), AfterValidator(_check_topic)]
Time = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_check_time),
    Field(examples=["2030-01-31T12:00:00Z"], description="RFC 3339 with an offset."),
]
Duration = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_check_duration),
    Field(examples=["15m"], description="Such as 250ms, 5s, 1h30m or 30d."),
]
Text = Annotated[str, AfterValidator(check_text)]
Base64 = Annotated[str, AfterValidator(_check_base64)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(check_text)]
HeaderName = Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(check_text)]


class Content(BaseModel):
    """What is sent, to where and when: the fields that all bodies share."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    target: Topic = Field(description="The topic to deliver to.")
    value: Text | None = Field(
        default="", description="The payload as text, which is sent as UTF-8; null is Kafka's null. Default: empty."
    )
    value_base64: Base64 | None = Field(default=None, description="The payload as bytes, in place of `value`.")
    headers: dict[HeaderName, Text | None] = Field(
        default_factory=dict, max_length=MOST_HEADERS, description="Headers that are delivered unchanged."
    )
    headers_base64: dict[HeaderName, Base64] = Field(
        default_factory=dict, max_length=MOST_HEADERS, description="Headers whose values are bytes."
    )
    at: Time | None = Field(default=None, description="When it is due. Give either `at` or `delay`.")
    delay: Duration | None = Field(default=None, description="How long after `sent_at`, or after now, it is due.")
    sent_at: Time | None = Field(
        default=None,
        description="With `delay`: since when it counts, so that a request that is repeated means the same.",
    )
    only_if: Literal["absent", "present"] | None = Field(
        default=None, alias="if", description="Send only if no message of this name waits, or only if one does."
    )
    expires_at: Time | None = Field(default=None, description="The latest time of a delivery.")
    window: Duration | None = Field(default=None, description="It is due later by a part of this window.")
    partition: int | None = Field(default=None, ge=0, le=2**31 - 1, strict=True, description="Of the target.")
    every: Duration | None = Field(default=None, description="Repeat it at this interval: a schedule.")
    cron: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="Repeat it at the times of this rule: a schedule.", examples=["0 9 * * MON-FRI"]
    )
    zone: Annotated[str, StringConstraints(max_length=200)] | None = Field(
        default=None, description="The zone of `cron`. Default: UTC."
    )
    first: Time | None = Field(default=None, description="With `every`: the time from which it counts.")
    id: UUID | None = Field(default=None, description="The message's id. Default: a random one.")

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        given = self.model_fields_set
        if "value" in given and "value_base64" in given:
            raise ValueError("give either value or value_base64")
        if self.sent_at is not None and self.delay is None:
            raise ValueError("sent_at needs delay")
        if self.headers_base64.keys() & self.headers.keys():
            raise ValueError("a header is in headers and in headers_base64")
        return self

    @property
    def is_schedule(self) -> bool:
        """Whether it is repeated."""
        return self.every is not None or self.cron is not None

    def message(self, key: bytes | None, name: str | None, id_: UUID) -> DelayedMessage | RepeatedMessage:
        """Return what the client sends.

        Raises:
            ProblemError: it has two times, or none, or fields that do not go together.
        """
        payload: str | bytes | None = self.value
        if self.value_base64 is not None:
            payload = base64.b64decode(self.value_base64)
        headers: list[tuple[str, str | bytes | None]] = [*self.headers.items()]
        headers += [(header, base64.b64decode(text)) for header, text in self.headers_base64.items()]
        expires_at = None if self.expires_at is None else _time(self.expires_at)
        window = None if self.window is None else _length(self.window)
        if self.is_schedule:
            self._check_schedule()
            if key is None or name is None:
                raise _fault("a schedule needs a key and a name", ErrorCode.BAD_NAME if key else ErrorCode.NULL_KEY)
            return RepeatedMessage(
                self.target,
                payload,
                key,
                name,
                None if self.every is None else _length(self.every),
                self.cron,
                self.zone,
                None if self.first is None else _time(self.first),
                self.only_if,
                id_,
                headers,
                self.partition,
                expires_at,
                window,
            )
        if self.zone is not None or self.first is not None:
            raise _fault("zone and first need a schedule: every or cron", ErrorCode.BAD_SCHEDULE)
        at, delay = self._due()
        return DelayedMessage(
            self.target, payload, key, delay, at, id_, headers, self.partition, name, self.only_if, expires_at, window
        )

    def _check_schedule(self) -> None:
        if self.at is not None or self.delay is not None:
            raise _fault(
                "at and delay exclude every and cron; with every, `first` says from when", ErrorCode.TWO_DELAYS
            )

    def _due(self) -> tuple[datetime | None, timedelta | None]:
        if self.at is not None and self.delay is not None:
            raise _fault("give either at or delay, not both", ErrorCode.TWO_DELAYS)
        if self.at is not None:
            return _time(self.at), None
        if self.delay is None:
            raise _fault("needs a due time: at or delay; or every or cron, to repeat it", ErrorCode.NO_DELAY)
        delay = _length(self.delay)
        if self.sent_at is None:
            return None, delay
        try:
            return _time(self.sent_at) + delay, None
        except OverflowError:
            raise _fault("due after the year 9999", ErrorCode.BEYOND_MAX_DELAY) from None

    @property
    def repeats_its_time(self) -> bool:
        """Whether a request that is repeated means the same due time."""
        return self.is_schedule or self.at is not None or self.sent_at is not None


class Line(Content):
    """A line of a batch."""

    intake: Topic | None = Field(default=None, description="Needed where there are several.")
    key: Text | None = Field(default=None, description="Messages of one key keep their order.")
    key_base64: Base64 | None = Field(default=None, description="The key as bytes, in place of `key`.")
    name: Name | None = Field(
        default=None, description="It replaces the message that waits under this name of its key."
    )

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.key is not None and self.key_base64 is not None:
            raise ValueError("give either key or key_base64")
        return self

    def key_bytes(self) -> bytes | None:
        """Return the key as Kafka has it."""
        return key_bytes(self.key, self.key_base64)


class NewMessage(Line):
    """A message to send."""

    wait: Duration | None = Field(default=None, description="Wait so long for the outcome, 30s at most.")


class MovedTo(BaseModel):
    """When a message shall be due instead."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    at: Time | None = None
    delay: Duration | None = Field(default=None, description="From now on.")
    wait: Duration | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.at is None) == (self.delay is None):
            raise ValueError("give either at or delay")
        return self


def key_bytes(key: str | None, key_base64: str | None) -> bytes | None:
    """Return a key as Kafka has it."""
    if key_base64 is not None:
        return base64.b64decode(key_base64)
    return None if key is None else key.encode()


def wait_ms(text: str | None) -> int:
    """Return for how long to wait; 0: not at all.

    Raises:
        ProblemError: it is no duration, or too long.
    """
    if text is None:
        return 0
    try:
        found = parse_duration_ms(text)
    except ValueError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"wait: {error}") from None
    if found > LONGEST_WAIT_MS:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"wait: at most {LONGEST_WAIT_MS // 1_000}s")
    return found


def _time(text: str) -> datetime:
    return _EPOCH + timedelta(milliseconds=parse_instant_ms(text))


def _length(text: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms(text))


def _fault(text: str, code: str) -> ProblemError:
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, text, code)
