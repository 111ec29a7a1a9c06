"""The first answer of a cluster, from a client library whose answers the test scripts."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.errors import FatalError, RetriableError
from tarry.kafka.contact import ASK_S, WITHIN_S, Contact
from tarry.testing import ManualClock

UNKNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class Library:
    """A client library; when `script` ends, it gives no more answers.

    Args:
        script: for each request its answer: the error about the topic, None if the topic is there, an exception, or for
            how many seconds the brokers are silent.
    """

    def __init__(self, *script: KafkaError | KafkaException | float | None) -> None:
        self.clock = ManualClock()
        self.contact = Contact("there:9092", self.clock)
        self.errors: list[KafkaError] = []
        self.patience_s: list[float] = []
        self._script = list(script)

    def make(self) -> KafkaError | None:
        return self.contact.make(self._list_topics, self._serve, "delayed")

    def _serve(self, _timeout_s: float) -> None:
        for error in self.errors:
            self.contact.note(error)

    def _list_topics(self, *_topic: str, timeout: float) -> Any:
        self.patience_s.append(timeout)
        answer = self._script.pop(0) if self._script else WITHIN_S
        if isinstance(answer, float):
            self.clock.sleep(min(answer, timeout))
            if answer >= timeout:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        elif isinstance(answer, KafkaException):
            raise answer
        found = answer if isinstance(answer, KafkaError) else None
        return SimpleNamespace(topics={"delayed": SimpleNamespace(error=found)})


def test_an_answer_that_the_topic_is_unknown_counts_though_the_brokers_are_silent_after_it() -> None:
    library = Library(UNKNOWN)
    assert library.make() == UNKNOWN
    assert not library.contact.is_made
    assert library.clock.monotonic_ms() - ManualClock().monotonic_ms() >= WITHIN_S * 1_000


def test_a_topic_that_the_brokers_learn_of_in_time_is_there() -> None:
    library = Library(UNKNOWN, UNKNOWN, None)
    assert library.make() is None
    assert library.contact.is_made
    assert library.make() is None
    assert len(library.patience_s) == 3


def test_brokers_that_were_reached_and_are_slow_have_the_whole_time_to_answer() -> None:
    library = Library(WITHIN_S, WITHIN_S - 2 * ASK_S)
    assert library.make() is None
    assert library.patience_s == [ASK_S, WITHIN_S - ASK_S]


def test_where_nothing_can_be_connected_tries_are_short_and_the_cause_is_named() -> None:
    library = Library()
    library.errors = [KafkaError(KafkaError._TRANSPORT, "Connection refused"), KafkaError(KafkaError._ALL_BROKERS_DOWN)]
    with pytest.raises(RetriableError, match=r"^could not reach Kafka at there:9092: Connection refused; nothing was"):
        library.make()
    assert max(library.patience_s) == ASK_S
    assert len(library.patience_s) >= WITHIN_S / ASK_S


def test_silence_without_a_cause_is_named_as_no_answer() -> None:
    with pytest.raises(RetriableError, match=r"^could not reach Kafka at there:9092: no answer; nothing was ever"):
        Library().make()


def test_a_refusal_is_told_at_once() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    library = Library(denied)
    assert library.make() == denied
    assert len(library.patience_s) == 1
    failed = KafkaException(KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(FatalError):
        Library(failed).make()
