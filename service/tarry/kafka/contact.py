"""The first answer of a cluster, so that a wrong address is reported soon, with its cause.

The client library goes on looking for brokers by itself, and reports why it finds none only to an error callback.
"""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tarry.clock import Clock
from tarry.errors import RetriableError
from tarry.kafka.errors import error_of, translate_group

WITHIN_S = 5.0
"""How long the first answer may take."""

ASK_S = 0.5
"""How long one try may take, while errors come or an answer about one topic is outstanding."""

_LEAST_S = 0.05

_CONSEQUENCES = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT"})
"""Errors that only follow from others, so they do not tell the cause."""


class Contact:
    """Collects a client's errors until the cluster has answered once.

    Args:
        servers: the bootstrap address.
        clock: monotonic time.
    """

    def __init__(self, servers: str, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self._cause: str | None = None
        self.is_made = False
        """Whether the cluster has answered."""

    def note(self, error: KafkaError) -> None:
        """Take an error of the client; this is the client's `error_cb`."""
        if error.name() not in _CONSEQUENCES:
            self._cause = error.str()

    def make(
        self, list_topics: Callable[..., Any], serve: Callable[[float], object], topic: str, within_s: float = WITHIN_S
    ) -> KafkaError | None:
        """Wait for the first answer; do nothing if there was one before.

        Args:
            list_topics: the client's.
            serve: makes the client call `note`.
            topic: the topic to ask about.
            within_s: how long to wait.

        Returns:
            The brokers' error about the topic, or None. It returns "unknown topic" only if that is their last answer
            when `within_s` is over, because some brokers may not know a new topic yet.

        Raises:
            RetriableError: no broker answers at the address.
            BrokerError: the brokers refused the request.
        """
        if self.is_made:
            return None
        deadline_ms = self._clock.monotonic_ms() + int(within_s * 1_000)
        refused: KafkaError | None = None
        while True:
            try:
                refused = self._ask(list_topics, serve, topic, deadline_ms)
            except RetriableError as silence:
                if refused is None and self._left_s(deadline_ms) <= 0:
                    raise RetriableError(self._unreachable, silence.code) from None
            else:
                if refused is None:
                    self.is_made = True
                    return None
                if refused.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return refused
            if refused is not None and self._left_s(deadline_ms) <= 0:
                return refused
            self._clock.sleep(0.1)

    def _ask(
        self, list_topics: Callable[..., Any], serve: Callable[[float], object], topic: str, deadline_ms: int
    ) -> KafkaError | None:
        """Ask once; return the brokers' error about the topic.

        When asked for a missing topic, the client library waits for seconds until it exists. So if there is no answer
        in time, this asks for all topics. A broker that is slow to answer, and causes no error, gets all the time that
        is left.

        Raises:
            RetriableError: no broker answers.
            BrokerError: the brokers refused the request.
        """
        try:
            return self._about(topic, list_topics, (topic,), min(ASK_S, self._left_s(deadline_ms)))
        except RetriableError:
            serve(0)
        try:
            left_s = self._left_s(deadline_ms)
            return self._about(topic, list_topics, (), left_s if self._cause is None else min(ASK_S, left_s))
        finally:
            serve(0)

    def _about(
        self, topic: str, list_topics: Callable[..., Any], asked: tuple[str, ...], timeout_s: float
    ) -> KafkaError | None:
        try:
            found = list_topics(*asked, timeout=max(_LEAST_S, timeout_s)).topics.get(topic)
        except KafkaException as exception:
            raise translate_group(error_of(exception), f"ask {self._servers}") from exception
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if found is None else found.error

    def _left_s(self, deadline_ms: int) -> float:
        return (deadline_ms - self._clock.monotonic_ms()) / 1_000

    @property
    def _unreachable(self) -> str:
        return f"could not reach Kafka at {self._servers}: {self._cause or 'no answer'}; nothing was ever connected"
