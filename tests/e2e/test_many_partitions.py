"""An intake of 200 partitions with delays of 30 days: its topics are made, it is served, and it is taken over."""

import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from tarry.devbroker import EmbeddedBroker
from tests.e2e.conftest import Lab, verdict
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.workload import Flow

PARTITIONS: Final = 200
PER_S: Final = 1_000
SERVED_WITHIN_S: Final = 180.0
FOR_EACH: Final = 9
"""Intake, results, journal, dead letters, parked log and four levels."""

OF_ALL: Final = 3
"""Status, pauses and operations have one partition each."""


@pytest.mark.alone
@pytest.mark.exhaustive
def test_an_intake_of_200_partitions_is_made_served_and_taken_over(
    embedded_broker: EmbeddedBroker, make_lab: Callable[[str], Lab], tell: Callable[[str], None]
) -> None:
    lab = make_lab(embedded_broker.bootstrap_servers)
    settings: dict[str, Any] = {"partitions": PARTITIONS, "intake_settings": {"max_delay": "30d"}}
    first, second = (lab.serve(instance="", **settings) for _ in range(2))
    began = time.monotonic()
    first.start().wait_serving(deadline_s=SERVED_WITHIN_S)
    tell(f"made and served after {time.monotonic() - began:.1f} s")
    topics = AdminClient({"bootstrap.servers": lab.bootstrap}).list_topics(timeout=30).topics
    made = [len(topic.partitions) for name, topic in topics.items() if name.startswith(lab.intake)]
    assert sum(made) == FOR_EACH * PARTITIONS + OF_ALL
    workload, reader, watch = lab.watched(partitions=PARTITIONS, keys=2_000)
    with Flow(workload, PER_S):
        watch.wait_served(SERVED_WITHIN_S)
        second.start()
        with watch.harm(SERVED_WITHIN_S):
            first.kill()
        tell(f"taken over from a process that was killed, by one that started: {watch.took_s[0]:.1f} s")
    report = verdict(workload, reader, [second], deadline_s=SERVED_WITHIN_S)
    tell(str(report))
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
