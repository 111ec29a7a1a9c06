"""Topics that are made are told of one by one, also where the next one is refused."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.errors import UsageError
from tarry.kafka.topics import Topic, TopicAdmin


class Admin:
    """Makes what it has no error for."""

    def __init__(self, **errors: int) -> None:
        self._errors = errors

    def create_topics(self, topics: list[Any], **_more: float) -> dict[str, Future[None]]:
        answers: dict[str, Future[None]] = {one.topic: Future() for one in topics}
        for name, answer in answers.items():
            if (code := self._errors.get(name)) is None:
                answer.set_result(None)
            else:
                answer.set_exception(KafkaException(KafkaError(code)))
        return answers


def test_created_topics_are_reported_even_if_another_is_refused() -> None:
    told: list[str] = []
    admin: Any = Admin(b=KafkaError.TOPIC_ALREADY_EXISTS, c=KafkaError.INVALID_REPLICATION_FACTOR)
    topics = TopicAdmin(admin, told.append)
    with pytest.raises(UsageError, match="could not make topic c"):
        topics.make(Topic(name, 1, 1) for name in "abcd")
    assert told == ["a", "d"]
