"""The topic of a level that is deleted while messages wait in it: no partition takes it for an empty one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tarry.client import DelayedProducer
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import delete_topic, read_topic

LEVELS = {"from": "2s", "width": "1s", "size": 4}
WAITS_IN = 4
"""The level of a message that is due in some minutes, in this wheel."""

SET_ASIDE = "docs/operations.md#partitions-set-aside"


@pytest.fixture
def config(bootstrap: str, unique_name: Callable[[str], str]) -> ServeConfig:
    longest = {"max_delay": "10m"}
    return ServeConfig(
        bootstrap, unique_name("delayed"), 1, unique_name("group"), overflow=LEVELS, intake_settings=longest
    )


@pytest.fixture
def serve(config: ServeConfig, tmp_path: Path) -> Iterator[Serve]:
    one = Serve(config, tmp_path)
    yield one
    one.close()


@pytest.fixture
def filed(config: ServeConfig, serve: Serve) -> str:
    """A message waits in a level, and the service has ended; return the level's topic."""
    serve.start().wait_serving()
    with DelayedProducer(config.bootstrap, config.intake) as producer:
        producer.send("orders", b"waits", delay=timedelta(minutes=5))
    level = f"{config.intake}.wheel-{WAITS_IN}"
    wait_until(lambda: len(read_topic(config.bootstrap, level)) == 1, "it is filed")
    assert serve.stop() == 0
    return level


def delete(config: ServeConfig, topic: str) -> None:
    delete_topic(AdminClient({"bootstrap.servers": config.bootstrap}), topic)


def refused(serve: Serve) -> str:
    """Why the partition is not served."""
    wait_until(lambda: bool(serve.events("partition_quarantined")), "it is quarantined", 60)
    return str(serve.events("partition_quarantined")[0]["reason"])


def failures(config: ServeConfig, directory: Path) -> list[str]:
    path = directory / "checked.toml"
    path.write_text(config.toml(), encoding="utf-8")
    return [
        line for line in tarry("check", "--config", str(path), cwd=directory).out.splitlines() if line[:4] == "FAIL"
    ]


def lost(config: ServeConfig, level: str) -> str:
    adopt = "to deliver all that the intake holds now, run `tarry serve --adopt` once"
    return f"{level} was deleted, and messages of {config.intake}/0 may have waited in it: {adopt}"


def test_a_level_that_was_deleted_is_named_by_the_check_and_by_the_next_start(
    config: ServeConfig, serve: Serve, filed: str, tmp_path: Path
) -> None:
    delete(config, filed)
    assert failures(config, tmp_path) == [
        f"FAIL  partition {config.intake}/0 can't be taken over: {lost(config, filed)} ({SET_ASIDE})"
    ]
    serve.start()
    assert f" is of topic {filed} with id " in refused(serve)
    assert "it was deleted and recreated" in refused(serve)
    assert serve.events("serving") == []


def test_a_level_that_is_deleted_under_a_running_service_stops_the_partition(
    config: ServeConfig, serve: Serve, filed: str
) -> None:
    serve.start().wait_serving()
    delete(config, filed)
    assert refused(serve).startswith(f"{filed} does not exist, which {config.intake}/0 needs: was it deleted?")


def test_fewer_levels_are_refused_although_the_topic_of_the_level_is_gone_until_it_is_adopted(
    config: ServeConfig, filed: str, tmp_path: Path
) -> None:
    """As an operator of topics does it who deletes the topics of the levels that a shorter `max_delay` has no more."""
    delete(config, filed)
    fewer = replace(config, intake_settings={"max_delay": "20s"})
    assert failures(fewer, tmp_path) == [
        f"FAIL  partition {config.intake}/0 can't be taken over: {lost(config, filed)} ({SET_ASIDE})"
    ]
    serve = Serve(fewer, tmp_path, "fewer")
    adopting = Serve(fewer, tmp_path, "adopting", ("tarry", "serve", "--adopt", "--config"))
    try:
        serve.start()
        assert refused(serve) == lost(config, filed)
        assert serve.events("serving") == []
        assert serve.stop() == 0
        adopting.start().wait_serving()
        assert adopting.events("adopted")[0]["reason"] == lost(config, filed)
        assert adopting.stop() == 0
    finally:
        serve.close()
        adopting.close()
