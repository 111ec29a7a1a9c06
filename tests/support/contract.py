"""One interface for two clusters, a real broker and the simulated one, so that each contract test runs on both.

This module contains the differences between the two: how time passes, how topics are created, and what a second process
is. For the real broker it is a process of the machine, which can be killed and stopped. For the simulated one it is a
name under which its clients are created.
"""

import multiprocessing
import os
import signal
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.cimpl import NewTopic
from packaging.version import Version

from tarry.clock import Clock, SystemClock
from tarry.errors import RetriableError
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.testing import FakeBroker, ManualClock
from tests.support.raw_headers import as_text, produce_raw

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

WITHIN_S = 20.0
_LOOK_EVERY_S = 0.02
_ANSWERS_WITHIN_S = 60.0
_THERE_ANYWAY = "__transaction_state"

Act = Callable[[], str]
Life = Callable[[Cluster, Clock], Act]
"""The code of another process: it puts its clients into the state that the test needs, and returns the functions that
the test can call by `Process.ask`.

It must be a module's function, or a `partial` of one, because it is pickled.
"""


class Process(ABC):
    """Another process, whose clients are in the state that its `Life` has set up."""

    @abstractmethod
    def ask(self) -> str:
        """Call a function that its `Life` has returned, and return the result."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it: its clients send nothing more."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop the process with all threads of its clients."""

    @abstractmethod
    def thaw(self) -> None:
        """Continue a frozen process."""


class Kafka(ABC):
    """A cluster for one contract test.

    Args:
        cluster: the connection of this process.
        clock: the time in the cluster.
        until_the_end: closes everything that was opened here.
        version: the version of Kafka, if it is known; otherwise it is taken for a new one, as the fake one is.
    """

    def __init__(self, cluster: Cluster, clock: Clock, until_the_end: ExitStack, version: str | None = None) -> None:
        self._version = version
        self.cluster = cluster
        self.clock = clock
        self._until_the_end = until_the_end
        self.admin: AdminClient = cluster.clients.admin(cluster.client())
        self.offsets = Offsets(self.admin, self.name("asker"), cluster)
        until_the_end.callback(self.offsets.close)

    def has(self, since: str) -> bool:
        """Whether it does what Kafka does since a version."""
        return self._version is None or Version(self._version) >= Version(since)

    def needs(self, since: str, what: str) -> None:
        """Skip the test on an older Kafka than the one that began with `what`."""
        if not self.has(since):
            pytest.skip(f"{what}: since Kafka {since}")

    def name(self, prefix: str) -> str:
        """Return a name that is unique on the cluster."""
        return f"{prefix}.{uuid.uuid4().hex[:12]}"

    def until(self, condition: Callable[[], object], what: str, within_s: float = WITHIN_S) -> None:
        """Wait until `condition` holds; if it does not in time, fail the test with the text `what`."""
        deadline_ms = self.clock.monotonic_ms() + int(within_s * 1000)
        while not condition():
            if self.clock.monotonic_ms() > deadline_ms:
                pytest.fail(f"not within {within_s:g} s: {what}")
            self.clock.sleep(_LOOK_EVERY_S)

    def make_topic(self, partitions: int = 1, **config: object) -> str:
        """Create a topic for this test, and wait for its leaders; its settings are written with `_` for dots."""
        topic = self.name("topic")
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(WITHIN_S)
        self.until(lambda: self._answers(topic, partitions), f"{topic} answers")
        return topic

    def producer(self, transactional_id: str = "", **properties: object) -> Producer:
        """A transactional producer that is registered; properties are written with `_` for dots."""
        others = {name.replace("_", "."): value for name, value in properties.items()}
        producer = self.cluster.clients.producer(
            {**self.cluster.transactor(transactional_id or self.name("producer")), **others}
        )
        # Not its close(): one that was fenced would raise.
        self._until_the_end.callback(producer.purge, in_flight=True, blocking=False)
        # Without a connection, the first search for the coordinator fails, and the next one is half a second later.
        producer.list_topics(_THERE_ANYWAY, WITHIN_S)
        producer.init_transactions(WITHIN_S)
        return producer

    def consumer(self, properties: dict[str, Any]) -> Consumer:
        """A consumer that is closed after the test."""
        consumer = self.cluster.clients.consumer(properties)
        self.at_the_end(consumer.close)
        return consumer

    def at_the_end(self, call: Callable[[], object]) -> None:
        """Register a function that is called after the test; the last one registered is called first."""
        self._until_the_end.callback(call)

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The last stable offset of a partition, and its high watermark."""
        place = (topic, partition)
        stable, high = (self.offsets.ends([place], committed=committed)[place] for committed in (True, False))
        return stable, high

    def settled_end(self, topic: str, partition: int = 0) -> int:
        """Wait until all transaction markers of a partition are written; return its end."""
        self.until(
            lambda: len(set(self.ends(topic, partition))) == 1, f"the markers of {topic}/{partition} are written"
        )
        return self.ends(topic, partition)[0]

    @abstractmethod
    def put_raw(
        self, topic: str, headers: Sequence[tuple[bytes, bytes | None]], key: bytes, value: bytes, times: int = 1
    ) -> None:
        """Write a record a number of times as a C client can: a header's name may be any bytes."""

    @abstractmethod
    def start(self, life: Life) -> Process:
        """Start another process, and wait until its `Life` has set it up."""

    def _answers(self, topic: str, partitions: int) -> bool:
        """Whether all leaders are known, and answer as leaders."""
        try:
            found = self.admin.list_topics(topic, timeout=WITHIN_S).topics[topic]
            if len([one for one in found.partitions.values() if one.leader >= 0 and one.error is None]) < partitions:
                return False
            self.offsets.starts([(topic, partition) for partition in range(partitions)])
        except (KafkaException, RetriableError):
            return False
        return True


class RealKafka(Kafka):
    """A real broker, which other tests use as well.

    Args:
        bootstrap: HOST:PORT.
        until_the_end: closes what was opened here.
        version: see `Kafka`.
    """

    def __init__(self, bootstrap: str, until_the_end: ExitStack, version: str | None = None) -> None:
        super().__init__(Cluster(bootstrap), SystemClock(), until_the_end, version)

    def put_raw(
        self, topic: str, headers: Sequence[tuple[bytes, bytes | None]], key: bytes, value: bytes, times: int = 1
    ) -> None:
        produce_raw(self.cluster.bootstrap_servers, topic, headers, key, value, 0, times)

    def start(self, life: Life) -> Process:
        process = _RealProcess(self.cluster.bootstrap_servers, life)
        self._until_the_end.callback(process.kill)
        process.ready()
        return process


class _RealProcess(Process):
    def __init__(self, bootstrap: str, life: Life) -> None:
        context = multiprocessing.get_context(
            "spawn"
        )  # a fork would copy the client library's locks in their present state
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_live, args=(bootstrap, life, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ready(self) -> None:
        assert self._answer() == "ready"

    def ask(self) -> str:
        self._ours.send("act")
        return self._answer()

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def _answer(self) -> str:
        assert self._ours.poll(_ANSWERS_WITHIN_S), "the other process has no answer"
        return str(self._ours.recv())

    @property
    def _pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid


def _live(bootstrap: str, life: Life, pipe: Connection) -> None:
    act = life(Cluster(bootstrap), SystemClock())
    pipe.send("ready")
    while True:
        pipe.recv()
        pipe.send(act())


class FakeKafka(Kafka):
    """The simulated cluster, all of it in this thread.

    Args:
        seed: fixes its random choices.
        until_the_end: closes what was opened here.
    """

    def __init__(self, seed: int, until_the_end: ExitStack) -> None:
        self.clock = ManualClock()
        self._broker = FakeBroker(self.clock, seed=seed, marker_lag_ms=(0, 50), latency_ms=(0, 5))
        super().__init__(Cluster("fake", {}, self._broker.clients("main")), self.clock, until_the_end)

    def put_raw(
        self, topic: str, headers: Sequence[tuple[bytes, bytes | None]], key: bytes, value: bytes, times: int = 1
    ) -> None:
        for _ in range(times):
            self._broker.append(topic, key, value, [(as_text(name), content) for name, content in headers])

    def start(self, life: Life) -> Process:
        name = self.name("process")
        return _FakeProcess(self._broker, name, life(Cluster("fake", {}, self._broker.clients(name)), self.clock))


class _FakeProcess(Process):
    def __init__(self, broker: FakeBroker, name: str, act: Act) -> None:
        self._broker = broker
        self._name = name
        self._act = act

    def ask(self) -> str:
        return self._act()

    def kill(self) -> None:
        self._broker.kill(self._name)

    def freeze(self) -> None:
        self._broker.freeze(self._name)

    def thaw(self) -> None:
        self._broker.thaw(self._name)
