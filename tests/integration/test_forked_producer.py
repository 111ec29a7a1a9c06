"""Producers in processes that are forked after they were made, as Celery and `gunicorn --preload` do."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.support.receipts import PARTITIONS, consume, make_topic

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, json, os, sys
threads = []
os.register_at_fork(before=lambda: threads.append(len(os.listdir("/proc/self/task"))))  # after tarry's own
from datetime import timedelta
from tarry.client import AsyncDelayedProducer, DelayedMessage, TransactionalDelays, DelayedProducer, OutcomeReader
from tarry.client.exclusive import ExclusiveWriter
from tarry.client.exclusive_record import SourceRecord
from tarry.errors import TarryError
from confluent_kafka import Producer

servers, intake, in_use, deed = sys.argv[1], sys.argv[2], sys.argv[3] == "in-use", sys.argv[4]
second = timedelta(seconds=1)
producer = DelayedProducer(servers, intake, timeout_s=10)
if deed == "transaction":
    delays = TransactionalDelays(Producer({"bootstrap.servers": servers, "transactional.id": intake}), intake)
if in_use:
    producer.send("orders", b"parent", delay=second)

async def send_async():
    async with theirs:
        await theirs.send("orders", b"child", delay=second)

async def make():
    return AsyncDelayedProducer(servers, intake, timeout_s=10)

theirs = asyncio.run(make()) if deed == "async" else None
outcomes = OutcomeReader(servers, intake) if deed == "outcome" else None
writer = ExclusiveWriter(servers, intake) if deed == "write" else None
if writer:
    writer.resume()

def do():
    if deed == "send":
        producer.send("orders", b"child", delay=second)
    elif deed == "reschedule":
        receipt = producer.send("orders", b"child", delay=timedelta(hours=1))
        producer.reschedule(receipt.handle, DelayedMessage("orders", b"moved", delay=timedelta(hours=2)))
    elif deed == "async":
        asyncio.run(send_async())
    elif deed == "outcome":
        outcomes.await_outcome(f"1.{intake}.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    elif deed == "write":
        writer.write([SourceRecord("1", b"v")])
    elif deed == "transaction":
        delays.send("orders", b"child", delay=second)
    producer.close()

child = os.fork()
try:
    if child == 0:
        do()
        print(json.dumps({"child": "done"}), flush=True)
        sys.exit(0)  # in order, with all that an interpreter does at its end
except TarryError as error:
    print(json.dumps({"child": str(error)}), flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
producer.send("orders", b"parent", delay=second)
producer.close()
print(json.dumps({"parent": os.waitstatus_to_exitcode(status), "threads": threads}), flush=True)
"""


def run(bootstrap: str, intake: str, in_use: str, deed: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), bootstrap, intake, in_use, deed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = {}
    for line in done.stdout.splitlines():
        said |= json.loads(line)
    return said


@pytest.mark.parametrize("in_use", ["in-use", "new"])
@pytest.mark.parametrize("deed", ["send", "reschedule", "nothing"])
def test_a_forked_process_has_a_connection_of_its_own_and_ends_in_order(
    bootstrap: str, topic_name: str, in_use: str, deed: str
) -> None:
    intake = make_topic(bootstrap, topic_name)
    said = run(bootstrap, intake, in_use, deed)
    threads = said.pop("threads")
    assert said == {"child": "done", "parent": 0}
    if in_use == "new":  # no thread of a client can hold a lock that the child would inherit
        assert threads == [1]
    expected: list[bytes | None] = {"send": [b"child"], "reschedule": [b"child", b"moved", None], "nothing": []}[deed]  # type: ignore[assignment]
    parents = [b"parent"] * (2 if in_use == "in-use" else 1)
    starts = [TopicPartition(intake, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    values = [record.value() for record in consume(bootstrap, starts, len(expected) + len(parents))]
    assert sorted(values, key=repr) == sorted([*expected, *parents], key=repr)


@pytest.mark.parametrize(
    ("deed", "what"), [("async", "producer"), ("transaction", "producer"), ("outcome", "reader"), ("write", "writer")]
)
def test_a_client_that_cannot_continue_in_a_forked_process_says_so_at_once(
    bootstrap: str, topic_name: str, deed: str, what: str
) -> None:
    intake = make_topic(bootstrap, topic_name)
    make_topic(bootstrap, f"{intake}.results")
    refused = f"the {what} was created before this process was forked, and does not work in it: create a new one"
    said = run(bootstrap, intake, "new", deed)
    del said["threads"]
    assert said == {"child": refused, "parent": 0}
