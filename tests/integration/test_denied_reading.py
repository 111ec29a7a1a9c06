"""A user who may not read a topic, or not even see it: those who look from outside say so, and do not wait."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation

from tarry.clock import SystemClock
from tarry.errors import FatalError, UsageError
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tests.support.programs import tarry
from tests.support.rights import deny
from tests.support.topics import make_topics


@pytest.fixture
def topic(bootstrap_of_authorizer: str, topic_name: str) -> str:
    """A topic with a record that nobody may read."""
    admin = AdminClient({"bootstrap.servers": bootstrap_of_authorizer})
    make_topics(admin, [topic_name])
    producer = Producer({"bootstrap.servers": bootstrap_of_authorizer})
    producer.produce(topic_name, b"v")
    producer.flush(30)
    deny(admin, topic_name, AclOperation.READ)
    return topic_name


def test_an_inspector_says_what_it_may_not_read(bootstrap_of_authorizer: str, topic: str) -> None:
    log = topic, 0
    with (
        closing(Inspector(Cluster(bootstrap_of_authorizer), "group", SystemClock())) as inspector,
        pytest.raises(FatalError, match=f"could not read {topic}: .*uthorization failed"),
    ):
        list(inspector.records({log: 0}, {log: 1}))


def test_an_intake_that_may_not_be_seen_is_as_one_that_is_not_there(
    bootstrap_of_authorizer: str, topic: str, unique_name: Callable[[str], str]
) -> None:
    with closing(Inspector(Cluster(bootstrap_of_authorizer), "group", SystemClock())) as inspector:
        assert inspector.partitions(topic) == 1
        deny(AdminClient({"bootstrap.servers": bootstrap_of_authorizer}), topic, AclOperation.DESCRIBE)
        for name in (topic, unique_name("missing")):
            with pytest.raises(UsageError, match=f"there is no topic {name}: check the name"):
                inspector.partitions(name)


def test_a_redrive_says_what_it_may_not_read(
    bootstrap_of_authorizer: str, topic: str, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    said = tarry(
        *("redrive", topic, "--to", unique_name("to"), "--dry-run", "--bootstrap-servers", bootstrap_of_authorizer),
        cwd=tmp_path,
    )
    assert said.code == 1
    assert f"tarry: could not read {topic}: " in said.err
