"""The service with its defaults on a cluster of three brokers: what it creates survives the loss of one of them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, OutcomeReader
from tarry.devbroker import EmbeddedBroker
from tests.support.brokers import wait_until
from tests.support.further_broker import FurtherBroker, make_internal_topics
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import read_topic

WITHIN_S = 90.0


@pytest.fixture
def further(
    embedded_broker: EmbeddedBroker, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[list[FurtherBroker]]:
    """The second and the third broker, started; Kafka's own topics are on the first one, which stays."""
    brokers = [FurtherBroker(embedded_broker, tmp_path / f"broker-{node}", node=node) for node in (2, 3)]
    servers, first = embedded_broker.bootstrap_servers, unique_name("first")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(first, 1, 1)])[first].result(30)
    make_internal_topics(servers, first)
    try:
        for broker in brokers:
            broker.start()
        yield brokers
    finally:
        for broker in brokers:
            broker.stop()


@pytest.mark.exhaustive
def test_the_defaults_keep_three_copies_and_go_on_without_one_broker(
    embedded_broker: EmbeddedBroker, further: list[FurtherBroker], unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    servers, target = embedded_broker.bootstrap_servers, unique_name("out")
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(target, 1, 3, config={"min.insync.replicas": "2"})])[target].result(30)
    config = ServeConfig(servers, unique_name("in"), partitions=2, group=unique_name("group"))
    assert "replication" not in config.intake_settings
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        topics = admin.list_topics(timeout=30).topics
        ours = {name: topic for name, topic in topics.items() if name.startswith(config.intake)}
        assert len(ours) >= 6
        assert {len(one.replicas) for topic in ours.values() for one in topic.partitions.values()} == {3}
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in ours]
        for asked in admin.describe_configs(wanted).values():
            found = asked.result(30)
            assert found["min.insync.replicas"].value == "2"
            assert found["unclean.leader.election.enable"].value == "false"
        [file] = tmp_path.glob("*.toml")
        checked = tarry("check", "--config", str(file), cwd=tmp_path)
        assert "copies" not in "\n".join(line for line in checked.out.splitlines() if line.startswith("FAIL"))

        with DelayedProducer(servers, config.intake) as producer, OutcomeReader(servers, config.intake) as outcomes:
            before = producer.send(target, b"before", b"k", delay=timedelta(seconds=1))
            assert outcomes.await_outcome(before, WITHIN_S)["outcome"] == "fired"
            further[1].kill()
            after = producer.send(target, b"after", b"k", delay=timedelta(seconds=1))
            assert outcomes.await_outcome(after, WITHIN_S)["outcome"] == "fired"
        wait_until(lambda: len(read_topic(servers, target)) == 2, "both are there")
        assert serve.stop() == 0
    finally:
        serve.close()
