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
"""How long one try may take."""

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
        self._cause = "no answer"
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
            The brokers' error about the topic, or None. It returns "unknown topic" only if the brokers answer so until
            `within_s` is over, because some brokers may not know a new topic yet.

        Raises:
            RetriableError: no broker answers at the address.
            BrokerError: the brokers refused the request.
        """
        if self.is_made:
            return None
        deadline_ms = self._clock.monotonic_ms() + int(within_s * 1_000)
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            refused, silence = self._ask(list_topics, topic, max(0.05, min(ASK_S, left_ms / 1_000)))
            serve(0)
            if refused is None and silence is None:
                self.is_made = True
                return None
            if refused is not None and (left_ms <= 0 or refused.code() != KafkaError.UNKNOWN_TOPIC_OR_PART):
                return refused
            if silence is not None and left_ms <= 0:
                raise RetriableError(self._unreachable, silence.code)
            self._clock.sleep(0.1)

    def _ask(
        self, list_topics: Callable[..., Any], topic: str, timeout_s: float
    ) -> tuple[KafkaError | None, RetriableError | None]:
        """Ask once; return the brokers' error about the topic, and the error if no broker answers.

        When asked for a missing topic, the client library waits for seconds until it exists. So if there is no answer
        in time, this asks for all topics.
        """
        silence: RetriableError | None = None
        for asked in ((topic,), ()):
            try:
                found = list_topics(*asked, timeout=timeout_s).topics.get(topic)
            except KafkaException as exception:
                failure = translate_group(error_of(exception), f"ask {self._servers}")
                if not isinstance(failure, RetriableError):
                    raise failure from exception
                silence = failure
            else:
                return (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if found is None else found.error), None
        return None, silence

    @property
    def _unreachable(self) -> str:
        return f"could not reach Kafka at {self._servers}: {self._cause}; nothing was ever connected"
