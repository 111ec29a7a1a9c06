"""An intake with a fixed delay that is longer than several levels reach: each partition has the order of the log.

Exactly: record for record, those without a key among them, and through the deaths of two of three services.
"""

import random
import signal
from collections import defaultdict
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from tests.e2e.conftest import PARTITIONS, Lab, wait_shared
from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL, waiting_in_buckets
from tests.support.checker import digest
from tests.support.fate import STRUCK
from tests.support.phases import Phase
from tests.support.topics import read_topic

DELAY_MS = 12_500
PHASES: Sequence[Phase] = ("level-2-written", "level-1-offsets")
RECORDS = 4_000
DEAD_WITHIN_S = 30.0
DELIVERED_WITHIN_S = 60.0


def send(lab: Lab, producer: Producer, choose: random.Random, over_s: float) -> None:
    """Send records without headers, evenly over a time; one in ten has no key."""
    for number in range(RECORDS):
        key = None if choose.random() < 0.1 else b"key-%d" % choose.randrange(50)
        producer.produce(lab.intake, b"%d %b" % (number, b"x" * choose.randrange(200)), key)
        producer.poll(over_s / RECORDS)
    assert producer.flush(30) == 0


@pytest.mark.exhaustive
def test_a_fixed_delay_through_levels_keeps_the_order_of_the_log_when_services_die(lab: Lab) -> None:
    choose = random.Random(lab.seed)
    target = lab.targets[0]
    settings = {**QUICK_WHEEL, "intake_settings": {"delay": f"{DELAY_MS}ms", "target": target.topic}}
    survivor = lab.serve(**settings)
    dying = [lab.serve_until(phase, count=choose.randint(1, 3), **settings) for phase in PHASES]
    survivor.start().wait_serving()  # it makes the topics
    for serve in dying:
        serve.start()
    wait_shared(lab, [survivor, *dying])
    reader = lab.read(target.topic)
    producer = Producer(
        {
            "bootstrap.servers": lab.bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "sticky.partitioning.linger.ms": 0,
        }
    )
    send(lab, producer, choose, 4.0)
    wait_until(lambda: waiting_in_buckets(lab.bootstrap, lab.intake) > RECORDS / 2, "most of it is filed")
    for serve in dying:
        serve.signal(signal.SIGUSR1)
        assert serve.wait_ended(DEAD_WITHIN_S) == 128 + signal.SIGKILL
        assert serve.events()[-1]["event"] == STRUCK, serve.tail()
    send(lab, producer, choose, 2.0)
    reader.wait_for(2 * RECORDS, DELIVERED_WITHIN_S)
    wait_until(lambda: not waiting_in_buckets(lab.bootstrap, lab.intake), "all buckets are empty", 30.0)
    assert survivor.stop() == 0
    arrived = sorted(reader.finish(), key=lambda each: each.offset)
    came, late_ms = defaultdict(list), []
    for each in arrived:
        came[each.partition].append((each.source, each.key, each.value))
        late_ms.append((each.source, each.timestamp_ms - int(each.due_ms), each.seen_ms - int(each.due_ms)))
    sent, due_ms = defaultdict(list), {}
    for record in read_topic(lab.bootstrap, lab.intake):
        source = f"{lab.intake}/{record.partition()}/{record.offset()}"
        sent[record.partition()].append((source, record.key(), digest(record.value())))
        due_ms[source] = record.timestamp()[1] + DELAY_MS
    # The target has as many partitions as the intake: so each key, and what has none, stays in its partition's number.
    assert came == sent
    assert set(sent) == set(range(PARTITIONS))
    assert {each.source: int(each.due_ms) for each in arrived} == due_ms
    assert [each for each in late_ms if each[1] < 0 or each[2] < 0] == []
