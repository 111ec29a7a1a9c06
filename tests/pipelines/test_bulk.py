"""`forecast`, `shift` and `cancel` over a running service, whose messages wait in memory and in buckets."""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from tarry.core.murmur2 import partition_of
from tarry.core.request.intake_policy import IntakePolicy
from tarry.kafka.settings import Cluster
from tarry.pipelines.backlog import forecast, plan
from tarry.pipelines.backlog.bulk import BulkDone, Run
from tarry.pipelines.backlog.plan import Action
from tarry.pipelines.backlog.waiting import matching_messages, waiting
from tarry.pipelines.topics import TopicTables
from tarry.testing.serve import Serve, ServeConfig
from tests.support.brokers import wait_until
from tests.support.buckets import waiting_in_buckets
from tests.support.chaos import now_ms
from tests.support.ignoring import ignore
from tests.support.spark_job import SparkJob
from tests.support.stage import inbox

pytestmark = pytest.mark.broker

MINUTE_MS: Final = 60_000
PARTITIONS: Final = 2
MAX_DELAY_MS: Final = 30 * MINUTE_MS
WHEEL: Final = {"from": "40s", "width": "40s", "size": 16}
"""At any time of the day, a delay of 5 minutes goes to level 1, and one of 20 minutes to level 2."""

Message = tuple[str, int, bytes, bytes, int, str]
"""Target, partition, key, value, due time, id."""


class IntakeWithBacklog:
    """An intake with a service, and targets `campaign` and `bills`; messages wait in two levels of buckets."""

    def __init__(self, bootstrap: str, name: str, directory: Path, until_the_end: ExitStack) -> None:
        self.bootstrap = bootstrap
        self.cluster = Cluster(bootstrap)
        self.intake = f"{name}.in"
        self.group = f"{name}.group"
        self.campaign, self.bills = f"{name}.campaign", f"{name}.bills"
        self.directory = directory
        self.policy = IntakePolicy(self.intake, max_delay_ms=MAX_DELAY_MS)
        config = ServeConfig(
            bootstrap,
            self.intake,
            PARTITIONS,
            self.group,
            intake_settings={"max_delay": "30m"},
            overflow=WHEEL,
        )
        admin = AdminClient(self.cluster.client())
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in (self.campaign, self.bills)]).values():
            made.result(30)
        self._producer = Producer(self.cluster.client())
        until_the_end.callback(self._producer.close)
        self.serve = Serve(config, directory)
        until_the_end.callback(self.serve.close)
        self.serve.start().wait_serving()

    def send(self, target: str, prefix: str, count: int, due_ms: int) -> list[Message]:
        """Messages that are due a millisecond one after the other, on all partitions."""
        messages = []
        for number in range(count):
            key, id_ = f"{prefix}{number}".encode(), str(uuid.uuid4())
            message = (target, number % PARTITIONS, key, b"v " + key, due_ms + number, id_)
            messages.append(message)
            headers: list[tuple[str, str | bytes | None]] = [
                ("tarry-target", target),
                ("tarry-deliver-at", str(due_ms + number)),
                ("tarry-id", id_),
                ("own", key),
            ]
            self._producer.produce(self.intake, message[3], key, message[1], headers=headers)
        assert self._producer.flush(20) == 0
        return messages

    def send_named(self, target: str, value: bytes, keys: list[bytes], due_ms: int) -> list[Message]:
        """Messages with the same name, one for each key."""
        messages = []
        for number, key in enumerate(keys):
            message = (target, partition_of(key, PARTITIONS), key, value, due_ms + number, str(uuid.uuid4()))
            messages.append(message)
            headers: list[tuple[str, str | bytes | None]] = [
                ("tarry-target", target),
                ("tarry-deliver-at", str(message[4])),
                ("tarry-id", message[5]),
                ("tarry-name", "timer"),
            ]
            self._producer.produce(self.intake, value, key, message[1], headers=headers)
        assert self._producer.flush(20) == 0
        return messages

    def cancel_named(self, keys: list[bytes]) -> None:
        for key in keys:
            headers: list[tuple[str, str | bytes | None]] = [("tarry-cancel-name", "timer")]
            self._producer.produce(self.intake, None, key, partition_of(key, PARTITIONS), headers=headers)
        assert self._producer.flush(20) == 0

    def cancel(self, *messages: Message) -> None:
        for _, partition, _, _, due_ms, id_ in messages:
            handle = f"1.{self.intake}.{partition}.{due_ms}.{id_}"
            self._producer.produce(self.intake, partition=partition, headers=[("tarry-cancel", handle)])
        assert self._producer.flush(20) == 0

    def wait_filed(self, count: int) -> None:
        wait_until(
            lambda: waiting_in_buckets(self.bootstrap, self.intake) >= count, f"{count} lie in buckets", within_s=60
        )

    def arrived(self, topic: str, count: int, within_s: float = 60.0) -> list[Any]:
        """All records of a target, once there are so many."""
        with inbox(self.cluster, [topic]) as records:
            wait_until(lambda: len(records.poll(0.1)) >= count, f"{count} records in {topic}", within_s)
            return list(records.records)

    def results(self) -> list[dict[str, Any]]:
        with inbox(self.cluster, [f"{self.intake}.results"]) as records:
            return [json.loads(record.value() or b"") for record in records.read_to_the_end()]


class Bulk:
    """Does what the commands do, in this process."""

    def __init__(self, scene: IntakeWithBacklog, spark: SparkSession, topics: TopicTables) -> None:
        self._scene = scene
        self._spark = spark
        self._topics = topics

    def waiting(self) -> DataFrame:
        scene = self._scene
        return waiting(self._topics, scene.group, scene.policy, on_progress=ignore)

    def plan(self, action: Action, where: str, by_ms: int = 0) -> str:
        """Write a plan, and return where."""
        name = uuid.uuid4()
        path = str(self._scene.directory / f"plan-{name}")
        chosen = matching_messages(self.waiting(), where)
        made = plan.plan(chosen, self._scene.policy, action, by_ms=by_ms, name=name, made_ms=now_ms())
        plan.write(made, path)
        return path

    def run(
        self, path: str, action: Action, *, is_new: bool = False, margin_ms: int = 0, wait_s: float = 60
    ) -> BulkDone:
        run = Run(
            self._topics,
            self._scene.group,
            self._scene.policy,
            margin_ms=margin_ms,
            at_once=50,
            wait_s=wait_s,
            on_progress=ignore,
        )
        return run.run(plan.read_plan(self._spark, path, action), is_new=is_new)


@pytest.fixture
def scene(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[IntakeWithBacklog]:
    with ExitStack() as until_the_end:
        yield IntakeWithBacklog(bootstrap, unique_name("bulk"), tmp_path, until_the_end)


@pytest.fixture
def bulk(scene: IntakeWithBacklog, spark: SparkSession, topics: TopicTables) -> Bulk:
    return Bulk(scene, spark, topics)


def found(messages: DataFrame) -> list[Message]:
    rows = messages.select("target", "partition", "key", "value", "due_ms", "id").collect()
    return sorted((*row[:2], bytes(row[2]), bytes(row[3]), *row[4:]) for row in rows)


def test_waiting_messages_are_counted_shifted_and_cancelled(scene: IntakeWithBacklog, bulk: Bulk) -> None:
    start_ms = now_ms()
    xs = scene.send(scene.campaign, "x", 120, start_ms + 20 * MINUTE_MS)
    ys = scene.send(scene.campaign, "y", 40, start_ms + 20 * MINUTE_MS)
    zs = scene.send(scene.bills, "z", 60, start_ms + 5 * MINUTE_MS)
    at_once = scene.send(scene.bills, "now", 10, start_ms)
    scene.cancel(*ys[:4])
    scene.wait_filed(len(xs) + len(ys) + len(zs) + 4)
    # What the service has no time for any more is in the intake alone.
    assert len(scene.arrived(scene.bills, len(at_once))) == len(at_once)
    scene.serve.stop()
    unread = scene.send(scene.campaign, "unread", 10, start_ms + 10 * MINUTE_MS)
    scene.cancel(ys[4])
    ys = ys[5:]

    messages = bulk.waiting().localCheckpoint()
    assert found(messages) == sorted([*xs, *ys, *zs, *unread])
    assert {row.level for row in messages.select("level").distinct().collect()} == {0, 1, 2}
    (first,) = matching_messages(messages, "key = 'x7'").collect()
    assert [(header.key, bytes(header.value)) for header in first.headers][-1] == ("own", b"x7")
    rows = forecast.rows_of(forecast.forecast(messages, MINUTE_MS))
    assert sum(row.count for row in rows) == len(xs) + len(ys) + len(zs) + len(unread)
    counted = Counter((row.target, row.due_ms) for row in rows for _ in range(row.count))
    sent = [*xs, *ys, *zs, *unread]
    assert counted == Counter((one[0], one[4] // MINUTE_MS * MINUTE_MS) for one in sent)

    scene.serve.start().wait_serving()
    # Due some seconds from now, on a machine that may be slow: late is allowed, and early is not.
    by_ms = now_ms() + 5_000 - xs[0][4]
    shifting = bulk.plan("shift", f"target = '{scene.campaign}' and key like 'x%'", by_ms)
    assert bulk.run(shifting, "shift", is_new=True) == BulkDone(len(xs), len(xs), 0, 0, 0, 0, 0)
    assert bulk.run(shifting, "shift") == BulkDone(len(xs), 0, len(xs), 0, 0, 0, 0)
    cancelling = bulk.plan("cancel", f"target = '{scene.bills}'")
    assert bulk.run(cancelling, "cancel") == BulkDone(len(zs), len(zs), 0, 0, 0, 0, 0)
    assert bulk.run(cancelling, "cancel") == BulkDone(len(zs), 0, len(zs), 0, 0, 0, 0)

    arrived = scene.arrived(scene.campaign, len(xs))
    assert found(bulk.waiting()) == sorted([*ys, *unread])
    assert scene.serve.stop() == 0
    assert len(scene.arrived(scene.campaign, len(xs))) == len(xs)
    assert len(scene.arrived(scene.bills, len(at_once))) == len(at_once)
    due = {one[2]: one[4] + by_ms for one in xs}
    assert Counter(record.key() for record in arrived) == Counter(due.keys())
    for record in arrived:
        headers = dict(record.headers())
        assert int(headers["tarry-due-ms"]) == due[record.key()] <= record.timestamp()[1]
        assert (record.value(), headers["own"]) == (b"v " + record.key(), record.key())
        assert set(headers) == {"own", "tarry-id", "tarry-due-ms", "tarry-source"}
    # Of one partition in the order of their due times, as they were.
    for partition in range(PARTITIONS):
        keys = [one[2] for one in xs if one[1] == partition]
        assert [record.key() for record in arrived if record.key() in keys] == keys


def test_named_messages_are_shifted_once_under_their_names(scene: IntakeWithBacklog, bulk: Bulk) -> None:
    due_ms = now_ms() + 20 * MINUTE_MS
    keys = [b"k%d" % number for number in range(8)]
    scene.send_named(scene.campaign, b"old", keys, due_ms)
    scene.wait_filed(len(keys))
    sent = scene.send_named(scene.campaign, b"new", keys, due_ms)
    scene.wait_filed(2 * len(keys))  # the copies that were replaced lie there, too
    scene.cancel_named(keys[:1])
    wait_until(lambda: len(scene.results()) == len(keys) + 2, "the first one is cancelled")
    assert found(bulk.waiting()) == sorted(sent[1:])
    assert len(forecast.rows_of(forecast.forecast(bulk.waiting(), 60 * MINUTE_MS))) <= 2

    shifting = bulk.plan("shift", "true", now_ms() + 5_000 - due_ms)
    scene.cancel_named(keys[1:2])
    wait_until(lambda: len(scene.results()) == len(keys) + 4, "the second one is cancelled")
    # As a run does that was killed: it does not know that the second one waits no more.
    assert bulk.run(shifting, "shift", is_new=True) == BulkDone(7, 7, 0, 0, 0, 0, 0, missed=1)
    assert bulk.run(shifting, "shift") == BulkDone(7, 0, 7, 0, 0, 0, 0)

    arrived = scene.arrived(scene.campaign, len(keys) - 2)
    assert found(bulk.waiting()) == []
    assert scene.serve.stop() == 0
    assert Counter(record.key() for record in scene.arrived(scene.campaign, len(arrived))) == Counter(keys[2:])
    assert {record.value() for record in arrived} == {b"new"}
    told = Counter(one["outcome"] for one in scene.results())
    assert told == Counter(replaced=8 + 6, cancelled=4, scheduled=6, skipped=1, fired=6)


def test_a_replacement_that_the_service_has_not_read_yet_is_not_sent_again(
    scene: IntakeWithBacklog, bulk: Bulk
) -> None:
    sent = scene.send_named(scene.campaign, b"v", [b"k0", b"k1"], now_ms() + 20 * MINUTE_MS)
    scene.wait_filed(len(sent))
    shifting = bulk.plan("shift", "true", MINUTE_MS)
    scene.serve.stop()
    assert bulk.run(shifting, "shift", is_new=True, wait_s=0) == BulkDone(2, 2, 0, 0, 0, 0, 2)
    assert bulk.run(shifting, "shift", wait_s=0) == BulkDone(2, 0, 2, 0, 0, 0, 0)


@pytest.mark.exhaustive
def test_messages_due_within_the_margin_are_unchanged(scene: IntakeWithBacklog, bulk: Bulk) -> None:
    sent = scene.send(scene.campaign, "x", 10, now_ms() + 20 * MINUTE_MS)
    cancelling = bulk.plan("cancel", "true")
    assert bulk.run(cancelling, "cancel", margin_ms=25 * MINUTE_MS) == BulkDone(10, 0, 0, 10, 0, 0, 0)
    assert found(bulk.waiting()) == sorted(sent)


def test_cancels_that_come_too_late_are_told_of(scene: IntakeWithBacklog, bulk: Bulk, spark: SparkSession) -> None:
    sent = scene.send(scene.campaign, "x", 4, now_ms())
    scene.arrived(scene.campaign, len(sent))
    # As a plan has them that was made before.
    rows = [(scene.intake, one[1], 0, 0, one[5], one[0], one[4], one[2], one[3], None) for one in sent]
    path = str(scene.directory / "plan")
    messages = spark.createDataFrame(rows, bulk.waiting().schema)
    plan.write(plan.plan(messages, scene.policy, "cancel", by_ms=0, name=uuid.uuid4(), made_ms=0), path)
    assert bulk.run(path, "cancel", is_new=True, margin_ms=-MINUTE_MS) == BulkDone(4, 4, 0, 0, 4, 0, 0)
    # Run again, it sees that they do not wait.
    assert bulk.run(path, "cancel", margin_ms=-MINUTE_MS) == BulkDone(4, 0, 4, 0, 0, 0, 0)


def run_killed_and_run_again(scene: IntakeWithBacklog, bulk: Bulk, count: int, kills: int, at_once: int) -> None:
    sent = scene.send(scene.campaign, "x", count, now_ms() + 20 * MINUTE_MS)
    others = scene.send(scene.campaign, "y", 100, now_ms() + 20 * MINUTE_MS)
    scene.wait_filed(count + len(others))
    config = str(scene.directory / "serve.toml")
    shifting, out = str(scene.directory / "plan"), scene.directory / "forecast"
    look = ["forecast", "--config", config, "--out", str(out), "--json"]
    dry = ["shift", "--where", "key like 'x%'", "--by", "-20m", "--plan", shifting, "--config", config]
    with SparkJob(scene.directory / "look", *look) as looking, SparkJob(scene.directory / "dry", *dry) as planning:
        forecast, planned = looking.finished(), planning.finished()
    assert sum(json.loads(line)["count"] for line in forecast.splitlines()) == count + len(others)
    assert (out / "forecast.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert json.loads(planned) == {
        "action": "shift",
        "plan": shifting,
        "would": count,
        "too_soon": 0,
        "by_target": {scene.campaign: count},
    }
    command = ["shift", "--plan", shifting, "--run", "--config", config, "--at-once", str(at_once)]
    for kill in range(kills):
        # Cancels are told of when they are read, so this is how far it has got.
        before = len(scene.results())
        with SparkJob(scene.directory / f"killed-{kill}", *command) as job:
            job.kill_when(lambda: len(scene.results()) > before + count // 20, "some are shifted")  # noqa: B023
    with SparkJob(scene.directory / "again", *command) as job:
        summary = json.loads(job.finished())
    assert summary["sent"] + summary["skipped"] == summary["planned"] == count
    assert 0 < summary["sent"] < count
    assert (summary["too_soon"], summary["too_late"], summary["refused"], summary["unanswered"]) == (0, 0, 0, 0)
    arrived = scene.arrived(scene.campaign, count)
    assert found(bulk.waiting()) == sorted(others)
    assert scene.serve.stop() == 0
    assert Counter(record.key() for record in scene.arrived(scene.campaign, count)) == Counter(one[2] for one in sent)
    assert len(arrived) == count


@pytest.mark.exhaustive
def test_a_run_killed_in_the_middle_is_finished_by_the_next(scene: IntakeWithBacklog, bulk: Bulk) -> None:
    run_killed_and_run_again(scene, bulk, 3_000, kills=1, at_once=3)


@pytest.mark.exhaustive
def test_a_hundred_thousand_are_shifted_once_each_through_five_kills(scene: IntakeWithBacklog, bulk: Bulk) -> None:
    run_killed_and_run_again(scene, bulk, 100_000, kills=5, at_once=50)
