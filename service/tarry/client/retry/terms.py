"""The validated arguments of a retrying consumer, and the parts that its process provides."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from tarry.client.events import OnEvent
from tarry.client.group_consumer import Begin
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.client.retry.handling import Handling
from tarry.clock import Clock
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS


@dataclass(frozen=True, slots=True)
class Terms:
    """The validated arguments of a consumer.

    Attributes:
        names: the names of its topics.
        policy: how often and how long to retry.
        keeps_order: whether later messages of a key wait for a failed one.
        begin: where a new group begins to read.
        max_key_queue: how many messages of one key may wait for a failed one; if there are more, the consumer pauses
            their partition.
        missing_ms: how late a message may come back before the consumer looks for it.
        replication: the replication factor of the topics that the consumer creates.
        protocol: the group protocol.
    """

    names: Names
    policy: RetryPolicy
    keeps_order: bool
    begin: Begin
    max_key_queue: int
    missing_ms: int
    replication: int
    protocol: Literal["classic", "consumer"]


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of a consumer's waits.

    Attributes:
        read_wait_s: how long a turn waits for messages, in seconds.
        poll_interval_ms: librdkafka's `max.poll.interval.ms`.
    """

    read_wait_s: float = 0.05
    poll_interval_ms: int = MAX_POLL_INTERVAL_MS


REAL_TIME: Final = Pace()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The parts that the process provides to a consumer; tests provide others.

    Attributes:
        handling: runs the handler.
        clock: wall and monotonic time.
        choose: the random source of the jitter.
        stopping: tells whether to handle no more messages.
        on_event: called with the name of an event and its fields.
        pace: the limits of its waits.
    """

    handling: Handling
    clock: Clock
    choose: random.Random
    stopping: Callable[[], bool]
    on_event: OnEvent
    pace: Pace
