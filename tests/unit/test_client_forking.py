"""A forked process keeps inherited clients: dropping one can end the process, or block it permanently."""

import subprocess
import sys

import pytest

FORKED = """
child = os.fork()
if child == 0:
    signal.alarm(10)
    del owner
    gc.collect()
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
os._exit(0)
"""

CONSUMER = """
import gc, os, resource, signal, sys
from confluent_kafka import Consumer, Producer, TopicPartition
from tarry.client.forking import keep_in_children

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1})
producer.produce("t", b"v", partition=0)
assert producer.flush(30) == 0
[broker] = producer.list_topics(timeout=30).brokers.values()

class Owner:
    def __init__(self):
        self.consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g"})
        self.consumer.assign([TopicPartition("t", 0, 0)])
        assert self.consumer.poll(30).value() == b"v"

    def clients(self):
        return [self.consumer]

owner = Owner()
if sys.argv[1] == "kept":
    keep_in_children(owner)
"""

OWNERS = """
import gc, os, signal, sys
from tarry.client import AsyncDelayedProducer, TransactionalDelays, DelayedProducer, connection

class InUse:
    def __init__(self, properties):
        pass

    def __len__(self):
        return 1

    def __del__(self):
        print("dropped", flush=True)

connection.Producer = InUse
owner = {
    "producer": lambda: DelayedProducer("nobody:1"),
    "async": lambda: AsyncDelayedProducer("nobody:1"),
    "delays": lambda: TransactionalDelays(InUse({})),
}[sys.argv[1]]()
"""


def run(program: str, argument: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program + FORKED, argument], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_consumer_that_is_kept_does_no_harm_in_a_forked_process() -> None:
    assert run(CONSUMER, "kept") == ["0"]


def test_a_consumer_that_is_dropped_ends_a_forked_process_or_holds_it_up() -> None:
    """If this test fails, a newer library can be dropped there, and `tarry.client.forking` may keep less."""
    assert run(CONSUMER, "dropped") != ["0"]


@pytest.mark.parametrize("owner", ["producer", "async", "delays"])
def test_a_producer_in_use_is_never_dropped_in_a_forked_process(owner: str) -> None:
    assert run(OWNERS, owner) == ["0"]
