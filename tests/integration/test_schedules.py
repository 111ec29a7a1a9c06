"""Schedules from the client to the service and back: in memory, in a level, through a crash, and by all clients."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import AsyncDelayedProducer, DelayedProducer, OutcomeReader, TransactionalDelays
from tarry.headers import occurrence_id
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import read_topic

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


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
            intake_settings={"max_delay": "40s"},
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

    def decision(self, receipt: Any) -> str:
        return str(self.outcomes.await_decision(receipt, 30)["outcome"])

    def delivered(self, value: bytes) -> list[Message]:
        return [record for record in read_topic(self.bootstrap, self.target) if record.value() == value]

    def wait_delivered(self, value: bytes, count: int) -> list[dict[str, bytes]]:
        """Wait for so many occurrences; return the headers of all that there are."""
        wait_until(lambda: len(self.delivered(value)) >= count, f"{count} of {value!r} are delivered")
        found = [dict(record.headers() or []) for record in self.delivered(value)]
        return [{key: one for key, one in headers.items() if isinstance(one, bytes)} for headers in found]


@pytest.fixture
def scene(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    found = Scene(bootstrap, unique_name, tmp_path)
    try:
        yield found
    finally:
        found.close()


def check(occurrences: list[dict[str, bytes]], schedule: str, every_ms: int) -> None:
    """Check that occurrences are those of an interval, each with its own id, and that none came twice."""
    due_ms = [int(one["tarry-due-ms"]) for one in occurrences]
    assert all(one % every_ms == 0 for one in due_ms)
    assert due_ms == sorted(set(due_ms))
    assert [one["tarry-id"] for one in occurrences] == [occurrence_id(schedule.encode(), one) for one in due_ms]
    assert [int(one["tarry-occurrence"]) for one in occurrences] == list(range(1, len(occurrences) + 1))
    assert {one["tarry-schedule"] for one in occurrences} == {schedule.encode()}


def test_a_schedule_goes_on_until_it_is_cancelled_by_name(scene: Scene) -> None:
    receipt = scene.producer.repeat(
        scene.target, b"v", b"k", name="n", every=SECOND, only_if="absent", headers={"own": "1"}
    )
    assert scene.decision(receipt) == "scheduled"
    check(scene.wait_delivered(b"v", 3), receipt.id, 1_000)
    again = scene.producer.repeat(scene.target, b"again", b"k", name="n", every=SECOND, only_if="absent")
    assert scene.outcome(again) == "skipped"
    assert scene.outcome(scene.producer.cancel_named(b"k", "n")) == "cancelled"
    assert scene.outcome(receipt) == "cancelled"
    count = len(scene.delivered(b"v"))
    marker = scene.producer.send(scene.target, b"marker", b"k", delay=2 * SECOND)
    assert scene.outcome(marker) == "fired"
    occurrences = scene.wait_delivered(b"v", count)
    assert len(occurrences) == count
    assert {one["own"] for one in occurrences} == {b"1"}
    assert not {"tarry-name", "tarry-every", "tarry-if", "tarry-next"} & set(occurrences[0])
    assert scene.delivered(b"again") == []
    results = [json.loads(one.value() or b"") for one in read_topic(scene.bootstrap, f"{scene.intake}.results")]
    fired = [one for one in results if one.get("schedule") == receipt.id]
    assert [one["outcome"] for one in fired] == ["fired"] * count
    assert receipt.id not in {one["id"] for one in fired}


def test_a_schedule_survives_a_crash_of_the_service_and_is_replaced_in_a_level(scene: Scene) -> None:
    repeat = scene.producer.repeat
    far = repeat(scene.target, b"far", b"k", name="far", cron="0 0 1 1 *", zone="Europe/Berlin")
    near = repeat(scene.target, b"near", b"k", name="near", every=SECOND)

    def is_filed() -> bool:
        return any(read_topic(scene.bootstrap, f"{scene.intake}.wheel-{level}") for level in (1, 2, 3))

    wait_until(is_filed, "it is filed to a level")
    scene.wait_delivered(b"near", 2)
    scene.serve.kill()
    scene.serve.start().wait_serving()
    check(scene.wait_delivered(b"near", len(scene.delivered(b"near")) + 2), near.id, 1_000)
    assert scene.outcome(repeat(scene.target, b"far 2", b"k", name="far", every=HOUR, only_if="absent")) == "skipped"
    new = repeat(scene.target, b"new", b"k", name="far", every=SECOND)
    assert scene.outcome(far) == "replaced"
    check(scene.wait_delivered(b"new", 2), new.id, 1_000)
    # A single message takes the place of a schedule, and ends it.
    single = scene.producer.send(scene.target, b"single", b"k", delay=SECOND, name="near")
    assert (scene.outcome(near), scene.outcome(single)) == ("replaced", "fired")


def test_the_service_decides_what_the_client_cannot_check(scene: Scene) -> None:
    receipt = scene.producer.repeat(scene.target, b"v", b"k", name="n", cron="0 9 31 2 *")
    assert scene.outcomes.await_outcome(receipt, 30)["reason"] == "bad-schedule"
    nowhere = scene.producer.repeat(scene.target, b"v", b"k", name="n", cron="0 9 * * *", zone="Europe/Nowhere")
    assert scene.outcomes.await_outcome(nowhere, 30)["reason"] == "bad-schedule"
    ends = datetime.now(UTC) + 4 * SECOND
    expiring = scene.producer.repeat(scene.target, b"v", b"k", name="n", every=SECOND, expires_at=ends)
    result = scene.outcomes.await_outcome(expiring, 30)
    assert (result["outcome"], result["reason"], result["id"]) == ("dead", "expired", expiring.id)
    check(scene.wait_delivered(b"v", 1), expiring.id, 1_000)


def test_all_clients_begin_schedules(scene: Scene, unique_name: Callable[[str], str]) -> None:
    async def begin() -> Any:
        async with AsyncDelayedProducer(scene.bootstrap, scene.intake) as producer:
            return await producer.repeat(scene.target, b"async", b"k", name="async", every=SECOND)

    asynchronous = asyncio.run(begin())
    application = Producer(
        {"bootstrap.servers": scene.bootstrap, "transactional.id": unique_name("app"), "log_level": 0}
    )
    application.init_transactions()
    delays = TransactionalDelays(application, scene.intake)
    application.begin_transaction()
    aborted = delays.repeat(scene.target, b"aborted", b"k", name="transaction", every=SECOND)
    application.flush()
    application.abort_transaction()
    application.begin_transaction()
    pending = delays.repeat(scene.target, b"transaction", b"k", name="transaction", every=SECOND)
    application.commit_transaction()
    receipt = pending.receipt()
    assert receipt.id == pending.id != aborted.id
    check(scene.wait_delivered(b"async", 2), asynchronous.id, 1_000)
    check(scene.wait_delivered(b"transaction", 2), receipt.id, 1_000)
    assert scene.delivered(b"aborted") == []


def test_the_command_begins_schedules_and_waits_for_what_comes_first(scene: Scene, tmp_path: Path) -> None:
    shared = ("--bootstrap-servers", scene.bootstrap, "--intake", scene.intake)

    def send(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        said = tarry("send", *arguments, *shared, cwd=tmp_path)
        assert said.err == ""
        return said.code, [json.loads(line) for line in said.out.splitlines()]

    named = ("--key", "k", "--name", "n", "--if", "absent")
    code, (receipt, decision, first) = send(scene.target, "v", *named, "--every", "1s", "--wait")
    assert (code, decision["outcome"], first["outcome"]) == (0, "scheduled", "fired")
    assert (first["schedule"], first["occurrence"]) == (receipt["id"], 1)
    assert first["due_ms"] == receipt["next_ms"]
    code, (_, skipped) = send(scene.target, "v", *named, "--every", "1s", "--wait")
    assert (code, skipped["outcome"]) == (0, "skipped")
    code, (_, dead) = send("__internal", "v", "--key", "k", "--name", "dead", "--cron", "* * * * *", "--wait")
    assert (code, dead["outcome"], dead["reason"]) == (1, "dead", "internal-target")

    lines = [
        {"target": scene.target, "value": "file", "key": "k", "name": "file", "every": "1s"},
        {"target": scene.target, "value": "single", "key": "k", "delay": "0s"},
        {"target": scene.target, "value": "file", "key": "k", "name": "yearly", "cron": "0 0 1 1 *", "zone": "UTC"},
    ]
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    code, (often, single, yearly) = send("--file", str(file))
    assert code == 0
    assert "handle" in single
    assert yearly["next"].endswith("-01-01T00:00:00.000Z")
    check(scene.wait_delivered(b"file", 2), often["id"], 1_000)


def test_the_commands_list_schedules_and_say_where_one_is(scene: Scene, tmp_path: Path) -> None:
    settings = tmp_path / "tarry.toml"
    settings.write_text(
        f'[kafka]\nbootstrap_servers = "{scene.bootstrap}"\n[service]\ngroup = "{scene.config.group}"\n'
        f'[[intake]]\ntopic = "{scene.intake}"\npartitions = 2\n'
    )
    far = scene.producer.repeat(scene.target, b"v", b"k", name="far", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    often = scene.producer.repeat(scene.target, b"often", b"l", name="often", every=SECOND)
    scene.wait_delivered(b"often", 1)

    def listed(*arguments: str) -> dict[str, dict[str, Any]]:
        said = tarry("schedules", "--json", *arguments, cwd=tmp_path)
        assert (said.code, said.err) == (0, "")
        return {one["id"]: one for one in map(json.loads, said.out.splitlines())}

    wait_until(lambda: listed()[far.id]["level"] > 0, "it is filed to a level")
    # However often one is delivered meanwhile, the command finds it.
    for arguments in ((), (), ("--key", "l"), ("--key", "l", "--name", "often"), ("--intake", scene.intake)):
        found = listed(*arguments)
        assert often.id in found, (arguments, found)
        assert found[often.id]["every"] == "1s"
        assert (far.id in found) == ("--key" not in arguments)
    [one] = listed("--key", "k", "--name", "far").values()
    assert (one["cron"], one["zone"], one["occurrence"]) == ("0 9 * * MON-FRI", "Europe/Berlin", 1)
    assert len(one["then"]) == 2

    def state(key: str, name: str) -> dict[str, Any]:
        said = tarry("status", "--json", "--key", key, "--name", name, cwd=tmp_path)
        assert said.err == ""
        return dict(json.loads(said.out))

    assert state("k", "far")["handle"] == one["handle"]
    assert state("l", "often")["schedule"] == often.id
    text = tarry("status", one["handle"], cwd=tmp_path).out
    assert "; occurrence 1 of a schedule: 0 9 * * MON-FRI in Europe/Berlin, then " in text
    cancelled = tarry("cancel", "--key", "k", "--name", "far", "--wait", cwd=tmp_path)
    assert cancelled.out == "accepted\ncancelled\n"
    assert set(listed()) == {often.id}


def test_the_dead_letter_of_a_schedule_that_is_sent_again_begins_it_anew(scene: Scene, tmp_path: Path) -> None:
    ends = datetime.now(UTC) + 4 * SECOND
    receipt = scene.producer.repeat(scene.target, b"v", b"k", name="n", every=SECOND, expires_at=ends)
    assert scene.outcomes.await_outcome(receipt, 30)["reason"] == "expired"
    count = len(scene.delivered(b"v"))
    assert count > 0
    [letter] = read_topic(scene.bootstrap, f"{scene.intake}.dead")
    assert "tarry-next" in dict(letter.headers() or [])
    command = ("redrive", f"{scene.intake}.dead", "--to", scene.intake, "--bootstrap-servers", scene.bootstrap)
    assert tarry(*command, "--expired", cwd=tmp_path).out == f"sent 1 to {scene.intake}\n"
    again = scene.wait_delivered(b"v", count + 2)[count:]
    check(again, receipt.id, 1_000)
    assert scene.outcome(scene.producer.cancel_named(b"k", "n")) == "cancelled"
