"""What is read, what a handler is given, and what goes out for it."""

from typing import NamedTuple

from tarry.client.retry.core.journey import Headers, Journey


class Incoming(NamedTuple):
    """A record that was read, of the topic or of the retry topic."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Record(NamedTuple):
    """A record that goes out: to a topic, in the consumer's transaction.

    Attributes:
        topic: where to.
        partition: which; -1: by key.
        key: of the record.
        value: of the record.
        headers: of the record.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RetryMessage(NamedTuple):
    """A message, as a handler sees it: the same on each attempt.

    Attributes:
        topic: where it was read first.
        partition: of that topic.
        offset: in that partition.
        timestamp_ms: of the record that was read, epoch milliseconds; on a later attempt, when it came back.
        key: its key.
        value: its value.
        headers: the application's own.
        id: its `tarry-id`, or one made from its place: 36 characters, the same on each attempt.
        attempt: 1 for the first.
        journey: what it carries on its way.
        returned: whether it has come back.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    id: str
    attempt: int
    journey: Journey
    returned: bool
