"""A second opinion about an unknown topic: at least one broker that did not answer first is asked."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka.admin._metadata import BrokerMetadata, ClusterMetadata

from tarry.errors import RetriableError
from tarry.kafka.second_opinion import SecondOpinion
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import Target

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

THERE, NOT_THERE = Target(3), Target(0)


class Teller:
    """An admin client that one broker tells which there are."""

    def __init__(self, brokers: Sequence[int], teller: int) -> None:
        self.found = ClusterMetadata()
        self.found.orig_broker_id = teller
        for number in brokers:
            broker: Any = BrokerMetadata()
            broker.id, broker.host, broker.port = number, f"broker-{number}", 9092
            self.found.brokers[number] = broker

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ARG002
        return self.found


class Opinion(SecondOpinion):
    """Brokers by their numbers, each of which knows the topic or not, or gives no answer (None)."""

    def __init__(self, teller: int, **knows: bool | None) -> None:
        self.knows = {name.replace("_", "-"): known for name, known in knows.items()}
        self.asked: list[str] = []
        numbers = [int(name.removeprefix("broker-")) for name in self.knows]
        super().__init__(Cluster("nowhere", {}), cast("AdminClient", Teller(numbers, teller)), 1)

    def _ask(self, address: str, topics: Collection[str]) -> dict[str, Target]:
        name = address.removesuffix(":9092")
        self.asked.append(name)
        known = self.knows[name]
        if known is None:
            raise RetriableError(f"{name} does not answer")
        return dict.fromkeys(topics, THERE if known else NOT_THERE)


def test_a_broker_that_is_alone_is_asked_again() -> None:
    opinion = Opinion(1, broker_1=False)
    assert opinion(["t"]) == {"t": NOT_THERE}
    assert opinion.asked == ["broker-1"]


@pytest.mark.parametrize("teller", [1, 2])
def test_of_two_brokers_both_are_asked_since_either_may_have_given_the_first_answer(teller: int) -> None:
    for knows in ({"broker_1": True, "broker_2": False}, {"broker_1": False, "broker_2": True}):
        assert Opinion(teller, **knows)(["t"]) == {"t": THERE}
    assert Opinion(teller, broker_1=False, broker_2=False)(["t"]) == {"t": NOT_THERE}


def test_of_many_brokers_two_are_asked_that_did_not_tell_of_them() -> None:
    opinion = Opinion(1, broker_1=False, broker_2=False, broker_3=True, broker_4=True)
    assert opinion(["t"]) == {"t": THERE}
    assert opinion.asked == ["broker-2", "broker-3"]


def test_where_one_of_two_does_not_answer_the_other_may_be_the_one_that_answered_first() -> None:
    found = Opinion(1, broker_1=False, broker_2=None)(["t"])["t"]
    assert (found.partitions, found.obstacle) == (1, "broker-2 does not answer")
    assert Opinion(1, broker_1=True, broker_2=None)(["t"]) == {"t": THERE}


def test_a_silent_broker_is_passed_over_where_two_others_say_the_same_and_asked_last_from_then_on() -> None:
    opinion = Opinion(1, broker_1=False, broker_2=None, broker_3=False, broker_4=False)
    assert opinion(["t"]) == {"t": NOT_THERE}
    opinion.asked.clear()
    assert opinion(["t"]) == {"t": NOT_THERE}
    assert opinion.asked == ["broker-3", "broker-4"]


def test_two_silent_brokers_are_waited_for_and_no_more() -> None:
    opinion = Opinion(4, broker_1=None, broker_2=None, broker_3=None, broker_4=False)
    with pytest.raises(RetriableError, match="broker-2 does not answer"):
        opinion(["t"])
    assert opinion.asked == ["broker-1", "broker-2"]
    found = opinion(["t"])["t"]
    assert (found.partitions, found.obstacle) == (1, "broker-1 does not answer")


def test_where_none_answers_that_is_said() -> None:
    with pytest.raises(RetriableError, match="broker-1 does not answer"):
        Opinion(1, broker_1=None, broker_2=None)(["t"])
