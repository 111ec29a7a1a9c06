"""A paused target gets nothing, from the confirmation until it is resumed; then it gets all that waited, in order."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, OutcomeReader
from tarry.clock import SystemClock
from tarry.core.request.pause import Pause
from tarry.errors import UsageError
from tarry.kafka.control import Control
from tarry.kafka.settings import Cluster
from tests.support.brokers import wait_until
from tests.support.chaos import is_stopped
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import Said, tarry
from tests.support.topic_settings import change_settings
from tests.support.topics import read_topic

PARTITIONS = 2
KEYS = (b"a", b"b", b"c")


class Scene:
    """A service with one intake of two partitions, and two targets of one."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.paused, self.other = name("paused"), name("other")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in (self.paused, self.other)]).values():
            future.result(30)
        self.config = ServeConfig(bootstrap, name("in"), partitions=PARTITIONS, group=name("group"))
        self.intake = self.config.intake
        self.serves = [Serve(self.config, folder)]
        self.control = Control(Cluster(bootstrap), self.config.group, SystemClock())
        self.sent: dict[str, int] = {}

    @property
    def serve(self) -> Serve:
        return self.serves[0]

    def another(self) -> Serve:
        """Return a second service of the same group."""
        self.serves.append(Serve(self.config, self.folder, "another"))
        return self.serves[-1]

    def close(self) -> None:
        self.control.close()
        for serve in self.serves:
            serve.close()

    def command(self, *arguments: str) -> Said:
        return tarry(*arguments, "--config", str(self.folder / "serve.toml"), cwd=self.folder)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        code, out, err = self.command(*arguments, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    def send(self, target: str, many: int, delay_ms: int = 200) -> None:
        """Send messages with rising delays."""
        with DelayedProducer(self.bootstrap, self.intake) as producer:
            for step in range(many):
                number = self.sent[target] = self.sent.get(target, 0) + 1
                delay = timedelta(milliseconds=delay_ms + step)
                producer.send(target, b"%d" % number, KEYS[number % len(KEYS)], delay=delay)

    def values(self, target: str, key: bytes | None = None) -> list[int]:
        found = read_topic(self.bootstrap, target, decided=True)
        return [int(one.value() or b"") for one in found if key is None or one.key() == key]

    def wait_delivered(self, target: str) -> None:
        """Wait until all that was sent has arrived, once and in the order of each key."""
        wait_until(lambda: len(self.values(target)) >= self.sent[target], f"{target} gets all", 60)
        for key in KEYS:
            of_key = [number for number in range(1, self.sent[target] + 1) if KEYS[number % len(KEYS)] == key]
            assert self.values(target, key) == of_key

    def wait_parked(self, many: int) -> None:
        metric = self.serve.metric
        wait_until(lambda: metric("tarry_parked_messages", target=self.paused) == many, f"{many} are parked", 60)


@pytest.fixture
def scene(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    with closing(Scene(bootstrap, unique_name, tmp_path)) as found:
        yield found


def test_nothing_comes_to_a_paused_target_also_after_a_kill_and_all_of_it_in_order_once_it_is_resumed(
    scene: Scene,
) -> None:
    scene.serve.start().wait_serving()
    scene.send(scene.paused, 30)
    scene.wait_delivered(scene.paused)
    [said] = scene.rows("pause", scene.paused, "--reason", "the warehouse is down")
    assert (said["paused"], said["confirmed"], said["unconfirmed"]) == (True, True, [])
    before = scene.values(scene.paused)
    scene.send(scene.paused, 60)
    scene.send(scene.other, 60)
    scene.wait_delivered(scene.other)
    scene.wait_parked(60)
    assert scene.serve.metric("tarry_paused_targets") == 1
    [shown] = scene.rows("paused")
    assert (shown["target"], shown["reason"], shown["unconfirmed"]) == (scene.paused, "the warehouse is down", [])
    assert shown["who"]

    scene.serve.kill()
    scene.send(scene.paused, 30)
    scene.send(scene.other, 30)
    scene.serve.start().wait_serving()
    scene.wait_delivered(scene.other)
    scene.wait_parked(90)
    assert scene.values(scene.paused) == before, "nothing was delivered to it"

    assert scene.command("resume", scene.paused, "--reason", "it is back").code == 0
    scene.wait_delivered(scene.paused)
    assert scene.rows("paused") == []
    unknown = scene.command("resume", "no-such-topic")
    assert unknown.code == 0
    assert unknown.err.startswith("note: topic no-such-topic does not exist")
    assert unknown.out.endswith("is resumed: unless it is created, the messages that wait for it become dead letters\n")
    assert [event["target"] for event in scene.serve.events("target_paused")] == [scene.paused]
    assert [event["target"] for event in scene.serve.events("target_resumed")] == [scene.paused]
    scene.serve.kill()
    assert scene.command("resume", scene.paused, "--wait", "0s").code == 0
    numbers = ", ".join(map(str, range(PARTITIONS)))
    assert scene.command("paused").out == (
        f"{scene.intake}: no target is paused\n  not confirmed yet by partitions {numbers}\n"
    )


def test_a_pause_that_is_written_while_nobody_serves_holds_from_the_start(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    scene.send(scene.paused, 6)
    scene.wait_delivered(scene.paused)
    assert scene.serve.stop() == 0
    # Each partition is released by an owner that knows pauses: the next owner delivers nothing before it knows them.
    [said] = scene.rows("pause", scene.paused, "--reason", "before the start")
    assert said["confirmed"]
    before = scene.values(scene.paused)
    scene.send(scene.paused, 30, delay_ms=0)
    scene.serve.start().wait_serving()
    scene.wait_parked(30)
    assert scene.values(scene.paused) == before
    assert scene.command("resume", scene.paused).code == 0
    scene.wait_delivered(scene.paused)


def test_a_pause_ends_by_itself(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    [said] = scene.rows("pause", scene.paused, "--reason", "a while", "--until", "8s")
    assert said["confirmed"]
    scene.send(scene.paused, 30)
    scene.wait_parked(30)
    assert scene.values(scene.paused) == []
    scene.wait_delivered(scene.paused)
    first = read_topic(scene.bootstrap, scene.paused, decided=True)[0]
    assert first.timestamp()[1] >= said["until_ms"]
    assert scene.rows("paused") == []


def test_cancels_and_purges_take_what_waits_for_a_paused_target(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    assert scene.command("pause", scene.paused, "--reason", "a mistake").code == 0
    with (
        DelayedProducer(scene.bootstrap, scene.intake) as producer,
        OutcomeReader(scene.bootstrap, scene.intake) as outcomes,
    ):
        producer.send(scene.paused, b"1", "a", name="n", delay=timedelta(milliseconds=100))
        producer.send(scene.paused, b"2", "a", delay=timedelta(milliseconds=200))
        scene.wait_parked(2)
        assert outcomes.await_outcome(producer.cancel_named("a", "n"), 30)["outcome"] == "cancelled"
        scene.wait_parked(1)
    [purged] = scene.rows("parked", "--purge", scene.paused, "--run")
    assert purged["purged"]
    scene.wait_parked(0)
    assert scene.command("resume", scene.paused).code == 0
    scene.sent[scene.paused] = 0
    scene.send(scene.paused, 3)
    scene.wait_delivered(scene.paused)


@pytest.mark.some_of("protocol")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_owner_that_sleeps_confirms_nothing_and_delivers_nothing_when_it_wakes(
    scene: Scene, protocol: Literal["classic", "consumer"]
) -> None:
    scene.config = ServeConfig(scene.bootstrap, scene.intake, PARTITIONS, scene.config.group, group_protocol=protocol)
    scene.serves = [Serve(scene.config, scene.folder)]
    scene.serve.start().wait_serving()
    scene.send(scene.paused, 300, delay_ms=3_000)
    pids = [*scene.serve.workers.values(), scene.serve.pid]
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(map(is_stopped, pids)), "all of it sleeps")
    said = scene.command("pause", scene.paused, "--reason", "it sleeps", "--wait", "500ms")
    assert said.code == 1
    assert f"{scene.intake}/0 (" in said.err
    offset = scene.control.end(scene.intake)
    assert len(scene.control.unconfirmed(scene.intake, offset)) == PARTITIONS
    scene.another().start().wait_serving()
    wait_until(lambda: not scene.control.unconfirmed(scene.intake, offset), "the next owner confirms", 30)
    before = scene.values(scene.paused)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    other = scene.serves[1]

    def all_parked() -> bool:
        found = [one.metric("tarry_parked_messages", target=scene.paused) for one in scene.serves]
        return sum(found) == scene.sent[scene.paused] - len(before)

    wait_until(all_parked, "all of it is parked, wherever it is served", 60)
    assert scene.values(scene.paused) == before
    assert scene.command("resume", scene.paused).code == 0
    scene.wait_delivered(scene.paused)
    assert other.stop() == 0


def test_a_record_that_cannot_be_read_counts_as_a_pause_and_stops_nothing_else(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    for key, value in ((b"no/topic", b"{}"), (scene.paused.encode(), b'{"v": 2}'), (b"\xff", b"x")):
        producer.produce(f"{scene.intake}.control", value, key)
        assert producer.flush(30) == 0
    wait_until(lambda: len(scene.serve.events("pause_unreadable")) == 3, "it says so")
    scene.send(scene.paused, 3)
    scene.send(scene.other, 3)
    scene.wait_delivered(scene.other)
    scene.wait_parked(3)
    [shown] = scene.rows("paused")
    assert "version 2" in shown["unreadable"]
    assert scene.serve.metric("tarry_unreadable_pauses_total") == 3
    assert scene.command("resume", scene.paused).code == 0
    scene.wait_delivered(scene.paused)


def test_an_intake_without_the_topic_says_so(scene: Scene) -> None:
    with pytest.raises(UsageError, match="has no topic"):
        scene.control.write(scene.intake, Pause(scene.paused, paused=True, reason="r", who="w", at_ms=1))
    said = scene.command("pause", scene.paused, "--reason", "r")
    assert said.code == 1
    assert "`tarry topics` and `tarry serve` create it" in said.err
    said = scene.command("pause", "no-such-topic", "--reason", "r")
    assert said.code == 1
    assert "topic no-such-topic does not exist" in said.err


def test_an_open_transaction_in_the_topic_holds_up_no_take_over(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    assert scene.command("pause", scene.paused, "--reason", "before").code == 0
    producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": scene.config.group + "-foreign"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(f"{scene.intake}.control", b"{}", scene.other.encode())
    producer.flush(30)
    said = scene.command("resume", scene.paused, "--wait", "500ms")
    assert said.code == 1, "what is behind it is not confirmed"
    scene.serve.kill()
    scene.send(scene.paused, 3)
    scene.send(scene.other, 3)
    scene.serve.start().wait_serving()
    scene.wait_delivered(scene.other)
    scene.wait_parked(3)
    assert scene.values(scene.paused) == []
    assert len(scene.rows("paused")) == 1
    producer.abort_transaction()
    scene.wait_delivered(scene.paused)


def test_pauses_whose_records_were_deleted_are_said_to_be_lost(scene: Scene) -> None:
    scene.serve.start().wait_serving()
    assert scene.command("pause", scene.paused, "--reason", "forgotten").code == 0
    topic = f"{scene.intake}.control"
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    # A broker deletes no records of a topic that is only compacted.
    change_settings(admin, topic, cleanup_policy="delete")
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert deleted.result(30).low_watermark == 1
    change_settings(admin, topic, cleanup_policy="compact")
    scene.serve.kill()
    scene.send(scene.paused, 3)
    scene.serve.start().wait_serving()
    scene.wait_delivered(scene.paused)
    assert [event["start"] for event in scene.serve.events("pauses_lost")] == [1]
    said = scene.command("check")
    assert f"note  topic {topic}: begins at offset 1: its first records were deleted" in said.out
    assert "pause again what must be paused" in said.out


@pytest.mark.exhaustive
def test_compaction_leaves_the_beginning_of_the_topic_where_it_was(
    bootstrap: str, unique_name: Callable[[str], str]
) -> None:
    topic, admin = unique_name("compacted"), AdminClient({"bootstrap.servers": bootstrap})
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})

    def first_is_gone() -> bool:
        producer.produce(topic, b"v", b"k")
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
        with closing(consumer):
            consumer.assign([TopicPartition(topic, 0, 0)])
            record = consumer.poll(10)
            assert consumer.get_watermark_offsets(TopicPartition(topic, 0))[0] == 0
        return record is not None and record.error() is None and (record.offset() or 0) > 0

    wait_until(first_is_gone, "the first record is replaced by a later one", 120)
