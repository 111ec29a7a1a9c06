"""Messages that expire and messages with a window, from the client to the service and back."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.cimpl import NewTopic

from tarry.client import AsyncDelayedProducer, DelayedProducer, OutcomeReader, Receipt, TransactionalDelays
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.rights import allow, deny
from tests.support.topics import read_topic

ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"


class Scene:
    """A service with one intake, and clients of it; messages that are due after 2 s go to a level."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], folder: Path) -> None:
        self.bootstrap = bootstrap
        self.target = name("out")
        self.config = ServeConfig(
            bootstrap,
            name("in"),
            partitions=2,
            group=name("group"),
            intake_settings={"max_delay": "60s"},
            overflow={"from": "2s", "width": "1s", "size": 3},
        )
        self.intake = self.config.intake
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(self.target, 1, 1)])[self.target].result(30)
        self.serve = Serve(self.config, folder)
        self.serve.start().wait_serving()
        self.producer = DelayedProducer(bootstrap, self.intake)
        self.outcomes = OutcomeReader(bootstrap, self.intake)

    def close(self) -> None:
        self.outcomes.close()
        self.producer.close()
        self.serve.close()

    def result(self, subject: Any) -> dict[str, Any]:
        return dict(self.outcomes.await_outcome(subject, 40))

    def is_filed(self) -> bool:
        return any(read_topic(self.bootstrap, f"{self.intake}.wheel-{level}") for level in (1, 2, 3))

    def delivered(self) -> list[bytes]:
        return [record.value() or b"" for record in read_topic(self.bootstrap, self.target)]

    def dead(self) -> list[Any]:
        return list(read_topic(self.bootstrap, f"{self.intake}.dead"))


@pytest.fixture
def scene(bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Scene]:
    found = Scene(bootstrap_of_authorizer, unique_name, tmp_path)
    try:
        yield found
    finally:
        found.close()


def wait_for(moment: datetime) -> None:
    wait_until(lambda: datetime.now(UTC) > moment, f"it is {moment}", within_s=60)


def test_what_expires_before_it_is_due_is_dead_at_once_and_its_letter_is_the_original(scene: Scene) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("own", b"\x00\xff"),
        ("tarry-target", scene.target.encode()),
        ("tarry-id", ID.encode()),
        ("tarry-delay-ms", b"30000"),
        ("tarry-expires-at", b"2026-01-01T00:00:00.250+01:00"),
        ("tarry-window-ms", b"1000"),
    ]
    producer = Producer({"bootstrap.servers": scene.bootstrap})
    producer.produce(scene.intake, b"v", b"k", headers=headers)
    producer.close()
    wait_until(lambda: len(scene.dead()) == 1, "it is dead")
    letter = scene.dead()[0]
    assert (letter.key(), letter.value()) == (b"k", b"v")
    assert letter.headers()[: len(headers)] == headers
    error = dict(letter.headers())
    assert error["tarry-error"] == b"expired"
    assert error["tarry-error-detail"].startswith(b"tarry-expires-at is 2025-12-31T23:00:00.250Z, before it is due (")
    [result] = [json.loads(one.value() or b"") for one in read_topic(scene.bootstrap, f"{scene.intake}.results")]
    assert [result[one] for one in ("outcome", "reason", "id", "target")] == ["dead", "expired", ID, scene.target]
    assert scene.delivered() == []


def test_what_is_late_after_an_outage_is_dead_wherever_it_waited_and_the_rest_comes(scene: Scene) -> None:
    due = datetime.now(UTC) + timedelta(seconds=8)
    expires_at = due + timedelta(seconds=1)
    send, target = scene.producer.send, scene.target
    sent = {
        b"filed": send(target, b"filed", b"k", at=due, expires_at=expires_at, headers={"own": b"1"}),
        b"named": send(target, b"named", b"k", at=due, expires_at=expires_at, name="lease"),
        b"kept": send(target, b"kept", b"k", at=due, expires_at=due + timedelta(days=1)),
        b"ever": send(target, b"ever", b"k", at=due),
    }
    wait_until(scene.is_filed, "they are filed")
    scene.serve.kill()
    # Read for the first time when it is overdue.
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    sent[b"in memory"] = send(target, b"in memory", b"k", at=soon, expires_at=soon)
    wait_for(expires_at)
    scene.serve.start().wait_serving()
    results = {value: scene.result(receipt) for value, receipt in sent.items()}
    assert {value: result["outcome"] for value, result in results.items()} == {
        **dict.fromkeys((b"filed", b"named", b"in memory"), "dead"),
        **dict.fromkeys((b"kept", b"ever"), "fired"),
    }
    assert {results[value]["reason"] for value in (b"filed", b"named", b"in memory")} == {"expired"}
    assert scene.delivered() == [b"kept", b"ever"]
    letters = {one.value(): dict(one.headers() or []) for one in scene.dead()}
    assert letters.keys() == {b"filed", b"named", b"in memory"}
    assert letters[b"filed"]["own"] == b"1"
    assert letters[b"filed"]["tarry-expires-at"] == b"%d" % (expires_at.timestamp() * 1_000 // 1 + 1)
    assert results[b"filed"]["due_ms"] == sent[b"filed"].handle.due_ms
    # The name is free.
    again = send(target, b"again", b"k", delay=timedelta(0), name="lease", only_if="absent")
    assert scene.result(again)["outcome"] == "fired"


def test_what_its_target_keeps_waiting_is_judged_when_the_target_is_back(scene: Scene) -> None:
    deny(scene.admin, scene.target, AclOperation.WRITE)
    now = datetime.now(UTC)
    send, target = scene.producer.send, scene.target
    short = send(target, b"short", b"k", delay=timedelta(0), expires_at=now + timedelta(seconds=4))
    long = send(target, b"long", b"k", delay=timedelta(0), expires_at=now + timedelta(hours=1))
    wait_for(now + timedelta(seconds=4))
    # What is sent now is answered, although these two are not.
    other = scene.producer.send(f"{target}-that-is-not-there", b"other", b"k", delay=timedelta(0))
    assert scene.result(other)["reason"] == "unknown-target"
    assert [one.value() for one in scene.dead()] == [b"other"]
    allow(scene.admin, scene.target, AclOperation.WRITE)
    assert scene.result(short)["reason"] == "expired"
    assert scene.result(long)["outcome"] == "fired"
    assert scene.delivered() == [b"long"]


def test_a_window_spreads_messages_and_the_handles_of_all_clients_cancel_them(
    scene: Scene, unique_name: Callable[[str], str]
) -> None:
    at, window = datetime.now(UTC) + timedelta(seconds=6), timedelta(seconds=12)
    expires_at = at + timedelta(hours=1)
    own = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": unique_name("application")})
    own.init_transactions(30)
    delays = TransactionalDelays(own, scene.intake)
    own.begin_transaction()
    pending = [delays.send(scene.target, b"v", b"t", at=at, window=window, expires_at=expires_at) for _ in range(8)]
    own.commit_transaction(30)
    own.close()

    async def send() -> list[Receipt]:
        async with AsyncDelayedProducer(scene.bootstrap, scene.intake) as producer:
            sends = (
                producer.send(scene.target, b"v", b"a", at=at, window=window, expires_at=expires_at) for _ in range(8)
            )
            return await asyncio.gather(*sends)

    sent = [one.receipt() for one in pending] + asyncio.run(send())
    sent += [
        scene.producer.send(scene.target, b"v", b"s", at=at, window=window, expires_at=expires_at) for _ in range(8)
    ]
    begin_ms = min(one.handle.due_ms for one in sent)
    assert all(at <= one.due < at + window + timedelta(milliseconds=1) for one in sent)
    assert max(one.handle.due_ms for one in sent) - begin_ms > 3_000
    wait_until(scene.is_filed, "some are filed")
    kept, cancelled = sent[::2], sent[1::2]
    cancels = [scene.producer.cancel(one.handle) for one in cancelled]
    for cancel, message in zip(cancels, cancelled, strict=True):
        assert list(scene.outcomes.of_cancel(cancel, 60))[-1]["outcome"] == "cancelled"
        assert scene.result(message)["outcome"] == "cancelled"
    results = [scene.result(one) for one in kept]
    assert [(one["outcome"], one["due_ms"]) for one in results] == [("fired", one.handle.due_ms) for one in kept]
    records = read_topic(scene.bootstrap, scene.target)
    assert len(records) == len(kept)
    assert all({"tarry-window-ms", "tarry-expires-at"}.isdisjoint(dict(one.headers() or [])) for one in records)


def test_the_commands_send_find_and_cancel_a_message_with_a_window(scene: Scene, tmp_path: Path) -> None:
    settings = tmp_path / "group.toml"
    settings.write_text(f'[service]\ngroup = "{scene.config.group}"\n[[intake]]\ntopic = "{scene.intake}"\n')
    shared = ("--bootstrap-servers", scene.bootstrap, "--config", str(settings))
    at = (datetime.now(UTC) + timedelta(seconds=15)).replace(microsecond=0)
    limits = ("--at", at.isoformat(), "--window", "1s", "--expires-in", "10m", "--id", str(UUID(int=0)))
    sent = json.loads(tarry("send", scene.target, "x", "--key", "k", *limits, *shared, cwd=tmp_path).out)
    assert sent["due_ms"] == at.timestamp() * 1_000 + 529
    assert tarry("status", sent["handle"], *shared, cwd=tmp_path).out.startswith("waiting: ")
    cancelled = tarry("cancel", sent["handle"], "--wait", *shared, cwd=tmp_path)
    assert (cancelled.code, cancelled.out.splitlines()[-1]) == (0, "cancelled")
    refused = tarry("send", scene.target, "x", "--delay", "5s", "--expires-in", "1s", *shared, cwd=tmp_path)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert refused.err.startswith("tarry: expires_at: 20")


def test_a_redrive_leaves_out_what_has_expired_and_sends_it_without_its_expiry_if_asked_to(
    scene: Scene, tmp_path: Path
) -> None:
    scene.serve.kill()
    now = datetime.now(UTC)
    late = scene.producer.send(scene.target, b"late", b"k", at=now, expires_at=now)
    wait_for(now)
    scene.serve.start().wait_serving()
    assert scene.result(late)["reason"] == "expired"
    dead = f"{scene.intake}.dead"
    redrive = ("redrive", dead, "--to", scene.intake, "--bootstrap-servers", scene.bootstrap)
    left_out = (
        f"tarry: 1 of {dead} are left out, because they have expired: --expired sends them without tarry-expires-at"
    )
    assert tarry(*redrive, cwd=tmp_path) == (0, f"sent 0 to {scene.intake}\n", f"{left_out}\n")
    assert tarry(*redrive, "--expired", cwd=tmp_path) == (0, f"sent 1 to {scene.intake}\n", "")
    wait_until(lambda: scene.delivered() == [b"late"], "it is delivered however late")
    assert tarry(*redrive, "--expired", cwd=tmp_path).out == f"sent 0 to {scene.intake}\n"
