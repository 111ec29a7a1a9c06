"""Records as Spark's Kafka sink writes them: keys and values are any bytes, and there may be no headers."""

import struct
from collections import Counter

import pytest
from confluent_kafka import Producer

from tarry.core.murmur2 import partition_of as javas_partition
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.service.worker.plan import IntakePlan
from tests.support.stage import Stage

pytestmark = pytest.mark.stage(partitions=2)

KEYS: list[bytes] = [
    b"",
    b"\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x00\x00",
    b"a\x00b",
    b"a\x00",
    b"a",
    b"\xff\xfe\x00\xfd",
    "clé".encode(),
    bytes(range(256)),
    *[struct.pack(">i", number) for number in (0, 1, -1)],
    *[struct.pack(">q", number) for number in (0, 1, 256, -1, 2**40)],
    *[struct.pack(">d", number) for number in (0.0, 1.5)],
]
"""Contents of binary columns: text, and numbers as Java writes them."""

WIDE = 5


def test_keys_of_any_bytes_arrive_intact_where_spark_would_have_put_them(stage: Stage) -> None:
    stage.make_intake()
    wide = stage.make_topic(f"{stage.target}.wide", WIDE)
    headers: list[tuple[str, bytes | None]] = [("tarry-target", wide.encode()), ("tarry-delay-ms", b"500")]
    numbered = [(key, b"%d" % number) for number, key in enumerate([*KEYS, *KEYS])]
    stage.put(stage.intake, *[(javas_partition(key, 2), key, value, headers) for key, value in numbered])
    worker = stage.worker()
    arrived = stage.committed(wide)
    worker.until(lambda: len(arrived.poll()) >= len(numbered), "all records")
    worker.close()
    records = arrived.read_to_the_end()
    assert Counter((record.key(), record.value()) for record in records) == Counter(numbered)
    assert {record.key(): record.partition() for record in records} == {key: javas_partition(key, WIDE) for key in KEYS}
    for key in KEYS:
        own = [value for sent, value in numbered if sent == key]
        assert [record.value() for record in records if record.key() == key] == own


def test_a_null_key_stays_null_and_an_empty_one_empty_also_as_a_dead_letter(stage: Stage) -> None:
    stage.make_intake()
    wide = stage.make_topic(f"{stage.target}.wide", WIDE)
    for target in (wide, f"{stage.target}.none"):
        headers: list[tuple[str, bytes | None]] = [("tarry-target", target.encode()), ("tarry-delay-ms", b"0")]
        for partition in (0, 1):
            stage.put(stage.intake, *[(partition, key, b"v", headers) for key in (None, b"", b"\x00")])
    worker = stage.worker()
    arrived, dead = stage.committed(wide), stage.committed(f"{stage.intake}.dead")
    worker.until(lambda: len(arrived.poll()) >= 6 and len(dead.poll()) >= 6, "all records")
    worker.close()
    # Without a key a message keeps to the partition that it came by.
    assert Counter((record.key(), record.partition()) for record in arrived.read_to_the_end()) == Counter(
        {(None, 0): 1, (None, 1): 1} | {(key, javas_partition(key, WIDE)): 2 for key in (b"", b"\x00")}
    )
    assert Counter((record.key(), record.partition()) for record in dead.read_to_the_end()) == Counter(
        {(key, partition): 1 for key in (None, b"", b"\x00") for partition in (0, 1)}
    )


def test_records_without_headers_go_through_an_intake_with_a_fixed_delay_in_their_order(stage: Stage) -> None:
    stage.make_intake(fixed_delay=True)
    policy = IntakePolicy(stage.intake, fixed_delay_ms=300, fixed_target=stage.target)
    plan = IntakePlan(RequestReader(policy), True, Geometry(20_000, 10, 0), 3_600_000)
    worker = stage.worker(intakes={stage.intake: plan})
    worker.until_serving()
    # The sink leaves the partition to its producer, and has no column of headers.
    sink = Producer(stage.cluster.client(acks="all", enable_idempotence=True, partitioner="murmur2_random"))
    sent: dict[bytes, list[bytes]] = {key: [] for key in KEYS}
    for number in range(5 * len(KEYS)):
        key = KEYS[number % len(KEYS)]
        sent[key].append(b"%d" % number)
        sink.produce(stage.intake, b"%d" % number, key)
    assert sink.flush(20) == 0
    sink.close()
    arrived = stage.committed(stage.target)
    worker.until(lambda: len(arrived.poll()) >= 5 * len(KEYS), "all records")
    worker.close()
    records = arrived.read_to_the_end()
    assert {key: [record.value() for record in records if record.key() == key] for key in KEYS} == sent
    assert len(records) == 5 * len(KEYS)
