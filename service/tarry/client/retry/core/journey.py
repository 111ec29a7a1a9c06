"""What a message on its way back carries about itself: headers on the records that the consumer sends off."""

import uuid
from collections.abc import Iterable
from typing import NamedTuple, Self

from tarry.client.retry.core.key_queue import Ticket
from tarry.errors import HeaderError
from tarry.headers import CANCEL, DELAY_MS, DELIVER_AT, DUE_MS, ID, PARTITION, SOURCE, TARGET

RETRY_ID = "tarry-retry-id"
RETRY_SOURCE = "tarry-retry-source"
RETRY_TICKET = "tarry-retry-ticket"
RETRY_HOP = "tarry-retry-hop"
RETRY_ATTEMPTS = "tarry-retry-attempts"
RETRY_FIRST_FAILED_AT = "tarry-retry-first-failed-at"
RETRY_FIRST_ERROR = "tarry-retry-first-error"
RETRY_LAST_ERROR = "tarry-retry-last-error"

RETRY_REDRIVEN = "tarry-retry-redriven"
"""On a dead letter that was sent again: the topic of dead letters, and the episode that it comes out of."""

ALONE = 0
"""The number of a ticket that stands in no key queue: a message without a key, or where order does not matter."""

MOST_OF_AN_ERROR = 500
"""Characters of an error's text that are kept."""

_OURS = frozenset(
    {
        *(RETRY_ID, RETRY_SOURCE, RETRY_TICKET, RETRY_HOP, RETRY_ATTEMPTS, RETRY_REDRIVEN),
        *(RETRY_FIRST_FAILED_AT, RETRY_FIRST_ERROR, RETRY_LAST_ERROR),
    }
)
_NOT_TO_TRAVEL = _OURS | {TARGET, DELAY_MS, DELIVER_AT, ID, PARTITION, CANCEL, DUE_MS, SOURCE}

Headers = list[tuple[str, bytes | None]]


class Journey(NamedTuple):
    """Where a message comes from, and what has become of it so far.

    Attributes:
        id: its id before it was sent off for the first time, 36 characters.
        source: `topic/partition/offset`, where it was read first.
        ticket: its place in a key queue.
        hop: how often it was sent off.
        attempts: how often it was handled, and failed.
        first_failed_ms: when it failed first, epoch milliseconds; 0: never yet.
        first_error: class and text of the first error.
        last_error: of the last one.
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
        """Its partition in the topic."""
        return int(self.source.split("/")[-2])

    @property
    def offset(self) -> int:
        """Its offset in the topic."""
        return int(self.source.rpartition("/")[2])

    def failed(self, error: BaseException, now_ms: int) -> Self:
        """It was handled, and failed."""
        text = described(error)
        first_ms, first = (self.first_failed_ms, self.first_error) if self.attempts else (now_ms, text)
        return self._replace(attempts=self.attempts + 1, first_failed_ms=first_ms, first_error=first, last_error=text)

    def sent_off(self, ticket: Ticket) -> Self:
        """It is sent off once more."""
        return self._replace(ticket=ticket, hop=self.hop + 1)

    def hop_id(self, group: str) -> bytes:
        """The id under which the service knows it on this hop."""
        # With its place: an application may give several messages one id.
        return str(uuid.uuid5(uuid.UUID(self.id), f"{group}/{self.source}/{self.hop}")).encode()

    def headers(self) -> Headers:
        """As headers."""
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
    """Read back what `Journey.headers` has written.

    Raises:
        HeaderError: it is not there, or not whole: somebody else has written to the retry topic.
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
        _ = journey.partition, journey.offset
    except (KeyError, ValueError, IndexError) as error:
        raise HeaderError(f"not a message on its way back: {error!r}") from error
    return journey


def redriven_episode(headers: Iterable[tuple[str, bytes | None]], dead: str) -> int | None:
    """The episode that a message was sent again out of, if it was, and if it was out of these dead letters."""
    for name, value in headers:
        if name == RETRY_REDRIVEN and value is not None:
            topic, _, episode = value.decode("utf-8", "replace").rpartition("/")
            if topic == dead and episode.isdigit():
                return int(episode)
    return None


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """The application's own, in their order."""
    return [(name, value) for name, value in headers if name not in _NOT_TO_TRAVEL]


def described(error: BaseException) -> str:
    """Class and text of an error, in one line that is not too long."""
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    try:
        text = " ".join(str(error).split())
    except Exception as own:  # noqa: BLE001 - an application's own error may fail at this, too
        text = f"(no text: {type(own).__qualname__})"
    line = (f"{name}: {text}" if text else name)[:MOST_OF_AN_ERROR]
    return line.encode("utf-8", "backslashreplace").decode()
