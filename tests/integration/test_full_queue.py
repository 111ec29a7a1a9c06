"""A client library without room for more records inside a transaction: it takes longer, and nothing else changes."""

from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Producer

from tarry.kafka.clients import LibraryClients, Properties
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tests.support.ignoring import ignore
from tests.support.stage import Record, Stage

pytestmark = pytest.mark.stage(partitions=2)

ROOM = 10
MANY = 400


class NarrowProducer(Producer):
    """A producer with room for ten records, which counts how often that was too little.

    Args:
        properties: of librdkafka.
        refused: counts by the name of the call.
    """

    def __init__(self, properties: Properties, refused: Counter[str]) -> None:
        super().__init__({**properties, "queue.buffering.max.messages": ROOM})
        self._refused = refused

    def produce(self, *arguments: Any, **named: Any) -> None:
        try:
            super().produce(*arguments, **named)
        except BufferError:
            self._refused["produce"] += 1
            raise

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *arguments: Any) -> int:
        added = super().produce_batch(topic, messages, *arguments)
        self._refused["produce_batch"] += added < len(messages)
        return added


class NarrowClients(LibraryClients):
    """The client library's own, but for narrow producers."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()

    def producer(self, properties: Properties) -> Producer:
        """A producer."""
        return NarrowProducer(properties, self.refused)


@pytest.fixture
def narrow() -> NarrowClients:
    return NarrowClients()


def cluster_of(stage: Stage, narrow: NarrowClients) -> Cluster:
    return Cluster(stage.cluster.bootstrap_servers, {}, narrow)


def request(target: str, delay_ms: int) -> list[tuple[str, bytes | None]]:
    return [("tarry-target", target.encode()), ("tarry-delay-ms", b"%d" % delay_ms)]


def test_records_without_room_in_the_queue_at_first_are_committed_once_and_in_order(
    stage: Stage, narrow: NarrowClients
) -> None:
    stage.make_topic(stage.target)
    transactor = Transactor(cluster_of(stage, narrow), f"{stage.group}.transactor")
    stage.until_the_end.callback(transactor.close)
    transactor.renew()
    committed: list[bytes] = []
    for round_ in range(4):
        values = [b"%d-%03d" % (round_, number) for number in range(MANY // 4)]
        transactor.begin()
        for at in range(0, len(values), 50):
            for value in values[at : at + 25]:
                transactor.produce(stage.target, 0, b"k", value, None, ignore)
            transactor.produce_all(
                stage.target, 0, [{"key": b"k", "value": value} for value in values[at + 25 : at + 50]]
            )
        if round_ % 2:
            transactor.abort()
        else:
            transactor.commit()
            committed += values
    assert narrow.refused["produce"] > 0
    assert narrow.refused["produce_batch"] > 0
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == committed


def test_a_worker_whose_queue_is_full_delivers_all_once_and_in_order_with_a_result_for_each(
    stage: Stage, narrow: NarrowClients
) -> None:
    stage.make_intake()
    worker = stage.worker(cluster=cluster_of(stage, narrow))
    worker.until_serving()
    good: dict[int, list[bytes | None]] = {0: [], 1: []}
    bad: list[bytes | None] = []
    records: list[Record] = []
    for number in range(MANY):
        partition, value, is_bad = number % 2, b"%03d" % number, number % 20 == 7
        (bad if is_bad else good[partition]).append(value)
        target = f"{stage.target}.none" if is_bad else stage.target
        records.append((partition, b"key-%d" % partition, value, request(target, 1_000)))
    stage.put(stage.intake, *records)
    arrived, dead, results = (
        stage.committed(topic) for topic in (stage.target, f"{stage.intake}.dead", f"{stage.intake}.results")
    )
    worker.until(lambda: len(results.poll()) >= MANY, "a result for each", 40.0)
    worker.close()
    assert narrow.refused["produce"] > 0
    assert narrow.refused["produce_batch"] > 0
    assert worker.events.of("transaction_aborted") == []
    for partition, values in good.items():
        key = b"key-%d" % partition
        assert [record.value() for record in arrived.read_to_the_end() if record.key() == key] == values
    assert sorted(record.value() or b"" for record in dead.read_to_the_end()) == bad
    assert len({record.key() for record in results.read_to_the_end()}) == len(results.records) == MANY
    assert sum(low for low, _ in stage.watermarks().values()) == MANY


def test_a_record_that_is_refused_while_the_queue_is_full_is_dead_and_its_neighbours_arrive(
    stage: Stage, narrow: NarrowClients
) -> None:
    stage.make_intake()
    worker = stage.worker(cluster=cluster_of(stage, narrow))
    worker.until_serving()
    arrived, dead = stage.committed(stage.target), stage.committed(f"{stage.intake}.dead")
    stage.send(b"first")
    worker.until(lambda: arrived.values() == [b"first"], "the first, and with it the target's limit is known")
    stage.configure(stage.target, max_message_bytes="2000")
    values = [b"%03d" % number for number in range(MANY)]
    large = {number: b"." * 2_500 + b"%03d" % number for number in range(30, MANY, 100)}
    stage.put(
        stage.intake,
        *[(0, b"key", large.get(number, value), request(stage.target, 1_000)) for number, value in enumerate(values)],
    )
    good: list[bytes | None] = [value for number, value in enumerate(values) if number not in large]
    worker.until(lambda: len(arrived.poll()) > len(good) and len(dead.poll()) >= len(large), "all are out", 40.0)
    worker.close()
    assert narrow.refused["produce"] > 0
    assert [record.value() for record in arrived.read_to_the_end()] == [b"first", *good]
    assert [record.value() for record in dead.read_to_the_end()] == list(large.values())
