"""The brokers' time, by a record of ours that one of them stamps."""

from collections.abc import Callable

import pytest

from tarry.clock import SystemClock
from tarry.errors import UsageError
from tarry.kafka.broker_time import BrokerTime, refuse_a_clock_that_is_ahead
from tarry.kafka.intake_topics import make_or_check_topic, status_topic
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tests.support.brokers import wait_until
from tests.support.stage import Events, Later

DAY_MS = 86_400_000


@pytest.fixture
def intake(bootstrap: str, unique_name: Callable[[str], str]) -> str:
    """The name of one that has nothing but a topic of status."""
    name = unique_name("clock")
    cluster = Cluster(bootstrap)
    topics = TopicAdmin(cluster.clients.admin(cluster.admin()))
    make_or_check_topic(topics, status_topic(name, 1))
    wait_until(lambda: bool(topics.find([f"{name}.status"])), "the topic is known")
    return name


def test_a_broker_stamps_the_record_that_asks_for_its_time(bootstrap: str, intake: str) -> None:
    events = Events()
    clock = SystemClock()
    brokers = BrokerTime(Cluster(bootstrap), [intake], clock, events)
    brokers.ask(1.0)
    wait_until(lambda: brokers.look(0.1), "it has answered")
    assert brokers.offset_ms is not None
    behind_ms = brokers.offset_ms - (clock.now_ms() - clock.monotonic_ms())
    assert -5 < behind_ms < 20_000, "one machine, one clock, and the stamp comes later"
    assert events == []


def test_a_start_with_a_clock_that_is_ahead_is_refused(bootstrap: str, intake: str) -> None:
    events = Events()
    with pytest.raises(UsageError, match="ahead of the brokers"):
        refuse_a_clock_that_is_ahead(Cluster(bootstrap), [intake], Later(DAY_MS), events)
    refuse_a_clock_that_is_ahead(Cluster(bootstrap), [intake], Later(0), events)
    assert events == []


def test_where_there_is_no_such_topic_a_start_goes_on_and_says_so(
    bootstrap: str, unique_name: Callable[[str], str]
) -> None:
    events = Events()
    refuse_a_clock_that_is_ahead(Cluster(bootstrap), [unique_name("none")], Later(DAY_MS), events)
    [told] = events.of("clock_not_compared")
    assert "unknown" in str(told["reason"]).lower()
