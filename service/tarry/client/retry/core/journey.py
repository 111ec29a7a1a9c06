"""The journey of a retried message: headers that the consumer adds to the records that it sends to the intake."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, Self

from tarry.client.retry.core.key_queue import Ticket
from tarry.errors import HeaderError
from tarry.headers import REPLACED_HEADERS, REQUEST_HEADERS

RETRY_ID = "tarry-retry-id"
RETRY_SOURCE = "tarry-retry-source"
RETRY_TICKET = "tarry-retry-ticket"
RETRY_HOP = "tarry-retry-hop"
RETRY_ATTEMPTS = "tarry-retry-attempts"
RETRY_FIRST_FAILED_AT = "tarry-retry-first-failed-at"
RETRY_FIRST_ERROR = "tarry-retry-first-error"
RETRY_LAST_ERROR = "tarry-retry-last-error"

RETRY_REDRIVEN = "tarry-retry-redriven"
"""On a redriven message: its dead-letter topic and its episode."""

ALONE = 0
"""The ticket number of a message in no key queue: it has no key, or the consumer does not keep the order."""

MOST_OF_AN_ERROR = 500
"""How many characters of an error the headers hold at most."""

_MAX_PARTITION = 2**31 - 1
_MAX_OFFSET = 2**63 - 1

_OURS = frozenset(
    {
        *(RETRY_ID, RETRY_SOURCE, RETRY_TICKET, RETRY_HOP, RETRY_ATTEMPTS, RETRY_REDRIVEN),
        *(RETRY_FIRST_FAILED_AT, RETRY_FIRST_ERROR, RETRY_LAST_ERROR),
    }
)
# A request header that a record of another producer has must not decide what the intake does with ours.
_NOT_TO_TRAVEL = _OURS | REQUEST_HEADERS | REPLACED_HEADERS

Headers = list[tuple[str, bytes | None]]


class Journey(NamedTuple):
    """The origin of a message, and its failed attempts so far.

    Attributes:
        id: its original id, 36 characters.
        source: `topic/partition/offset` of the original record.
        ticket: its place in a key queue.
        hop: how often it was sent to the intake.
        attempts: the number of failed attempts.
        first_failed_ms: when it failed first, epoch milliseconds; 0: not yet.
        first_error: class and text of the first error.
        last_error: class and text of the last error.
    """

    id: str
    source: str
    ticket: Ticket
    hop: int = 0
    attempts: int = 0
    first_failed_ms: int = 0
    first_error: str = ""
    last_error: str = ""

    @property
    def partition(self) -> int:
        """The partition of the original record."""
        return int(self.source.split("/")[-2])

    @property
    def offset(self) -> int:
        """The offset of the original record."""
        return int(self.source.rpartition("/")[2])

    def failed(self, error: BaseException, now_ms: int) -> Self:
        """Return the journey after one more failed attempt."""
        text = described(error)
        first_ms, first = (self.first_failed_ms, self.first_error) if self.attempts else (now_ms, text)
        return self._replace(attempts=self.attempts + 1, first_failed_ms=first_ms, first_error=first, last_error=text)

    def sent_off(self, ticket: Ticket) -> Self:
        """Return the journey after one more hop."""
        return self._replace(ticket=ticket, hop=self.hop + 1)

    def hop_id(self, group: str) -> bytes:
        """Return the `tarry-id` of this hop."""
        # It includes the source, because an application may give several messages the same id.
        return str(uuid.uuid5(uuid.UUID(self.id), f"{group}/{self.source}/{self.hop}")).encode()

    def headers(self) -> Headers:
        """Return the journey as headers."""
        headers: Headers = [
            (RETRY_ID, self.id.encode()),
            (RETRY_SOURCE, self.source.encode()),
            (RETRY_TICKET, b"%d/%d" % self.ticket),
            (RETRY_HOP, b"%d" % self.hop),
            (RETRY_ATTEMPTS, b"%d" % self.attempts),
        ]
        if self.attempts:
            headers += [
                (RETRY_FIRST_FAILED_AT, b"%d" % self.first_failed_ms),
                (RETRY_FIRST_ERROR, self.first_error.encode()),
                (RETRY_LAST_ERROR, self.last_error.encode()),
            ]
        return headers


def journey_of(headers: Iterable[tuple[str, bytes | None]]) -> Journey:
    """Read a journey from headers.

    Raises:
        HeaderError: the headers are missing or incomplete: another producer has written to the retry topic.
    """
    found = {name: value.decode("utf-8", "replace") for name, value in headers if name in _OURS and value is not None}
    try:
        episode, _, number = found[RETRY_TICKET].partition("/")
        journey = Journey(
            str(uuid.UUID(found[RETRY_ID])),
            found[RETRY_SOURCE],
            Ticket(int(episode), int(number)),
            int(found[RETRY_HOP]),
            int(found[RETRY_ATTEMPTS]),
            int(found.get(RETRY_FIRST_FAILED_AT, "0")),
            found.get(RETRY_FIRST_ERROR, ""),
            found.get(RETRY_LAST_ERROR, ""),
        )
        is_place = 0 <= journey.partition <= _MAX_PARTITION and 0 <= journey.offset <= _MAX_OFFSET
    except KeyError as error:
        raise HeaderError(f"the RetryingConsumer did not send this record: it has no header {error.args[0]}") from error
    except (ValueError, IndexError) as error:
        raise HeaderError(f"the RetryingConsumer did not send this record: a tarry-retry-* header: {error}") from error
    if not is_place:
        raise HeaderError(f"the RetryingConsumer did not send this record: {RETRY_SOURCE} is no place of a record")
    return journey


def redriven_episode(headers: Iterable[tuple[str, bytes | None]], dead: str) -> int | None:
    """Return the episode of a message that was redriven from this dead-letter topic; otherwise None."""
    for name, value in headers:
        if name == RETRY_REDRIVEN and value is not None:
            topic, _, episode = value.decode("utf-8", "replace").rpartition("/")
            if topic == dead and episode.isdigit():
                return int(episode)
    return None


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """Return the application's own headers, in their order."""
    return [(name, value) for name, value in headers if name not in _NOT_TO_TRAVEL]


def described(error: BaseException) -> str:
    """Return the class and the text of an application's error, in one line of at most `MOST_OF_AN_ERROR` characters.

    UTF-8 can encode all of them. Whatever the error's own methods raise, this raises nothing but Ctrl-C.
    """
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    try:
        text = " ".join(str(error).split())
    except KeyboardInterrupt:
        raise
    except BaseException as own:  # noqa: BLE001 - the `__str__` of an application's exception may itself raise
        text = f"(no text: {type(own).__qualname__})"
    line = f"{name}: {text}" if text else name
    return line.encode("utf-8", "backslashreplace").decode()[:MOST_OF_AN_ERROR]
