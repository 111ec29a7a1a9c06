"""The first answer of a cluster: a wrong address is found out soon, and named with its cause.

The client library goes on to look for brokers by itself, and says why it finds none only to who listens for its errors.
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

_SAY_NOTHING = frozenset({"_ALL_BROKERS_DOWN", "_TIMED_OUT"})
"""What follows from other errors."""


class Contact:
    """Listens for a client's errors until there was an answer.

    Args:
        servers: the address.
        clock: monotonic time.
    """

    def __init__(self, servers: str, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self._cause = "no answer"
        self.is_made = False
        """Whether there was an answer."""

    def note(self, error: KafkaError) -> None:
        """Take an error of the client; it is the client's `error_cb`."""
        if error.name() not in _SAY_NOTHING:
            self._cause = error.str()

    def make(
        self, list_topics: Callable[..., Any], serve: Callable[[float], object], topic: str, within_s: float = WITHIN_S
    ) -> KafkaError | None:
        """Wait for the first answer; nothing where there was one before.

        Args:
            list_topics: the client's.
            serve: has the client call `note`.
            topic: which is asked about.
            within_s: how long to wait.

        Returns:
            What the brokers say against the topic, if anything, and they said so for all that time: a topic that was
            just made is not known to all of them at once.

        Raises:
            RetriableError: nobody answers at the address.
            BrokerError: asking was refused.
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
                raise RetriableError(self._nobody, silence.code)
            self._clock.sleep(0.1)

    def _ask(
        self, list_topics: Callable[..., Any], topic: str, timeout_s: float
    ) -> tuple[KafkaError | None, RetriableError | None]:
        """Ask once: what the brokers say against the topic, and what says that nobody answers.

        Asked for a topic that is not there, the library waits for seconds until it is: so all are asked for then.
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
    def _nobody(self) -> str:
        return f"could not reach Kafka at {self._servers}: {self._cause}; nothing was ever connected"
