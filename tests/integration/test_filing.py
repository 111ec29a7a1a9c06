"""A record that a level permanently refuses is a dead letter; one that the level cannot take now waits."""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL
from tests.support.processes import Serve, ServeConfig
from tests.support.stage import Inbox, Stage, inbox

if TYPE_CHECKING:
    from confluent_kafka import Message

pytestmark = pytest.mark.stage(partitions=2)

LIMIT = 20_000
LARGE = 2 * LIMIT
"""A value of random bytes, which compression does not make smaller."""

FAR_MS = 13_000
"""Goes through three levels."""


@pytest.fixture
def serve(stage: Stage, tmp_path: Path) -> Iterator[Serve]:
    config = ServeConfig(
        stage.cluster.bootstrap_servers,
        stage.intake,
        stage.partitions,
        stage.group,
        instance="one",
        **QUICK_WHEEL,
    )
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        stage.make_topic(stage.target, stage.partitions)
        yield serve
    finally:
        serve.close()


def levels(stage: Stage) -> list[str]:
    topics = stage.admin.list_topics(timeout=10).topics
    return sorted(name for name in topics if name.startswith(f"{stage.intake}.wheel-"))


def send(stage: Stage, values: list[bytes], partition: int) -> None:
    """Write requests that ask for the target's partition of the same number, so that their order can be seen."""
    headers: list[tuple[str, bytes | None]] = [
        ("tarry-target", stage.target.encode()),
        ("tarry-delay-ms", b"%d" % FAR_MS),
        ("tarry-partition", b"%d" % partition),
        ("trace", b"\x00\xff"),
    ]
    stage.put(stage.intake, *[(partition, b"k", value, headers) for value in values])


def by_partition(inbox: Inbox) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for record in inbox.poll():
        found.setdefault(record.partition() or 0, []).append(record.value() or b"")
    return found


@contextmanager
def inboxes(stage: Stage) -> Iterator[tuple[Inbox, Inbox, Inbox]]:
    """Inboxes of the target, the dead letters and the results."""
    topics = [stage.target, f"{stage.intake}.dead", f"{stage.intake}.results"]
    with ExitStack() as until_the_end:
        target, dead, results = (until_the_end.enter_context(inbox(stage.cluster, [topic])) for topic in topics)
        yield target, dead, results


def headers_of(record: "Message[Any, Any]") -> list[tuple[str, bytes]]:
    headers: Any = record.headers()
    return list(headers)


@pytest.mark.some_of("killed")
@pytest.mark.some_of("narrow")
@pytest.mark.parametrize("killed", [False, True], ids=["in one life", "killed in between"])
@pytest.mark.parametrize("narrow", ["all", "the first"])
def test_a_record_too_large_for_a_level_is_a_dead_letter_and_the_others_are_filed(
    stage: Stage, serve: Serve, narrow: str, killed: bool
) -> None:
    for topic in levels(stage) if narrow == "all" else levels(stage)[:1]:
        stage.configure(topic, max_message_bytes=str(LIMIT))
    choose = random.Random(1)
    large = [b"%d" % number + choose.randbytes(LARGE) for number in range(3)]
    good = {partition: [b"%d-%d" % (partition, number) for number in range(40)] for partition in range(2)}
    mixed = [*good[0][:10], large[0], *good[0][10:20], large[1], large[2], *good[0][20:]]
    with inboxes(stage) as (arrived, dead, results):
        send(stage, mixed, 0)
        send(stage, good[1], 1)
        if killed:
            wait_until(lambda: bool(serve.events("filing_aborted")), "a level refuses", 40)
            os.kill(serve.workers[0], signal.SIGKILL)
            serve.wait_serving(2)
        wait_until(lambda: len(dead.poll()) == 3, "the large ones are dead", 40)
        wait_until(lambda: len(arrived.poll()) == 80, "the others are delivered", 40)
        wait_until(lambda: len(results.poll()) == 83, "all have a result")
        assert serve.stop() == 0
        assert by_partition(arrived) == good
        assert by_partition(dead) == {0: large}
        for letter in dead.records:
            headers = headers_of(letter)
            assert [name for name, _ in headers] == [
                "tarry-target", "tarry-delay-ms", "tarry-partition", "trace", "tarry-error", "tarry-error-detail"
            ]  # fmt: skip
            assert headers[3] == ("trace", b"\x00\xff")
            assert headers[4] == ("tarry-error", b"too-large")
            assert headers[5][1].startswith(f"{stage.intake}.wheel-".encode())
        said = [json.loads(record.value() or b"") for record in results.records]
        assert Counter(one["outcome"] for one in said) == {"fired": 80, "dead": 3}
        assert {one["reason"] for one in said if one["outcome"] == "dead"} == {"too-large"}
