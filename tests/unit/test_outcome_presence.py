"""Noticing that the results' topic was deleted, with answers that the test gives."""

from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from tarry.client.outcome.presence import GONE_MS, LOOK_EVERY_MS, Presence
from tarry.errors import FatalError
from tarry.testing import ManualClock

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._topic import TopicDescription

MISSING = KafkaError.UNKNOWN_TOPIC_OR_PART
THERE = None


class Brokers:
    """An admin client whose answers come when the test gives them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[Future[TopicDescription | None]] = []
        self.presence = Presence("in.results", cast("AdminClient", self), self.clock)

    def describe_topics(self, topics: TopicCollection, **_: float) -> dict[str, Future["TopicDescription | None"]]:
        self.asked.append(Future())
        return dict.fromkeys(topics.topic_names, self.asked[-1])

    def answer(self, code: int | None) -> None:
        """Let the next question be asked, and answer it."""
        self.clock.advance(LOOK_EVERY_MS)
        self.presence.look()
        if code is None:
            self.asked[-1].set_result(None)
        else:
            self.asked[-1].set_exception(KafkaException(KafkaError(code)))
        self.presence.look()


def test_a_topic_that_stays_missing_was_deleted() -> None:
    brokers = Brokers()
    brokers.answer(THERE)
    brokers.answer(MISSING)
    brokers.answer(MISSING)
    with pytest.raises(FatalError, match=r"in\.results does not exist any more") as deleted:
        brokers.answer(MISSING)
    assert deleted.value.code == "UNKNOWN_TOPIC_OR_PART"
    assert 2 * LOOK_EVERY_MS >= GONE_MS > LOOK_EVERY_MS


@pytest.mark.parametrize("between", [THERE, KafkaError._TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_another_answer_in_between_shows_that_it_exists_or_that_nobody_knows(between: int | None) -> None:
    brokers = Brokers()
    for code in (MISSING, MISSING, between) * 3:
        brokers.answer(code)
    assert len(brokers.asked) == 9


def test_a_record_that_comes_shows_that_it_exists() -> None:
    brokers = Brokers()
    for _ in range(3):
        brokers.answer(MISSING)
        brokers.answer(MISSING)
        brokers.presence.note()
    brokers.presence.look()
    assert len(brokers.asked) == 6, "the brokers are asked only while no record comes"


def test_a_question_that_waits_for_its_answer_is_not_asked_again() -> None:
    brokers = Brokers()
    for _ in range(5):
        brokers.clock.advance(LOOK_EVERY_MS)
        brokers.presence.look()
    assert len(brokers.asked) == 1
