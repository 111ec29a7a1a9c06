"""The journal of an hour behind one parked message, as a version left it that did not sum it up, is taken over.

`python -m pytest -m exhaustive -s tests/integration/test_takeover_long.py` prints how long that takes, and how much
memory.
"""

import itertools
import resource
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer

from tarry.clock import SystemClock
from tarry.core.progress.journal import encode_done
from tarry.core.progress.source import INTAKE
from tests.support.stage import Stage

RECORDS = 300 * 3_600
"""300 transactions a second for an hour."""

ROOM = 10_000


def write(stage: Stage, topic: str, values: Iterator[bytes], *, a_batch: int) -> None:
    """Write records to a topic's one partition, in batches of so many: a transaction leaves a batch of one."""
    settings = stage.cluster.client(acks="all", batch_num_messages=a_batch, linger_ms=0 if a_batch == 1 else 20)
    with closing(Producer(settings)) as producer:
        for number, value in enumerate(values):
            if number % ROOM == 0:
                producer.flush(60)
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("records", [RECORDS // 60, RECORDS], ids=["a-minute", "an-hour"])
def test_the_journal_of_an_hour_is_read_while_the_group_is_served(stage: Stage, records: int) -> None:
    stage.make_intake()
    place = stage.places[0]
    stage.send(b"parked", delay_ms=3_600_000)
    process = stage.process("first")
    process.serve(process.take_over())
    process.commit_checkpoints(released=False)
    process.die()
    # Nearly in order, as transactions beside each other leave them.
    write(stage, stage.intake, itertools.repeat(b"", records), a_batch=10_000)
    offsets = (at ^ 1 for at in range(2, records))
    write(stage, f"{stage.intake}.journal", (encode_done({INTAKE: [at]}) for at in offsets), a_batch=1)
    print(f"\n{records} records, {stage.end(f'{stage.intake}.journal')} in the journal")  # noqa: T201
    clock = SystemClock()
    running = stage.worker()
    gaps: list[int] = []
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_ms = turned_ms = clock.monotonic_ms()

    def is_taken_over() -> bool:
        nonlocal turned_ms
        now_ms = clock.monotonic_ms()
        gaps.append(now_ms - turned_ms)
        turned_ms = now_ms
        return bool(running.events.of("taken_over"))

    running.until(is_taken_over, "the partition is taken over", 600)
    [taken] = running.events.of("taken_over")
    assert running.worker.look().states[place].low == 0
    assert taken["done_above"] >= records - 4
    assert not running.events.of("lost")
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    print(  # noqa: T201
        f"taken over in {taken['took_ms']} ms of {turned_ms - began_ms}, the longest turn {max(gaps)} ms; "
        f"the process took {more / 2**10:.1f} MiB more than before"
    )
