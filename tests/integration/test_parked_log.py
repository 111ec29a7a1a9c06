"""A target that is away for long pins nothing: its messages go to the parked log, which a take-over need not read."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, Receipt
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.rights import allow, deny
from tests.support.topics import ends_of, read_topic

MESSAGES = 1_000
VALUE_BYTES = 16_000
"""With 16 MiB of memory, most of the messages exceed the share of parked messages."""


class Outage:
    """An intake of two partitions, a service with little memory, and a target that is away."""

    def __init__(self, bootstrap: str, name: Callable[[str], str], directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.intake, self.away, self.there = map(name, ("intake", "away", "there"))
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in self.admin.create_topics([NewTopic(self.away, 1, 1), NewTopic(self.there, 1, 1)]).values():
            future.result(timeout=30)
        deny(self.admin, self.away, AclOperation.WRITE)
        self.config = ServeConfig(
            bootstrap, self.intake, partitions=2, group=name("group"), service={"memory_budget": "16MiB"}
        )
        self.serve = Serve(self.config, directory)
        self.receipts: list[Receipt] = []

    def send(self, target: str, many: int) -> None:
        with DelayedProducer(self.bootstrap, self.intake) as producer:
            for _ in range(many):
                number = len(self.receipts)
                value = (b"%d " % number).ljust(VALUE_BYTES, b".")
                self.receipts.append(
                    producer.send(target, value, b"k%d" % (number % 2), delay=timedelta(milliseconds=500))
                )

    def values(self, target: str, *keys: bytes) -> list[int]:
        found = [one for one in read_topic(self.bootstrap, target) if not keys or one.key() in keys]
        return [number_of(one.value()) for one in found]

    def lag(self) -> int:
        """How many offsets of the intake are not done, by the group's committed offsets."""
        ends = ends_of(self.bootstrap, self.intake, committed=True)
        wanted = [TopicPartition(self.intake, partition) for partition in ends]
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.config.group, wanted)])
        committed = asked[self.config.group].result(timeout=30).topic_partitions or []
        return sum(ends[one.partition] - max(one.offset, 0) for one in committed)

    def wait_written(self, topic: str, many: int, what: str, within_s: float) -> None:
        """Wait for as many offsets as records, markers included: it costs less than a command or a read of them all."""
        wait_until(lambda: sum(ends_of(self.bootstrap, topic, committed=True).values()) >= many, what, within_s)

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        code, out, err = tarry(*arguments, "--json", "--config", str(self.directory / "serve.toml"), cwd=self.directory)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


def number_of(value: bytes | None) -> int:
    return int((value or b"").partition(b" ")[0])


@pytest.fixture
def outage(bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Outage]:
    outage = Outage(bootstrap_of_authorizer, unique_name, tmp_path)
    try:
        yield outage
    finally:
        outage.serve.close()


def test_what_waits_for_a_target_holds_up_nothing_else_and_arrives_in_order_after_a_kill(outage: Outage) -> None:
    outage.serve.start().wait_serving()
    outage.send(outage.away, MESSAGES)
    outage.wait_written(f"{outage.intake}.parked", MESSAGES // 2, "most are filed", 60)
    wait_until(lambda: sum(row["messages"] for row in outage.run("parked")) > MESSAGES // 2, "most are filed", 60)
    first = outage.receipts[0].handle
    assert [row["target"] for row in outage.run("parked")] == [outage.away]
    assert outage.run("parked")[0]["since_ms"] == min(one.handle.due_ms for one in outage.receipts)
    checked = tarry("check", "--config", str(outage.directory / "serve.toml"), cwd=outage.directory)
    [line] = [line for line in checked.out.splitlines() if line.startswith("note  target ")]
    assert line.startswith(f"note  target {outage.away}: is away; ")
    assert "bring its brokers back, grant WRITE, or give it up with `tarry parked --purge`" in line
    [found] = outage.run("status", str(first))
    assert (found["state"], found["level"]) == ("waiting", -1)

    outage.serve.kill()
    parked = outage.run("parked")[0]["messages"]
    assert sum(row["count"] for row in outage.run("pending", "--exact")) == MESSAGES
    assert {row["level"]: row["at_most"] for row in outage.run("pending")}[-1] >= parked
    outage.serve.start().wait_serving()
    outage.send(outage.there, 20)
    wait_until(lambda: len(outage.values(outage.there)) == 20, "another target gets its messages")

    outage.wait_written(f"{outage.intake}.parked", MESSAGES, "those of the last 30 s as well", 90)
    wait_until(lambda: outage.run("parked")[0]["messages"] == MESSAGES, "those of the last 30 s as well", 90)
    metric = outage.serve.metric
    wait_until(lambda: metric("tarry_parked_messages", target=outage.away) == MESSAGES, "they are counted")
    # Or they would silence the alert about messages that wait for no target.
    wait_until(lambda: metric("tarry_waiting_messages") == MESSAGES, "they count as waiting, too")
    outage.send(outage.there, 20)  # each transaction commits the low watermarks
    wait_until(lambda: outage.lag() <= 4, "the intake waits for none of them")
    allow(outage.admin, outage.away, AclOperation.WRITE)
    outage.wait_written(outage.away, MESSAGES, "the target is back", 90)
    wait_until(lambda: len(outage.values(outage.away)) >= MESSAGES, "the target is back, and they arrive", 90)
    for key in (b"k0", b"k1"):
        assert outage.values(outage.away, key) == list(range(int(key[1:]), MESSAGES, 2))
    wait_until(lambda: outage.run("parked") == [], "nothing is parked any more")
    wait_until(lambda: read_topic(outage.bootstrap, f"{outage.intake}.parked") == [], "the parked log is trimmed")
    assert outage.serve.stop() == 0


PURGED = 200
"""Some are in the parked log at once, because they exceed the share of memory; the others are in memory."""


def test_a_purge_makes_dead_letters_of_what_waits_in_memory_and_in_the_log_across_a_kill(outage: Outage) -> None:
    outage.serve.start().wait_serving()
    outage.send(outage.away, PURGED)
    metric = outage.serve.metric
    wait_until(lambda: metric("tarry_parked_messages", target=outage.away) == PURGED, "all are parked", 60)
    [shown] = outage.run("parked", "--purge", outage.away)
    assert shown == {"intake": outage.intake, "target": outage.away, "messages": shown["messages"], "purged": False}
    assert 0 < shown["messages"] < PURGED
    assert read_topic(outage.bootstrap, f"{outage.intake}.dead") == [], "without --run nothing is purged"

    outage.serve.kill()
    with ThreadPoolExecutor(1) as pool:
        purge = pool.submit(outage.run, "parked", "--purge", outage.away, "--run")
        wait_until(lambda: purges(outage) == 2, "one is in each partition")
        outage.serve.start().wait_serving()
        assert purge.result(60) == [{"intake": outage.intake, "target": outage.away, "messages": 0, "purged": True}]
    letters = read_topic(outage.bootstrap, f"{outage.intake}.dead")
    assert sorted(number_of(one.value()) for one in letters) == list(range(PURGED))
    assert {dict(one.headers() or [])["tarry-error"] for one in letters} == {b"purged"}
    results = [json.loads(one.value() or b"") for one in read_topic(outage.bootstrap, f"{outage.intake}.results")]
    assert Counter(one["outcome"] for one in results) == {"dead": PURGED, "purged": 2}
    assert {one.get("reason") for one in results if one["outcome"] == "dead"} == {"purged"}

    allow(outage.admin, outage.away, AclOperation.WRITE)
    outage.send(outage.away, 10)
    wait_until(lambda: len(outage.values(outage.away)) == 10, "what is sent later is delivered", 60)
    assert min(outage.values(outage.away)) == PURGED
    assert outage.run("parked", "--purge", "nobody", "--run")[0]["messages"] == 0
    wait_until(lambda: outage.lag() <= 4, "the purges are done")


def purges(outage: Outage) -> int:
    """How many purges are in the intake."""
    return sum(
        ("tarry-purge", outage.away.encode()) in (one.headers() or [])
        for one in read_topic(outage.bootstrap, outage.intake)
    )
