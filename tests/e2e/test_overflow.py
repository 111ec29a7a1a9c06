"""The overflow wheel on a real broker: three levels that turn within a minute, with kill -9 in every phase.

Buckets of 1, 3 and 9 s: what is due within seconds stays in memory, what is due later goes through one, two or three
levels. The same checker as everywhere; and in the end no bucket holds anything.
"""

import random
from typing import Any

import pytest

from tarry.kafka.settings import Cluster
from tests.e2e.conftest import Lab, verdict
from tests.e2e.test_crashes import kill_and_start
from tests.support.brokers import wait_until
from tests.support.reader import Reader
from tests.support.stage import inbox
from tests.support.workload import Sending, Workload

SMALL: dict[str, Any] = {
    "intake_settings": {"max_delay": "40s"},
    "overflow": {"from": "2s", "width": "1s", "size": 3},
}
DELAYS_MS = (200, 30_000)


def waiting_in_buckets(lab: Lab) -> int:
    """How many records the buckets hold."""
    cluster = Cluster(lab.bootstrap)
    with inbox(cluster, [f"{lab.intake}.wheel-{level}" for level in (1, 2, 3)], trimmed=True) as records:
        return len(records.read_to_the_end())


def wait_empty(lab: Lab, workload: Workload, reader: Reader) -> None:
    """Wait until all has arrived, and every bucket is empty."""
    reader.wait_for(len(workload.produced(())), 90.0)
    wait_until(lambda: not waiting_in_buckets(lab), "all buckets are empty", 30.0)


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_messages_through_three_levels_arrive_once_in_order_and_nothing_stays_behind(
    lab: Lab, group_protocol: str
) -> None:
    serve = lab.serve(group_protocol=group_protocol, **SMALL).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=DELAYS_MS)
    with Sending(workload, 20_000, 15.0):
        pass
    assert waiting_in_buckets(lab) > 1_000
    wait_empty(lab, workload, reader)
    report = verdict(workload, reader, [serve], outages=lab.outages)
    report.assert_kept()


def test_a_worker_killed_again_and_again_while_buckets_turn_delivers_all_once_in_order(lab: Lab) -> None:
    serve = lab.serve(instance="only", **SMALL).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=DELAYS_MS)
    with Sending(workload, 20_000, 25.0):
        kill_and_start(serve, random.Random(lab.seed), times=6, longest_s=3.0)
    wait_empty(lab, workload, reader)
    report = verdict(workload, reader, [serve], outages=lab.outages)
    report.assert_kept()
