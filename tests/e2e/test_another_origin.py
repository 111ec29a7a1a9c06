"""A checkpoint that is of other logs than there are: an intake made anew, and another cluster behind a mirror.

Nothing that was acknowledged is lost; what comes more than once is counted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedMessage, DelayedProducer
from tarry.core.progress.checkpoint import is_checkpoint
from tarry.devbroker import EmbeddedBroker
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.types import OffsetMetadata, Place
from tarry.testing.serve import Serve, ServeConfig
from tests.e2e.conftest import PARTITIONS, Lab
from tests.support.brokers import wait_until
from tests.support.mirror import Mirror
from tests.support.programs import tarry
from tests.support.topics import delete_topic, ends_of, read_topic

ADOPT = ("tarry", "serve", "--adopt", "--config")
FORMER, SENT = 800, 2_000
WITHIN_S = 90.0


def send(bootstrap: str, intake: str, target: str, values: Sequence[str], delay: timedelta) -> None:
    """Messages of several keys; each is acknowledged."""
    with DelayedProducer(bootstrap, intake) as producer:
        messages = (
            DelayedMessage(target, value, key=f"key-{number % 50}", delay=delay) for number, value in enumerate(values)
        )
        assert len(list(producer.send_many(messages))) == len(values)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def arrived(bootstrap: str, topic: str) -> Counter[str]:
    """How often each value stands in a topic."""
    return Counter((one.value() or b"").decode() for one in read_topic(bootstrap, topic))


def wait_for(bootstrap: str, topic: str, values: Sequence[str]) -> Counter[str]:
    wait_until(lambda: arrived(bootstrap, topic).keys() >= set(values), f"all of {values[0]} …", WITHIN_S)
    return arrived(bootstrap, topic)


def reasons(serve: Serve) -> set[str]:
    """Why partitions are not served, once none is."""
    wait_until(lambda: len(serve.events("partition_quarantined")) >= PARTITIONS, "all are quarantined", WITHIN_S)
    return {event["reason"].partition(" is of ")[2] for event in serve.events("partition_quarantined")}


def delete(bootstrap: str, topic: str) -> None:
    delete_topic(AdminClient({"bootstrap.servers": bootstrap}), topic)


def checked(directory: Path, config: ServeConfig) -> list[str]:
    """The lines of `tarry check` that fail."""
    path = directory / "checked.toml"
    path.write_text(config.toml(), encoding="utf-8")
    said = tarry("check", "--config", str(path), cwd=directory)
    return [line for line in said.out.splitlines() if line.startswith("FAIL")]


@pytest.mark.exhaustive
def test_a_recreated_intake_is_not_served_until_it_is_adopted_and_then_all_of_it_is(
    lab: Lab, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    target = lab.targets[0].topic
    serve = lab.serve().start()
    serve.wait_serving()
    send(lab.bootstrap, lab.intake, target, names("former", FORMER), timedelta(0))
    wait_for(lab.bootstrap, target, names("former", FORMER))
    assert serve.stop() == 0
    ends = ends_of(lab.bootstrap, lab.intake, committed=False)
    delete(lab.bootstrap, lab.intake)

    serve.start()
    [reason] = reasons(serve)
    send(lab.bootstrap, lab.intake, target, names("new", SENT), timedelta(0))
    assert all(end > ends[place] for place, end in ends_of(lab.bootstrap, lab.intake, committed=False).items())
    assert reason.startswith(f"topic {lab.intake} with id ")
    assert "`tarry serve --adopt`" in reason
    assert serve.stop() == 0
    config = ServeConfig(lab.bootstrap, lab.intake, PARTITIONS, lab.group)
    failed = checked(tmp_path, config)
    assert len([line for line in failed if reason in line]) == PARTITIONS
    assert not arrived(lab.bootstrap, target).keys() & set(names("new", SENT))

    serve = lab.serve(command=ADOPT).start()
    serve.wait_serving()
    seen = wait_for(lab.bootstrap, target, names("new", SENT))
    assert serve.stop() == 0
    assert {seen[name] for name in names("new", SENT)} == {1}
    assert checked(tmp_path, config) == []
    tell(f"{SENT} of {SENT} arrived after {failed[0]}")

    again = lab.serve(command=ADOPT).start()
    again.wait_serving()
    assert again.events("adopted") == [], "a second time there is nothing to adopt"
    assert again.stop() == 0


@pytest.mark.exhaustive
def test_behind_a_mirror_the_other_cluster_refuses_the_checkpoint_and_adopts_the_intake_without_loss(
    start_embedded_broker: Callable[..., EmbeddedBroker],
    unique_name: Callable[[str], str],
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    here, there = (start_embedded_broker().bootstrap_servers for _ in range(2))
    intake, target, group = unique_name("mirrored"), unique_name("target"), unique_name("group")
    for bootstrap in (here, there):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(target, 3, 1)])[target].result(30)
    settings = ServeConfig(here, intake, PARTITIONS, group, overflow={"width": "5s"})
    elsewhere = replace(settings, bootstrap=there)
    done, waits = names("done", FORMER), names("waits", SENT)
    first = Serve(settings, tmp_path, "here")
    try:
        first.start().wait_serving()
        with Mirror(here, there, [intake], group, tmp_path):
            send(here, intake, target, done, timedelta(0))
            wait_for(here, target, done)
            send(here, intake, target, waits, timedelta(seconds=50))
            wait_until(lambda: records(there, intake) == FORMER + SENT, "all of the intake is mirrored", WITHIN_S)
            wait_until(lambda: len(mirrored_checkpoints(there, intake, group)) > 0, "offsets are mirrored", WITHIN_S)
        first.kill()
    finally:
        first.close()
    delivered_here = arrived(here, target)

    second = Serve(elsewhere, tmp_path, "there")
    adopting = Serve(elsewhere, tmp_path, "adopting", ADOPT)
    try:
        second.start()
        assert any(reason.startswith("cluster ") for reason in reasons(second))
        failed = checked(tmp_path, elsewhere)
        assert any(" is of cluster " in line and "`tarry serve --adopt`" in line for line in failed)
        assert second.stop() == 0
        adopting.start().wait_serving()
        delivered_there = wait_for(there, target, [*done, *waits])
        assert adopting.stop() == 0
    finally:
        second.close()
        adopting.close()
    both = delivered_here + delivered_there
    assert both.keys() == {*done, *waits}
    repeated = sum(times - 1 for times in both.values())
    assert {delivered_there[name] for name in waits} == {1}
    tell(f"{len(both)} sent, lost 0, delivered once more in the other cluster {repeated}; {failed[0]}")


def records(bootstrap: str, topic: str) -> int:
    there = topic in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    return len(read_topic(bootstrap, topic)) if there else 0


def mirrored_checkpoints(bootstrap: str, intake: str, group: str) -> dict[Place, OffsetMetadata]:
    """The checkpoints of another cluster that the mirror has committed here."""
    cluster = Cluster(bootstrap)
    with closing(Offsets(AdminClient(cluster.admin()), group, cluster)) as offsets:
        found = offsets.committed((intake, partition) for partition in range(PARTITIONS))
    return {place: one for place, one in found.items() if is_checkpoint(one[1])}
