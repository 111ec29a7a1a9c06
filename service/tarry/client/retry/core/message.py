"""The records that a consumer reads and writes, and the message that a handler gets."""

from typing import NamedTuple

from tarry.client.retry.core.journey import Headers, Journey


class Incoming(NamedTuple):
    """A record read from the topic or the retry topic."""

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class OutgoingRecord(NamedTuple):
    """A record to write in the consumer's transaction.

    Attributes:
        topic: the topic.
        partition: the partition; -1: chosen by the key.
        key: the key.
        value: the value.
        headers: the headers.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class RetryMessage(NamedTuple):
    """A message as the handler gets it. Place, key, value, headers and id are the same on each attempt.

    Attributes:
        topic: the topic of the original record.
        partition: the partition of the original record.
        offset: the offset of the original record.
        timestamp_ms: the timestamp of the record read, epoch milliseconds; on a later attempt, when it came back.
        key: the key.
        value: the value.
        headers: the application's own headers.
        id: the `tarry-id`; without one the `ce_id`, if that is a UUID as text; else an id derived from the original
            topic, partition and offset. 36 characters.
        attempt: the number of the attempt, from 1.
        journey: what the message carries about its attempts so far.
        returned: whether it has come back through the retry topic.
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
