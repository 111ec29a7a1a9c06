"""A journal behind one message that waits for an hour stays short, and so is the take-over after a kill -9.

`python -m pytest -m exhaustive -s tests/e2e/test_long_wait.py` takes six minutes and prints how long the journal is
each minute, and how long the take-over takes then; that of a journal that nobody summed up is in
`tests/integration/test_takeover_long.py`.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tarry.client import DelayedProducer
from tests.e2e.conftest import Lab, verdict
from tests.support.workload import Flow

MINUTES: Final = 6
PER_S: Final = 1_000
MOST_RETAINED: Final = 60_000
"""Records: two minutes of transactions, as many a second as one process commits, and what is read before it sums up."""


def retained(bootstrap: str, topic: str) -> tuple[int, int]:
    """First offset and end of a topic's first partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()


@pytest.mark.exhaustive
def test_a_message_that_waits_long_keeps_neither_the_journal_nor_the_take_over_long(
    lab: Lab, tell: Callable[[str], None]
) -> None:
    serve = lab.serve(partitions=1, intake_settings={"max_delay": "2h"}, overflow={"from": "4h"}).start()
    serve.wait_serving()
    with DelayedProducer(lab.bootstrap, intake=lab.intake) as producer:
        producer.send(lab.targets[0].topic, b"waits", delay=timedelta(hours=1))
    reader = lab.read()
    workload = lab.workload(partitions=1, delays_ms=(200, 5_000))
    journal = f"{lab.intake}.journal"
    with Flow(workload, PER_S):
        for minute in range(1, MINUTES + 1):
            until = time.monotonic() + 60
            while (left := until - time.monotonic()) > 0:
                time.sleep(left)
            low, end = retained(lab.bootstrap, journal)
            tell(f"after {minute} min: {end:,} offsets of the journal were written, {end - low:,} are there")
        assert end - low < MOST_RETAINED
        assert end > 2 * (end - low)
        serve.kill()
        serve.start().wait_serving(deadline_s=60)
        [taken] = serve.events("taken_over")
        tell(
            f"low watermark {taken['low']}, done above it {taken['done_above']:,}, taken over in {taken['took_ms']} ms"
        )
        assert taken["low"] == 0
    verdict(workload, reader, [serve]).assert_kept()
