"""`tarry pending`, `tarry status` and `tarry cancel` on a real broker, and the client's half of a cancel."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt
from tarry.errors import BrokerError, HeaderError
from tarry.handle import Handle
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import ends_of, make_topics, read_topic

SMALL = {"from": "2s", "width": "2s", "size": 4}
"""Four levels reach five minutes: buckets of 2, 8, 32 and 128 s."""

ADVICE = "check the name of the intake, or create its topics with `tarry topics`"

DELAYS_S = (0, 56, 100, 200)
"""The first is due, the second goes to level 3 and the last to level 4, at any time of the day."""


class ServedIntake:
    """An intake of two partitions with four levels, a target, and a service; 400 messages, a quarter of them due."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], directory: Path) -> None:
        self.bootstrap = bootstrap
        self.target = name("out")
        self.directory = directory
        self.config = ServeConfig(
            bootstrap,
            name("in"),
            partitions=2,
            group=name("group"),
            intake_settings={"max_delay": "5m"},
            overflow=SMALL,
        )
        self.serve = Serve(self.config, directory)
        self.receipts: list[Receipt] = []
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.target, 1, 1)])[self.target].result(30)

    def send(self) -> None:
        messages = [
            DelayedMessage(self.target, b"v", b"k%d" % number, delay=timedelta(seconds=DELAYS_S[number % 4]))
            for number in range(400)
        ]
        with DelayedProducer(self.bootstrap, self.config.intake) as producer:
            self.receipts = list(producer.send_many(messages))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        return tarry(*arguments, "--config", str(self.directory / "serve.toml"), cwd=self.directory)

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        code, out, err = self.run(*arguments, "--json")
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    def exactly(self) -> int:
        return sum(row["count"] for row in self.objects("pending", "--exact") if row["kind"] == "message")


@pytest.fixture
def scene(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[ServedIntake]:
    scene = ServedIntake(bootstrap, unique_name, tmp_path)
    try:
        yield scene
    finally:
        scene.serve.close()


def test_waiting_messages_are_counted_listed_and_found_while_served_and_after_a_kill(scene: ServedIntake) -> None:
    code, out, err = scene.run("pending")
    assert (code, out, err) == (
        1,
        "",
        f"tarry: there is no topic {scene.config.intake}: {ADVICE}\n",
    )
    scene.serve.start().wait_serving()
    assert scene.run("pending") == (0, f"{scene.config.intake}: nothing waits\n", "")
    scene.send()
    wait_until(lambda: len(read_topic(scene.bootstrap, scene.target)) == 100, "what is due is there")
    wait_until(lambda: {3, 4} <= {row["level"] for row in scene.objects("pending")}, "what is due later is filed")

    rows = scene.objects("pending")
    assert sum(row["at_most"] for row in rows) >= 300
    from_ms = {row["level"]: row["from_ms"] for row in rows if row["level"]}
    assert len(from_ms) == len([row for row in rows if row["level"]])
    assert scene.exactly() == 300
    fired, _, _, far = scene.receipts[:4]
    listed = scene.objects("pending", "--bucket", str(far.handle.due_ms))
    assert str(far.handle) in {one["handle"] for one in listed}
    assert {(one["target"], one["kind"]) for one in listed} == {(scene.target, "message")}

    [found] = scene.objects("status", str(far.handle))
    assert (found["state"], found["due_ms"], found["cancel_waits"]) == ("waiting", far.handle.due_ms, False)
    assert found["level"] >= 3
    assert from_ms[found["level"]] <= found["due_ms"]
    assert found["bucket_from_ms"] <= found["due_ms"] < found["bucket_until_ms"]
    [found] = scene.objects("status", str(fired.handle))
    assert (found["state"], found["target"]) == ("fired", scene.target)
    assert found["source"] == f"{scene.config.intake}/{fired.handle.partition}/{fired.offset}"
    code, out, _ = scene.run("status", str(Handle(*_place(far), far.handle.due_ms, str(uuid.uuid4()))))
    assert (code, out.partition(":")[0]) == (1, "unknown")

    scene.serve.kill()
    waiting = scene.exactly()
    assert waiting == 400 - len(read_topic(scene.bootstrap, scene.target))
    assert scene.objects("status", str(far.handle))[0]["state"] == "waiting"


def test_nothing_waits_by_offsets_in_levels_that_are_idle(scene: ServedIntake) -> None:
    scene.serve.start().wait_serving()
    with DelayedProducer(scene.bootstrap, scene.config.intake) as producer:
        for _ in range(4):
            producer.send(scene.target, b"v", delay=timedelta(seconds=12))
    level = f"{scene.config.intake}.wheel-2"
    wait_until(lambda: any(ends_of(scene.bootstrap, level, committed=True).values()), "they are filed")
    wait_until(lambda: len(read_topic(scene.bootstrap, scene.target)) == 4, "they are delivered")
    wait_until(lambda: scene.run("pending") == (0, f"{scene.config.intake}: nothing waits\n", ""), "nothing waits")


def _place(receipt: Receipt) -> tuple[str, int]:
    return receipt.handle.topic, receipt.handle.partition


# -- cancels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake of three partitions with its results, which nobody serves."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make_topics(admin, [topic_name, f"{topic_name}.results"], 3)
    return topic_name


def _handle(intake: str, partition: int = 2) -> Handle:
    return Handle(intake, partition, 1_767_225_600_000, str(uuid.uuid4()))


def _answer(bootstrap: str, handle: Handle, cancel_source: str, *outcomes: str) -> None:
    """Write results as the service would."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for outcome in outcomes:
        result = {"v": 1, "outcome": outcome, "id": handle.id, "cancel_source": cancel_source, "at_ms": 1}
        producer.produce(f"{handle.topic}.results", json.dumps(result), handle.id, handle.partition)
    assert producer.flush(20) == 0


def test_a_cancel_goes_to_the_partition_of_its_handle(bootstrap: str, intake: str) -> None:
    handle = _handle(intake)
    with DelayedProducer(bootstrap, intake) as producer:
        receipt = producer.cancel(str(handle))
        again = producer.cancel(handle)
        for bad in ("nonsense", f"{handle}0"):
            with pytest.raises(HeaderError, match="not a handle"):
                producer.cancel(bad)
        with pytest.raises(BrokerError):
            producer.cancel(_handle(intake, partition=9))
    assert (receipt.handle, receipt.source) == (handle, f"{intake}/2/0")
    assert again.source == f"{intake}/2/1"
    records = read_topic(bootstrap, intake)
    assert [(one.partition(), one.key(), one.value(), one.headers()) for one in records] == [
        (2, None, None, [("tarry-cancel", str(handle).encode())])
    ] * 2


def test_a_reader_of_outcomes_tells_its_cancel_from_others_and_stops_in_time(bootstrap: str, intake: str) -> None:
    handle = _handle(intake)
    with DelayedProducer(bootstrap, intake) as producer, OutcomeReader(bootstrap, intake) as outcomes:
        other, ours = producer.cancel(handle), producer.cancel(handle)
        assert list(outcomes.of_cancel(ours, 0.2)) == []
        _answer(bootstrap, handle, ours.source, "cancel-filed")
        _answer(bootstrap, handle, other.source, "cancelled")
        assert [one["outcome"] for one in outcomes.of_cancel(ours, 3)] == ["cancel-filed"]
        _answer(bootstrap, handle, ours.source, "cancel-too-late", "fired")
        assert [one["outcome"] for one in outcomes.of_cancel(ours, 30)] == ["cancel-filed", "cancel-too-late"]


@pytest.mark.parametrize(
    ("outcomes", "code", "says"),
    [
        (("cancelled",), 0, ["accepted", "cancelled"]),
        (("cancel-filed", "cancelled"), 0, ["accepted", "cancel-filed: accepted; the message", "cancelled"]),
        (("cancel-too-late",), 1, ["accepted", "cancel-too-late: there was nothing to cancel"]),
    ],
)
def test_the_command_waits_for_the_answer(
    bootstrap: str, intake: str, tmp_path: Path, outcomes: tuple[str, ...], code: int, says: list[str]
) -> None:
    handle = _handle(intake)
    command = [sys.executable, "-m", "tarry", "cancel", str(handle), "--wait", "--intake", intake]
    command += ["--bootstrap-servers", bootstrap]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: len(read_topic(bootstrap, intake)) == 1, "the cancel is there")
        _answer(bootstrap, handle, f"{intake}/2/0", *outcomes)
        out, _ = running.communicate(timeout=40)
    assert running.returncode == code
    lines = out.splitlines()
    assert len(lines) == len(says)
    assert all(line.startswith(beginning) for line, beginning in zip(lines, says, strict=True))


def test_the_command_without_an_answer(bootstrap: str, intake: str, tmp_path: Path) -> None:
    servers = ("--bootstrap-servers", bootstrap, "--intake", intake)
    handle = str(_handle(intake))
    assert tarry("cancel", handle, *servers, cwd=tmp_path) == (0, "accepted\n", "")
    code, out, err = tarry("cancel", handle, "--json", *servers, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert json.loads(out) == {"handle": handle, "state": "accepted", "cancel_source": f"{intake}/2/1"}
    code, out, err = tarry("cancel", handle, "--wait", "--timeout", "500ms", *servers, cwd=tmp_path)
    assert (code, out) == (1, "accepted\n")
    assert err.startswith("tarry: no answer within 500ms: the broker has accepted the cancel; ")
    for wrong, wanted in ((str(_handle(intake, 9)), 1), (str(_handle(f"{intake}.none")), 1), ("nonsense", 2)):
        code, out, err = tarry("cancel", wrong, *servers, cwd=tmp_path)
        assert (code, out) == (wanted, "")
        assert err.startswith("tarry: ")
        assert err.count("\n") == 1
