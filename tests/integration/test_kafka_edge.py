"""The edge to Kafka and the loop behind it, on a real broker: transactions, poison, changing targets, rebalances."""

import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.cimpl import NewPartitions

from tarry.devbroker import EmbeddedBroker
from tarry.errors import AbortableError, FatalError
from tarry.kafka.offsets import Offsets, PendingAnswers
from tarry.kafka.origins import Origins
from tarry.kafka.record_headers import LOST_NAME
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import Target, TopicAdmin
from tarry.kafka.transaction import Transactor, fence
from tarry.kafka.types import Place
from tarry.service.metrics.families import TRIM_FAILURES
from tarry.service.metrics.tally import Tally
from tarry.service.worker.context import Context
from tarry.service.worker.maintenance import COPY_EVERY_MS, ENDS_EVERY_MS, Maintenance
from tests.support.brokers import wait_until
from tests.support.ignoring import ignore
from tests.support.raw_headers import produce_raw
from tests.support.stage import GEOMETRY, Later, Record, Running, Stage

pytestmark = pytest.mark.stage(partitions=2)

LARGE = 1_020_000
"""More than a client of librdkafka sends by default, and less than a topic takes by default."""


def transactor_of(stage: Stage, cluster: Cluster | None = None) -> Transactor:
    transactor = Transactor(cluster or stage.cluster, f"{stage.group}.transactor")

    def close() -> None:
        with suppress(KafkaException):
            transactor.close()

    stage.until_the_end.callback(close)
    transactor.renew()
    return transactor


def commit_one(transactor: Transactor, topic: str, value: bytes) -> None:
    transactor.begin()
    transactor.produce(topic, 0, None, value, None, ignore)
    transactor.commit()


def values(stage: Stage, topic: str) -> list[bytes | None]:
    return [record.value() for record in stage.committed(topic).read_to_the_end()]


# -- the transactor ----------------------------------------------------------------------------------------------------


def test_a_producer_that_was_fenced_is_lost_and_the_next_of_its_id_is_not(stage: Stage) -> None:
    stage.make_topic(stage.target)
    transactor = transactor_of(stage)
    transactor.begin()
    transactor.produce(stage.target, 0, None, b"lost", None, ignore)
    fence(stage.cluster, [transactor.transactional_id])
    with pytest.raises(FatalError) as fenced:
        transactor.commit()
    assert fenced.value.code == "_FENCED"
    transactor.renew()
    commit_one(transactor, stage.target, b"kept")
    assert values(stage, stage.target) == [b"kept"]


def test_a_producer_that_was_fenced_can_be_closed(stage: Stage) -> None:
    stage.make_topic(stage.target)
    transactor = transactor_of(stage)
    fence(stage.cluster, [transactor.transactional_id])
    with pytest.raises(FatalError):
        commit_one(transactor, stage.target, b"lost")
    transactor.close()
    assert not transactor.started


def test_a_record_too_large_for_the_broker_aborts_its_transaction_and_none_after_a_renewal(stage: Stage) -> None:
    stage.make_topic(stage.target, max_message_bytes="10000")
    transactor = transactor_of(stage)
    failures: list[str] = []
    transactor.begin()
    transactor.produce(stage.target, 0, None, b"small", None, ignore)
    transactor.produce(
        stage.target, 0, None, bytes(50_000), None, lambda error, _: failures.append(error.name() if error else "")
    )
    with pytest.raises(AbortableError):
        transactor.commit()
    transactor.abort()
    assert "MSG_SIZE_TOO_LARGE" in failures
    # The refused record has left a gap in the sequence of this epoch.
    transactor.renew()
    commit_one(transactor, stage.target, b"next")
    assert values(stage, stage.target) == [b"next"]


def test_a_record_that_is_refused_at_once_leaves_its_transaction_unchanged(stage: Stage) -> None:
    stage.make_topic(stage.target)
    transactor = transactor_of(stage)
    commit_one(transactor, stage.target, b"first")
    transactor.begin()
    with pytest.raises(KafkaException) as refusal:
        transactor.produce(stage.target, 7, None, b"nowhere", None, ignore)
    assert refusal.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
    transactor.produce(stage.target, 0, None, b"second", None, ignore)
    transactor.commit()
    assert values(stage, stage.target) == [b"first", b"second"]


def test_a_topic_that_does_not_exist_has_no_partitions_and_is_not_made_by_asking(stage: Stage) -> None:
    stage.make_topic(stage.target, 3)
    missing = {f"{stage.target}.none", "no topic's name"}
    found = TopicAdmin(stage.admin).targets([stage.target, *missing], 5)
    assert found == {stage.target: Target(3, max_bytes=1_048_588), **dict.fromkeys(missing, Target(0))}
    assert stage.count(f"{stage.target}.none") == 0


def test_more_than_the_queue_holds_finds_room_as_it_empties(stage: Stage) -> None:
    stage.make_topic(stage.target)
    small = Cluster(stage.cluster.bootstrap_servers, {"queue.buffering.max.kbytes": 64})
    transactor = transactor_of(stage, small)
    one_by_one = [b"%06d" % number + bytes(500) for number in range(400)]
    together = [b"%06d" % number + bytes(500) for number in range(400, 800)]
    began = time.monotonic()
    transactor.begin()
    for value in one_by_one:
        transactor.produce(stage.target, 0, None, value, None, ignore)
    transactor.produce_all(stage.target, 0, [{"key": b"k", "value": value} for value in together])
    transactor.commit()
    assert time.monotonic() - began < 30
    assert values(stage, stage.target) == one_by_one + together


def test_a_transaction_that_has_failed_takes_no_more_records_and_does_not_wait_for_room(stage: Stage) -> None:
    stage.make_topic(stage.target, max_message_bytes="2000")
    transactor = transactor_of(stage)
    failed: list[KafkaError | None] = []
    transactor.begin()
    transactor.produce(stage.target, 0, None, bytes(5_000), None, lambda error, _record: failed.append(error))
    transactor.deliver(lambda: bool(failed))
    assert failed == [KafkaError.MSG_SIZE_TOO_LARGE]
    with pytest.raises(AbortableError) as refused:
        transactor.produce_all(stage.target, 0, [{"key": b"k", "value": b"small"}])
    # To wait for room would take half a minute, in which the worker does nothing else.
    assert refused.value.code == "_STATE"
    transactor.abort()


# -- messages of every kind --------------------------------------------------------------------------------------------


def request(target: str, *more: tuple[str, bytes | None], delay_ms: int = 0) -> list[tuple[str, bytes | None]]:
    return [("tarry-target", target.encode()), ("tarry-delay-ms", b"%d" % delay_ms), *more]


def delivered(running: Running, stage: Stage, topic: str, count: int) -> "list[Message[Any, Any]]":
    """The first so many records of a topic, in the order of their partitions and offsets."""
    arrived = stage.committed(topic)
    running.until(lambda: len(arrived.poll()) >= count, f"{count} records in {topic}")
    return sorted(arrived.records, key=lambda record: (record.partition() or 0, record.offset() or 0))


def headers_of(record: "Message[Any, Any]") -> list[tuple[str, Any]]:
    headers: Any = record.headers()
    return list(headers)


def test_keys_values_and_headers_arrive_as_they_were_sent_null_empty_or_repeated(stage: Stage) -> None:
    stage.make_intake()
    own: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("b", b""), ("a", b"\xff\x00")]
    contents = [(None, None), (b"", b""), (None, b"v"), (b"k", None), (b"\x00", bytes(1_000))]
    running = stage.worker()
    stage.put(stage.intake, *[(1, key, value, request(stage.target, *own)) for key, value in contents])
    arrived = delivered(running, stage, stage.target, len(contents))
    assert [(record.key(), record.value()) for record in arrived] == contents
    for offset, record in enumerate(arrived):
        assert headers_of(record)[:4] == own
        assert [name for name, _ in headers_of(record)[4:]] == ["tarry-id", "tarry-due-ms", "tarry-source"]
        assert headers_of(record)[-1] == ("tarry-source", f"{stage.intake}/1/{offset}".encode())


def test_without_a_key_a_message_keeps_to_its_partition_and_with_a_wish_to_that(stage: Stage) -> None:
    stage.make_intake()
    wide = stage.make_topic(f"{stage.target}.wide", 3)
    stage.put(
        stage.intake,
        (0, None, b"a", request(wide)),
        (1, None, b"b", request(wide)),
        (0, None, b"c", request(wide, ("tarry-partition", b"2"))),
        (1, b"key", b"d", request(wide, ("tarry-partition", b"0"))),
    )
    arrived = delivered(stage.worker(), stage, wide, 4)
    assert sorted((record.value(), record.partition()) for record in arrived) == [
        (b"a", 0),
        (b"b", 1),
        (b"c", 2),
        (b"d", 0),
    ]


def test_poison_of_every_kind_is_dead_as_it_came_and_its_neighbours_arrive(stage: Stage) -> None:
    stage.make_intake()
    tight = stage.make_topic(f"{stage.target}.tight", max_message_bytes="2000")
    compacted = stage.make_topic(f"{stage.target}.compacted", cleanup_policy="compact")
    big = bytes(range(256)) * 20
    poison: dict[str, tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = {
        "too-large": (b"k", big, request(tight)),
        "unknown-target": (b"k", b"u", request(f"{stage.target}.none", ("own", None))),
        "bad-partition": (b"k", b"p", request(stage.target, ("tarry-partition", b"9"))),
        "null-key": (None, b"n", request(compacted)),
        "no-target": (b"k", b"t", [("tarry-delay-ms", b"0"), ("own", b"1"), ("own", b"2")]),
        "internal-target": (b"k", None, request("__consumer_offsets")),
    }
    good = [(tight, b"tight"), (compacted, b"compacted"), (stage.target, b"plain")]
    records: list[Record] = []
    for round_ in range(2):
        records += [(0, b"k%d" % round_, value, request(topic)) for topic, value in good]
        records += [(0, *content) for content in poison.values()]
    records += [(1, b"other", b"other", request(stage.target))]
    stage.put(stage.intake, *records)
    running = stage.worker()
    assert [record.value() for record in delivered(running, stage, tight, 2)] == [b"tight"] * 2
    assert [record.key() for record in delivered(running, stage, compacted, 2)] == [b"k0", b"k1"]
    arrived = sorted(record.value() or b"" for record in delivered(running, stage, stage.target, 3))
    assert arrived == [b"other"] + [b"plain"] * 2
    dead = delivered(running, stage, f"{stage.intake}.dead", 2 * len(poison))
    for code, (key, value, headers) in poison.items():
        mine = [record for record in dead if ("tarry-error", code.encode()) in headers_of(record)]
        assert len(mine) == 2, code
        for record in mine:
            assert (record.key(), record.value()) == (key, value)
            assert headers_of(record)[:-2] == headers
            assert headers_of(record)[-1][0] == "tarry-error-detail"
    results = delivered(running, stage, f"{stage.intake}.results", len(records))
    assert len({record.key() for record in results}) == len(records)
    running.close()
    assert sum(low for low, _ in stage.watermarks().values()) == len(records)


def test_headers_whose_names_are_not_utf_8_make_dead_letters_and_their_neighbours_arrive(stage: Stage) -> None:
    stage.make_intake()
    foreign = [(b"tarry-target", stage.target.encode()), (b"tarry-delay-ms", b"0"), (b"caf\xe9", b"1"), (b"\xff", None)]
    # Many, because the interpreter calls in another way what it has called some times.
    for _ in range(3):
        stage.send(*(b"%d" % number for number in range(100)))
        produce_raw(stage.cluster.bootstrap_servers, stage.intake, foreign, b"k", b"v", 0, 50)
    running = stage.worker()
    dead = delivered(running, stage, f"{stage.intake}.dead", 150)
    for record in dead:
        assert (record.key(), record.value()) == (b"k", b"v")
        assert headers_of(record)[:5] == [
            ("tarry-target", stage.target.encode()),
            ("tarry-delay-ms", b"0"),
            ("caf\\xe9", b"1"),
            (LOST_NAME, None),
            ("tarry-error", b"unreadable-headers"),
        ]
    assert len(delivered(running, stage, stage.target, 300)) == 300


def test_a_message_as_large_as_its_topics_take_arrives_and_as_a_dead_letter_too(stage: Stage) -> None:
    stage.make_intake()
    value = bytes(LARGE)
    stage.put(stage.intake, (0, b"k", value, request(stage.target)))
    stage.put(stage.intake, (0, b"k", value, request(f"{stage.target}.none")))
    stage.send(b"after")
    running = stage.worker()
    assert [record.value() for record in delivered(running, stage, stage.target, 2)] == [value, b"after"]
    (dead,) = delivered(running, stage, f"{stage.intake}.dead", 1)
    assert dead.value() == value


# -- targets that change -----------------------------------------------------------------------------------------------


def test_a_target_that_is_deleted_does_not_hold_up_its_neighbours(stage: Stage) -> None:
    stage.make_intake()
    doomed = stage.make_topic(f"{stage.target}.doomed")
    running = stage.worker()
    stage.send(b"before", target=doomed)
    assert len(delivered(running, stage, doomed, 1)) == 1
    stage.admin.delete_topics([doomed])[doomed].result(20)
    wait_until(lambda: stage.count(doomed) == 0, "the target is gone")
    stage.send(b"too late", target=doomed)
    stage.send(b"neighbour")
    assert [record.value() for record in delivered(running, stage, stage.target, 1)] == [b"neighbour"]
    (dead,) = delivered(running, stage, f"{stage.intake}.dead", 1)
    assert dead.value() == b"too late"
    assert ("tarry-error", b"unknown-target") in headers_of(dead)


def test_a_partition_that_was_added_to_a_target_is_no_bad_partition(stage: Stage) -> None:
    stage.make_intake()
    running = stage.worker()
    stage.send(b"before")
    assert len(delivered(running, stage, stage.target, 1)) == 1
    stage.admin.create_partitions([NewPartitions(stage.target, 2)])[stage.target].result(20)
    wait_until(lambda: stage.count(stage.target) == 2, "the partition is there")
    stage.put(stage.intake, (0, b"k", b"new", request(stage.target, ("tarry-partition", b"1"))))
    arrived = delivered(running, stage, stage.target, 2)
    assert [(record.partition(), record.value()) for record in arrived] == [(0, b"before"), (1, b"new")]


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_a_worker_whose_producer_was_fenced_takes_over_again_and_continues(stage: Stage) -> None:
    stage.make_intake()
    running = stage.worker()
    running.until_serving()
    stage.send(b"later", delay_ms=1_500)
    fence(stage.cluster, [f"{stage.group}.worker-fire"])
    stage.send(b"now")
    assert [record.value() for record in delivered(running, stage, stage.target, 2)] == [b"now", b"later"]
    assert running.events.of("begin_anew")


def test_a_worker_that_may_hold_little_reads_on_as_it_delivers(stage: Stage) -> None:
    stage.make_intake()
    numbers = [b"%04d" % number for number in range(400)]
    running = stage.worker(memory_budget_bytes=20_000)
    running.until_serving()
    for at in range(0, 400, 40):
        stage.send(*numbers[at : at + 40], delay_ms=2_000)
        running.worker.turn()
    assert [record.value() for record in delivered(running, stage, stage.target, 400)] == numbers
    assert running.events.of("reading_paused")
    assert running.events.of("reading_resumed")


@pytest.mark.some_of("protocol")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_move_to_a_second_worker_and_back_and_each_message_arrives_once(
    stage: Stage, protocol: Literal["classic", "consumer"]
) -> None:
    stage.make_intake()
    first = stage.worker(name=f"{stage.group}.one", protocol=protocol)
    first.until_serving()
    sent: list[bytes] = []

    def send(count: int, delay_ms: int) -> None:
        numbers = [b"%05d" % number for number in range(len(sent), len(sent) + count)]
        sent.extend(numbers)
        for partition in (0, 1):
            stage.send(*numbers[partition::2], delay_ms=delay_ms, partition=partition)

    send(100, 0)
    send(100, 2_000)
    second = stage.worker(name=f"{stage.group}.two", protocol=protocol)
    arrived = stage.committed(stage.target)

    def both_turn() -> bool:
        first.worker.turn()
        return bool(second.events.of("taken_over"))

    second.until(both_turn, "the second worker has a partition", 30)
    send(100, 100)

    def half_has_arrived() -> bool:
        second.worker.turn()
        return len(arrived.poll()) >= 150

    first.until(half_has_arrived, "half of the messages", 30)
    second.close()
    first.until(lambda: len(arrived.poll()) >= len(sent), "all messages", 30)
    first.close()
    assert sorted(value or b"" for value in arrived.values()) == sent
    fenced = first.events.of("fencing") + second.events.of("fencing")
    assert fenced == [], "who hands over in good order is not fenced"


# -- keeping tidy ------------------------------------------------------------------------------------------------------


def test_the_intake_is_never_trimmed_past_the_watermark_that_is_committed(stage: Stage) -> None:
    stage.make_intake()
    place = stage.places[0]
    process = stage.process("only")
    stage.send(b"a", b"b", b"c")
    process.serve(process.take_over())
    clock = Ahead()
    copied: list[object] = []

    def copy(states: object, _summed_up: object) -> None:
        process.commit_checkpoints(released=False)
        copied.append(states)

    def is_copied() -> bool:
        maintenance.turn(process.states)
        return bool(copied)

    maintenance = Maintenance(
        stage.offsets,
        {stage.intake: 0},
        lambda intakes: Origins(stage.admin).ask(dict.fromkeys(intakes, GEOMETRY)),
        copy,
        lambda: True,
        10_000,
        Context(clock, process.events),
    )
    maintenance.turn(process.states)
    assert process.fire() == 3
    clock.by_ms += COPY_EVERY_MS
    wait_until(is_copied, "its checkpoint is copied")
    # Before the maintenance gets its answers the reader passes aborted records, and the watermark with it.
    with stage.transaction(stage.intake, [b"x"]) as stranger:
        stranger.abort()
    wait_until(lambda: stage.end(*place) == 5, "the marker is in the log")
    process.states[place].arrivals.reach(5)
    assert process.states[place].low == 5

    def tidied() -> bool:
        clock.by_ms += ENDS_EVERY_MS
        maintenance.turn(process.states)
        return stage.offsets.starts([place])[place] > 0

    wait_until(tidied, "the intake is trimmed")
    assert stage.offsets.starts([place])[place] == stage.watermarks()[place][0] == 3


def test_brokers_that_refuse_to_trim_are_counted_and_said(stage: Stage) -> None:
    stage.make_intake()
    process = stage.process("only")
    stage.send(b"a")
    process.serve(process.take_over())
    clock, tally = Ahead(), Tally()

    class TooFar(Offsets):
        """Asks to delete what is not there yet, which brokers refuse."""

        def trim(self, below: Mapping[Place, int]) -> PendingAnswers:
            return super().trim(dict.fromkeys(below, 1_000))

    with closing(TooFar(stage.admin, stage.group, stage.cluster)) as offsets:
        maintenance = Maintenance(
            offsets,
            {stage.intake: 0},
            lambda intakes: Origins(stage.admin).ask(dict.fromkeys(intakes, GEOMETRY)),
            lambda _states, _summed_up: process.commit_checkpoints(released=False),
            lambda: True,
            10_000,
            Context(clock, process.events, tally),
        )
        maintenance.turn(process.states)
        assert process.fire() == 1
        clock.by_ms += COPY_EVERY_MS

        def refused() -> bool:
            clock.by_ms += ENDS_EVERY_MS
            maintenance.turn(process.states)
            return tally.snapshot().counters.get((TRIM_FAILURES.name, stage.intake), 0) >= 2

        wait_until(refused, "the intake and the journal are not trimmed")
    said = {fields["reason"].partition("/")[0] for fields in process.events.of("trim_failed")}
    assert said == {stage.intake, f"{stage.intake}.journal"}


class Ahead(Later):
    """A clock by which nothing that was sent is as young as now, and whose monotonic time is the test's to move."""

    def __init__(self) -> None:
        super().__init__(3_600_000)
        self.by_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.by_ms


# -- a broker just made ------------------------------------------------------------------------------------------------

ASK = """
    import sys

    from confluent_kafka.admin import AdminClient
    from tarry.errors import RetriableError
    from tarry.kafka.offsets import Offsets
    from tarry.kafka.settings import Cluster

    cluster = Cluster(sys.argv[1])
    admin = AdminClient(cluster.client())
    for number in range(20):
        offsets = Offsets(admin, f"group-{number}", cluster)
        while True:
            try:
                assert offsets.committed([("some.topic", 0)]) == {}
                break
            except RetriableError:
                pass
    """


def test_asking_for_offsets_outlives_a_coordinator_that_is_not_there_yet(embedded_broker: EmbeddedBroker) -> None:
    # The topic of the groups' offsets is made for the first question, and loads while the next ones come. In a process
    # of its own: what this is about ended the process that asked, by a signal.
    asked = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ASK), embedded_broker.bootstrap_servers],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
