"""Noticing that the topic that is read was deleted.

The client library does not report it to a consumer that has begun to read (librdkafka 2.16): the consumer asks for the
topic again and again, for as long as it runs. So while no record comes, another client asks the brokers.
"""

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tarry.clock import Clock
from tarry.errors import FatalError
from tarry.kafka.errors import error_of
from tarry.kafka.topics import NO_TOPIC

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin._topic import TopicDescription

LOOK_EVERY_MS = 2_000
"""How long no record comes before the brokers are asked, and the time between two questions."""

GONE_MS = 3_000
"""How long the brokers must say that there is no such topic: a single broker may be wrong for a moment."""

_ANSWER_WITHIN_S = 10.0


class Presence:
    """Whether the topic that is read still exists.

    Args:
        topic: the topic.
        admin: asks the brokers.
        clock: monotonic time.
    """

    def __init__(self, topic: str, admin: AdminClient, clock: Clock) -> None:
        self._topic = topic
        self._admin = admin
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._asked: Future[TopicDescription] | None = None
        self._missing_since_ms: int | None = None

    def note(self) -> None:
        """Take note that a record has come: the topic exists."""
        self._looked_ms = self._clock.monotonic_ms()
        self._asked = self._missing_since_ms = None

    def look(self) -> None:
        """Check the topic, without waiting; call this whenever no record has come.

        Raises:
            FatalError: the topic does not exist any more.
        """
        now_ms = self._clock.monotonic_ms()
        if self._asked is None:
            if now_ms - self._looked_ms >= LOOK_EVERY_MS:
                topics = TopicCollection([self._topic])
                self._asked = self._admin.describe_topics(topics, request_timeout=_ANSWER_WITHIN_S)[self._topic]
        elif self._asked.done():
            error, self._asked, self._looked_ms = self._asked.exception(), None, now_ms
            if not isinstance(error, KafkaException) or error_of(error).code() not in NO_TOPIC:
                self._missing_since_ms = None
            elif self._missing_since_ms is None:
                self._missing_since_ms = now_ms
            elif now_ms - self._missing_since_ms >= GONE_MS:
                raise FatalError(f"{self._topic} does not exist any more", error_of(error).name())
