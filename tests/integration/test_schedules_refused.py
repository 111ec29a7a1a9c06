"""Schedules whose target is away are late; those whose next record the intake refuses are dead, and only those."""

import json
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.rights import allow, deny
from tests.support.topic_settings import change_settings
from tests.support.topics import read_topic

WRITE = AclOperation.WRITE
SOON_S = 60.0


class Scene:
    """A service with one intake, not started."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.target, self.other = name("out"), name("other")
        self.config = ServeConfig(bootstrap, name("in"), partitions=1, group=name("group"))
        self.intake = self.config.intake
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(one, 1, 1) for one in (self.target, self.other)]).values():
            future.result(30)
        self.serve = Serve(self.config, folder)
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def start(self) -> None:
        self.serve.start().wait_serving()

    def send(self, value: bytes, *headers: tuple[str, bytes], target: str = "") -> str:
        """Send a record to the intake; return its id."""
        id_ = str(uuid.uuid4())
        given: list[tuple[str, str | bytes | None]] = [
            ("tarry-target", (target or self.target).encode()),
            ("tarry-id", id_.encode()),
            *headers,
        ]
        self._producer.produce(self.intake, value, b"key", headers=given)
        assert self._producer.flush(30) == 0
        return id_

    def schedule(self, name: bytes, value: bytes = b"tick") -> str:
        return self.send(value, ("tarry-name", name), ("tarry-every", b"1s"))

    def numbers(self, schedule: str) -> list[int]:
        """Return the numbers of the occurrences of a schedule that were delivered."""
        found: list[dict[str, Any]] = [dict(one.headers() or []) for one in read_topic(self.bootstrap, self.target)]
        return [int(one["tarry-occurrence"]) for one in found if one.get("tarry-schedule") == schedule.encode()]

    def goes_on(self, schedule: str) -> None:
        """Wait until two more occurrences of a schedule are delivered."""
        before = len(self.numbers(schedule))
        wait_until(lambda: len(self.numbers(schedule)) >= before + 2, "the schedule goes on", SOON_S)

    def delivered(self, topic: str) -> list[bytes]:
        return [record.value() or b"" for record in read_topic(self.bootstrap, topic)]

    def end_of(self, schedule: str) -> dict[str, Any]:
        """Wait for the end of a schedule; return its result."""

        def found() -> list[dict[str, Any]]:
            records = read_topic(self.bootstrap, f"{self.intake}.results")
            return [json.loads(one.value() or b"") for one in records if one.key() == schedule.encode()]

        wait_until(lambda: bool(found()), "the schedule ends", SOON_S)
        [result] = found()
        return result

    def letters(self) -> list[Any]:
        return list(read_topic(self.bootstrap, f"{self.intake}.dead"))


@pytest.fixture
def scene(bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    found = Scene(bootstrap_of_authorizer, unique_name, tmp_path)
    try:
        yield found
    finally:
        found.serve.close()


def test_an_occurrence_whose_target_is_away_comes_late_and_once_and_then_its_schedule_goes_on(scene: Scene) -> None:
    scene.start()
    schedule = scene.schedule(b"a")
    scene.goes_on(schedule)
    deny(scene.admin, scene.target, WRITE)
    wait_until(lambda: bool(scene.serve.events("target_away")), "the target is away", SOON_S)
    other = scene.send(b"other", ("tarry-delay-ms", b"3000"), target=scene.other)
    wait_until(lambda: scene.delivered(scene.other) == [b"other"], f"{other} is delivered", SOON_S)
    allow(scene.admin, scene.target, WRITE)
    scene.goes_on(schedule)
    scene.goes_on(schedule)
    numbers = scene.numbers(schedule)
    assert numbers == list(range(1, len(numbers) + 1))
    headers: list[dict[str, Any]] = [dict(one.headers() or []) for one in read_topic(scene.bootstrap, scene.target)]
    due_ms = [int(one["tarry-due-ms"]) for one in headers]
    assert sorted(due_ms) == due_ms
    # While one waited, none followed.
    assert max(later - due for due, later in pairwise(due_ms)) >= 3_000
    assert scene.letters() == []


def test_without_the_right_to_write_to_the_intake_a_schedule_is_dead_when_it_is_read(scene: Scene) -> None:
    scene.start()
    assert scene.serve.events("no_schedules") == []
    assert scene.serve.stop() == 0
    schedule = scene.schedule(b"a")
    deny(scene.admin, scene.intake, WRITE)
    scene.start()
    [event] = scene.serve.events("no_schedules")
    assert event["topic"] == scene.intake
    assert scene.end_of(schedule)["reason"] == "schedules-not-accepted"
    (scene.folder / "tarry.toml").write_text(scene.config.toml(), encoding="utf-8")
    assert f"{scene.intake}: without WRITE it accepts no schedules" in tarry("check", cwd=scene.folder).out
    allow(scene.admin, scene.intake, WRITE)


def test_a_right_that_is_taken_away_ends_schedules_when_they_are_due_and_nothing_else(scene: Scene) -> None:
    scene.start()
    schedules = [scene.schedule(b"a"), scene.schedule(b"b")]
    scene.send(b"plain", ("tarry-delay-ms", b"8000"))
    for schedule in schedules:
        scene.goes_on(schedule)
    deny(scene.admin, scene.intake, WRITE)
    ends = [scene.end_of(schedule) for schedule in schedules]
    assert [(one["outcome"], one["reason"]) for one in ends] == [("dead", "schedules-not-accepted")] * 2
    assert sorted(dict(one.headers())["tarry-name"] for one in scene.letters()) == [b"a", b"b"]
    wait_until(lambda: b"plain" in scene.delivered(scene.target), "the other message is delivered", SOON_S)
    for schedule in schedules:
        numbers = scene.numbers(schedule)
        assert numbers == list(range(1, len(numbers) + 1))
    allow(scene.admin, scene.intake, WRITE)


@pytest.mark.exhaustive
def test_a_parked_occurrence_that_cannot_be_followed_is_dead_when_its_target_is_back(scene: Scene) -> None:
    scene.start()
    schedule = scene.schedule(b"a")
    scene.goes_on(schedule)
    deny(scene.admin, scene.target, WRITE)
    wait_until(lambda: bool(scene.serve.events("target_away")), "the target is away", SOON_S)
    scene.send(b"plain", ("tarry-delay-ms", b"0"))
    deny(scene.admin, scene.intake, WRITE)
    allow(scene.admin, scene.target, WRITE)
    assert scene.end_of(schedule)["reason"] == "schedules-not-accepted"
    wait_until(lambda: b"plain" in scene.delivered(scene.target), "the message behind it is delivered", SOON_S)
    allow(scene.admin, scene.intake, WRITE)


@pytest.mark.exhaustive
def test_an_intake_that_takes_smaller_records_than_before_ends_the_schedules_that_do_not_fit(scene: Scene) -> None:
    scene.start()
    large, small = scene.schedule(b"large", b"." * 20_000), scene.schedule(b"small")
    for schedule in (large, small):
        scene.goes_on(schedule)
    change_settings(scene.admin, scene.intake, max_message_bytes="10000")
    assert scene.end_of(large)["reason"] == "too-large"
    scene.goes_on(small)
    [letter] = scene.letters()
    assert (letter.key(), letter.value()) == (b"key", b"." * 20_000)
