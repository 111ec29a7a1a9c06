"""The service's own worker on the fake cluster, with intakes in other schedulers' dialects."""

import json
from datetime import UTC, datetime
from functools import partial

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import Header, RequestReader
from tarry.kafka.birth import Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.service.worker import Plan, Worker
from tarry.service.worker.plan import IntakePlan
from tarry.testing import FakeBroker, ManualClock

IN_MEMORY = Geometry(20_000, 10, 0)
OVERFLOWING = Geometry(20_000, 10, 1)
KEY_HEADERS = {"etf1": "scheduler-target-key", "karafka": "schedule_target_key"}


class Service:
    """An intake of one partition in a dialect, a target of two partitions, and a worker."""

    def __init__(self, dialect: str, geometry: Geometry = IN_MEMORY, same_key: str | None = None) -> None:
        self.clock = ManualClock()
        self.broker = FakeBroker(self.clock, seed=1, marker_lag_ms=(0, 30), latency_ms=(0, 2))
        self.dialect = dialect
        cluster = Cluster("fake", {}, self.broker.clients("setup"))
        admin = cluster.clients.admin(cluster.client())
        give = partial(Birth(cluster, admin, "group", self.clock).give, "in", 1, geometry)
        make_or_check(TopicAdmin(admin), "in", 1, 1, geometry, fixed_delay=False, before_intake=give)
        self.broker.make_topic("out", 2)
        cluster = Cluster("fake", {}, self.broker.clients("a"))
        reader = RequestReader(IntakePolicy(topic="in", dialect=dialect, same_key=same_key))
        plan = Plan(
            cluster=cluster,
            group="group",
            member=cluster.member("group", "classic", None),
            name="group.a",
            intakes={"in": IntakePlan(reader, False, geometry, 3_600_000)},
            tick_ms=1,
            wheel_size=64,
            memory_budget_bytes=1 << 30,
            interval_ms=5,
            most=100,
        )
        self.worker = Worker(plan, self.clock, lambda: False, lambda _event, **_fields: None)

    def send(self, value: bytes, target: bytes, in_s: int = 0) -> list[Header]:
        """Send what is due in some seconds, with a target key where the dialect has them."""
        epoch_s = self.clock.now_ms() // 1_000 + in_s
        epoch = b"%d" % epoch_s
        headers: dict[str, list[Header]] = {
            "etf1": [("scheduler-epoch", epoch), ("scheduler-target-topic", target)],
            "karafka": [
                ("schedule_schema_version", b"1.0.0"),
                ("schedule_source_type", b"schedule"),
                ("schedule_target_epoch", epoch),
                ("schedule_target_topic", target),
            ],
            "timebridge": [
                ("X-Timebridge-When", datetime.fromtimestamp(epoch_s, UTC).isoformat().encode()),
                ("X-Timebridge-Where", target),
            ],
            "rabbitmq": [("x-delay", b"%d" % (in_s * 1_000)), ("tarry-target", target)],
        }
        sent = headers[self.dialect]
        if self.dialect in KEY_HEADERS:
            sent.append((KEY_HEADERS[self.dialect], b"target-key"))
        sent.append(("trace", b"1"))
        self.broker.append("in", b"own-key", value, sent, 0)
        return sent

    def turn(self, topic: str, until: int) -> None:
        for _ in range(40_000):
            self.worker.turn()
            if len(self.broker.records(topic)) >= until:
                return
        raise AssertionError(f"{len(self.broker.records(topic))} of {until} came to {topic}")


@pytest.mark.parametrize("geometry", [IN_MEMORY, OVERFLOWING])
@pytest.mark.parametrize("dialect", ["etf1", "karafka", "timebridge", "rabbitmq"])
def test_a_dialects_messages_arrive_as_that_scheduler_delivers_them(dialect: str, geometry: Geometry) -> None:
    service = Service(dialect, geometry)
    service.send(b"first", b"out", 90)
    service.send(b"second", b"out", 30)
    timestamp = b"%d" % (service.broker.records("in")[0].timestamp_ms // 1_000)
    sent_ms = service.clock.now_ms()
    service.turn("out", until=2)
    second, first = sorted(service.broker.records("out"), key=lambda one: one.timestamp_ms)
    assert (second.value, first.value) == (b"second", b"first")
    assert first.timestamp_ms >= sent_ms // 1_000 * 1_000 + 90_000
    for record in (first, second):
        assert record.key == (b"target-key" if dialect in KEY_HEADERS else b"own-key")
        signed = [("scheduler-timestamp", timestamp), ("scheduler-key", b"own-key"), ("scheduler-topic", b"in")]
        kept = [header for header in record.headers or [] if not str(header[0]).startswith("tarry-")]
        assert kept == [("trace", b"1"), *(signed if dialect == "etf1" else [])]
        assert [name for name, _ in (record.headers or [])[-3:]] == ["tarry-id", "tarry-due-ms", "tarry-source"]


@pytest.mark.parametrize("geometry", [IN_MEMORY, OVERFLOWING])
@pytest.mark.parametrize("dialect", ["etf1", "karafka", "timebridge", "rabbitmq"])
def test_a_message_found_undeliverable_at_its_due_time_is_a_dead_letter_with_its_original_headers(
    dialect: str, geometry: Geometry
) -> None:
    service = Service(dialect, geometry)
    sent = service.send(b"value", b"nowhere", 90)
    service.turn("in.dead", until=1)
    (dead,) = service.broker.records("in.dead")
    assert (dead.key, dead.value) == (b"own-key", b"value")
    assert (dead.headers or [])[:-2] == sent
    assert ("tarry-error", b"unknown-target") in (dead.headers or [])


def test_etf1s_tombstone_is_dead_and_what_it_was_for_is_delivered() -> None:
    service = Service("etf1")
    service.send(b"value", b"out", 5)
    service.broker.append("in", b"own-key", None, [], 0)
    service.turn("in.dead", until=1)
    service.turn("out", until=1)
    (dead,) = service.broker.records("in.dead")
    assert dict(dead.headers or [])["tarry-error"] == b"bad-handle"


@pytest.mark.parametrize("geometry", [IN_MEMORY, OVERFLOWING])
@pytest.mark.parametrize("dialect", ["etf1", "karafka", "timebridge", "rabbitmq"])
def test_where_the_key_is_the_name_the_last_message_of_a_key_counts(dialect: str, geometry: Geometry) -> None:
    service = Service(dialect, geometry, "replace")
    service.send(b"first", b"out", 60)
    service.send(b"second", b"out", 90)
    service.turn("out", until=1)
    (record,) = service.broker.records("out")
    assert record.value == b"second"
    outcomes = [json.loads(one.value or b"")["outcome"] for one in service.broker.records("in.results")]
    assert outcomes == ["replaced", "fired"]


@pytest.mark.parametrize("geometry", [IN_MEMORY, OVERFLOWING])
@pytest.mark.parametrize("dialect", ["etf1", "karafka", "timebridge", "rabbitmq"])
def test_where_the_key_is_the_name_a_tombstone_takes_the_message_back(dialect: str, geometry: Geometry) -> None:
    service = Service(dialect, geometry, "replace")
    service.send(b"value", b"out", 60)
    service.broker.append("in", b"own-key", None, [], 0)
    service.turn("in.results", until=2)
    service.send(b"later", b"out", 90)
    service.turn("out", until=1)
    assert [one.value for one in service.broker.records("out")] == [b"later"]
    assert not service.broker.records("in.dead")
    outcomes = [json.loads(one.value or b"")["outcome"] for one in service.broker.records("in.results")]
    assert outcomes == ["cancelled", "cancelled", "fired"]
