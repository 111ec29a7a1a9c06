"""A topic that holds other records than dead letters: they are neither sent again nor dismissed."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.programs import tarry
from tests.support.topics import ends_of, make_topics


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    """A topic with two records that are no dead letters."""
    make_topics(AdminClient({"bootstrap.servers": bootstrap}), [topic_name])
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (b"a", b"b"):
        producer.produce(topic_name, value)
    assert producer.flush(30) == 0
    return topic_name


@pytest.mark.parametrize("how", [("dismiss",), ("dismiss", "--dry-run"), ("redrive", "--dry-run", "--to", "out")])
def test_a_topic_without_dead_letters_is_refused(
    bootstrap: str, topic: str, tmp_path: Path, how: tuple[str, ...]
) -> None:
    command, *options = how
    said = tarry(command, topic, *options, "--bootstrap-servers", bootstrap, cwd=tmp_path)
    assert said.code == 1
    assert f"{topic} is no topic of dead letters: none of its 2 records has the header tarry-error" in said.err
    assert sum(ends_of(bootstrap, topic, committed=False).values()) == 2, "nothing is written"


def test_other_records_are_left_out_and_counted(bootstrap: str, topic: str, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"c", headers=[("tarry-error", b"unknown-target")])
    assert producer.flush(30) == 0
    said = tarry("dismiss", topic, "--bootstrap-servers", bootstrap, cwd=tmp_path)
    assert (said.code, said.out) == (0, "dismissed 1\n")
    assert f"2 records of {topic} are left out: they are no dead letters" in said.err
