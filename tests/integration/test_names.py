"""Named messages from the client to the service and back: in memory, in a level, and while their target is away."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, OutcomeReader
from tarry.core.murmur2 import partition_of
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import read_topic

LATER = timedelta(seconds=30)
"""Beyond the hot window: the message is filed to a level."""


class Scene:
    """A service with one intake, and clients of it."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], folder: Path) -> None:
        self.bootstrap = bootstrap
        self.target = name("out")
        self.config = ServeConfig(
            bootstrap,
            name("in"),
            partitions=2,
            group=name("group"),
            intake_settings={"max_delay": "40s", "names_limit": 4},
            overflow={"from": "2s", "width": "1s", "size": 3},
        )
        self.intake = self.config.intake
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.target, 1, 1)])[self.target].result(30)
        self.serve = Serve(self.config, folder)
        self.serve.start().wait_serving()
        self.producer = DelayedProducer(bootstrap, self.intake)
        self.outcomes = OutcomeReader(bootstrap, self.intake)

    def close(self) -> None:
        self.outcomes.close()
        self.producer.close()
        self.serve.close()

    def outcome(self, subject: Any) -> str:
        return str(self.outcomes.await_outcome(subject, 30)["outcome"])

    def is_filed(self) -> bool:
        return any(read_topic(self.bootstrap, f"{self.intake}.wheel-{level}") for level in (1, 2, 3))

    def delivered(self) -> list[bytes]:
        return [record.value() or b"" for record in read_topic(self.bootstrap, self.target)]


@pytest.fixture
def scene(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    found = Scene(bootstrap, unique_name, tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_of_several_messages_of_a_name_the_last_one_is_delivered_and_each_other_is_replaced(scene: Scene) -> None:
    send = scene.producer.send
    far = send(scene.target, b"1", b"k", delay=LATER, name="n")
    wait_until(scene.is_filed, "the first one is filed to a level")
    near = send(scene.target, b"2", b"k", delay=timedelta(seconds=20), name="n")
    last = send(scene.target, b"3", b"k", delay=timedelta(seconds=1), name="n")
    other = send(scene.target, b"4", b"another key", delay=timedelta(seconds=1), name="n")
    assert [scene.outcome(one) for one in (far, near, last, other)] == ["replaced", "replaced", "fired", "fired"]
    replaced = scene.outcomes.await_outcome(far, 10)
    assert replaced["replaced_by"] == f"{scene.intake}/{near.handle.partition}/{near.offset}"
    assert sorted(scene.delivered()) == [b"3", b"4"]
    [record] = [one for one in read_topic(scene.bootstrap, scene.target) if one.value() == b"3"]
    assert "tarry-name" not in dict(record.headers() or [])


def test_a_condition_and_a_cancel_by_name_are_answered_at_once(scene: Scene) -> None:
    send, target = scene.producer.send, scene.target
    assert scene.outcome(send(target, b"1", b"k", delay=LATER, name="n", only_if="present")) == "skipped"
    first = send(target, b"2", b"k", delay=LATER, name="n", only_if="absent")
    wait_until(scene.is_filed, "it is filed to a level")
    assert scene.outcome(send(target, b"3", b"k", delay=LATER, name="n", only_if="absent")) == "skipped"
    moved = send(target, b"4", b"k", delay=LATER, name="n", only_if="present")
    assert scene.outcome(first) == "replaced"
    assert scene.outcome(scene.producer.cancel_named(b"k", "n")) == "cancelled"
    assert scene.outcome(moved) == "cancelled"
    assert scene.outcome(scene.producer.cancel_named(b"k", "n")) == "cancel-too-late"
    once = send(target, b"5", b"k", delay=timedelta(0), name="n", only_if="absent")
    assert scene.outcome(once) == "fired"
    assert scene.delivered() == [b"5"]


def test_names_survive_a_crash_of_the_service(scene: Scene, tmp_path: Path) -> None:
    send, target = scene.producer.send, scene.target
    old = send(target, b"1", b"k", delay=LATER, name="n")
    wait_until(scene.is_filed, "it is filed to a level")
    new = send(target, b"2", b"k", delay=timedelta(seconds=15), name="n")
    assert scene.outcome(old) == "replaced"
    scene.serve.kill()
    scene.serve.start().wait_serving()
    assert scene.outcome(send(target, b"3", b"k", delay=LATER, name="n", only_if="absent")) == "skipped"
    last = send(target, b"4", b"k", delay=timedelta(seconds=1), name="n", only_if="present")
    assert [scene.outcome(one) for one in (new, last)] == ["replaced", "fired"]
    assert scene.delivered() == [b"4"]


def test_what_can_have_no_name_is_dead(scene: Scene) -> None:
    ours = partition_of(b"k", 2)
    headers = [("tarry-target", scene.target.encode()), ("tarry-delay-ms", b"0")]
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    producer.produce(scene.intake, b"no key", None, headers=[*headers, ("tarry-name", b"n")])
    producer.produce(scene.intake, b"elsewhere", b"k", 1 - ours, headers=[*headers, ("tarry-name", b"n")])
    producer.produce(scene.intake, b"empty", b"k", ours, headers=[*headers, ("tarry-name", b"")])
    producer.produce(scene.intake, b"when?", b"k", ours, headers=[*headers, ("tarry-name", b"n"), ("tarry-if", b"!")])
    producer.produce(scene.intake, b"no name", b"k", ours, headers=[*headers, ("tarry-if", b"absent")])
    producer.flush()
    for number in range(5):
        scene.producer.send(scene.target, b"%d" % number, b"k", delay=LATER, name=f"n{number}")
    dead: dict[bytes | None, Any] = {}

    def all_are_dead() -> bool:
        dead.update({one.value(): dict(one.headers() or [])["tarry-error"] for one in dead_letters(scene)})
        return len(dead) == 6

    wait_until(all_are_dead, "all are dead")
    assert dead == {
        b"no key": b"null-key",
        b"elsewhere": b"wrong-partition",
        b"empty": b"bad-name",
        b"when?": b"bad-name",
        b"no name": b"bad-name",
        b"4": b"too-many-names",
    }


def dead_letters(scene: Scene) -> list[Any]:
    return list(read_topic(scene.bootstrap, f"{scene.intake}.dead"))


def test_the_commands_send_find_and_cancel_by_name(scene: Scene, tmp_path: Path) -> None:
    shared = ("--bootstrap-servers", scene.bootstrap, "--intake", scene.intake)
    sent = tarry("send", scene.target, "x", "--key", "k", "--name", "n", "--delay", "30s", *shared, cwd=tmp_path)
    handle = json.loads(sent.out)["handle"]
    by_name = ("--key", "k", "--name", "n", *shared)
    settings = tmp_path / "group.toml"
    settings.write_text(f'[service]\ngroup = "{scene.config.group}"\n[[intake]]\ntopic = "{scene.intake}"\n')
    group = ("--config", str(settings))

    def found() -> bool:
        return handle in tarry("status", "--json", *by_name, *group, cwd=tmp_path).out

    wait_until(found, "the service has read it")
    assert tarry("cancel", *by_name, "--wait", cwd=tmp_path).out == "accepted\ncancelled\n"
    again = tarry("cancel", *by_name, "--wait", cwd=tmp_path)
    assert (again.code, again.out) == (
        1,
        f"accepted\ncancel-too-late: no message waits under this name in {scene.intake}\n",
    )
    gone = tarry("status", *by_name, *group, cwd=tmp_path)
    assert (gone.code, gone.out) == (1, "")
    assert gone.err.startswith("tarry: no message waits under this name")


def test_what_was_decided_about_a_message_is_known_before_its_outcome(scene: Scene, tmp_path: Path) -> None:
    send, decision = scene.producer.send, scene.outcomes.await_decision
    first = send(scene.target, b"1", b"k", delay=LATER, name="n", only_if="absent")
    assert decision(first, 30)["outcome"] == "scheduled"
    assert decision(send(scene.target, b"2", b"k", delay=LATER, name="n", only_if="absent"), 30)["reason"] == "waiting"
    moved = send(scene.target, b"3", b"k", delay=LATER, name="n", only_if="present")
    assert decision(moved, 30)["replaced"] == f"{scene.intake}/{first.handle.partition}/{first.offset}"
    assert decision(first, 30)["outcome"] == "scheduled"

    def told(name: str) -> list[str]:
        shared = ("--if", "absent", "--wait", "--bootstrap-servers", scene.bootstrap, "--intake", scene.intake)
        sent = tarry("send", scene.target, "x", "--key", "k", "--name", name, "--delay", "1s", *shared, cwd=tmp_path)
        assert sent.code == 0, sent.err
        return [json.loads(line)["outcome"] for line in sent.out.splitlines()[1:]]

    assert told("n") == ["skipped"]
    assert told("other") == ["scheduled", "fired"]


def test_a_dead_letter_that_is_sent_again_does_not_replace_a_younger_message(scene: Scene, tmp_path: Path) -> None:
    send, target = scene.producer.send, scene.target
    dead = [send(target, b"%d" % one, b"k", delay=LATER, name=f"n{one}") for one in range(5)][4]
    assert scene.outcomes.await_outcome(dead, 30)["reason"] == "too-many-names"
    assert scene.outcome(scene.producer.cancel_named(b"k", "n0")) == "cancelled"
    younger = send(target, b"younger", b"k", delay=LATER, name="n4")

    topic = f"{scene.intake}.dead"
    redriven = tarry("redrive", topic, "--to", scene.intake, "--bootstrap-servers", scene.bootstrap, cwd=tmp_path)
    assert redriven == (0, f"sent 1 to {scene.intake}\n", "")

    def answer() -> dict[str, Any] | None:
        results = [json.loads(one.value() or b"") for one in read_topic(scene.bootstrap, f"{scene.intake}.results")]
        return next((one for one in results if one["id"] == dead.id and one["outcome"] == "skipped"), None)

    wait_until(lambda: answer() is not None, "the letter is skipped")
    assert (answer() or {})["waiting"] == f"{scene.intake}/{younger.handle.partition}/{younger.offset}"
    assert scene.outcome(scene.producer.cancel_named(b"k", "n4")) == "cancelled"
    assert scene.outcome(younger) == "cancelled"
