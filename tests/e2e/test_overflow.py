"""The overflow wheel on a real broker: three levels that turn within a minute, with kill -9 in every phase.

Buckets of 1, 3 and 9 s: what is due within seconds stays in memory, what is due later goes through one, two or three
levels. The same checker as everywhere; and in the end no bucket holds anything.
"""

import random

import pytest

from tests.e2e.conftest import Lab, verdict
from tests.support.buckets import SMALL_WHEEL, wait_empty, waiting_in_buckets
from tests.support.chaos import kill_and_start
from tests.support.workload import Sending

DELAYS_MS = (200, 30_000)


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_messages_through_three_levels_arrive_once_in_order_and_nothing_stays_behind(
    lab: Lab, group_protocol: str
) -> None:
    serve = lab.serve(group_protocol=group_protocol, **SMALL_WHEEL).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=DELAYS_MS)
    with Sending(workload, 5_000, 12.0):
        pass
    assert waiting_in_buckets(lab.bootstrap, lab.intake)
    wait_empty(lab.bootstrap, lab.intake, workload, reader)
    report = verdict(workload, reader, [serve])
    report.assert_kept()


@pytest.mark.alone
@pytest.mark.exhaustive
def test_a_worker_killed_again_and_again_while_buckets_turn_delivers_all_once_in_order(lab: Lab) -> None:
    serve = lab.serve(instance="only", **SMALL_WHEEL).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=DELAYS_MS)
    with Sending(workload, 20_000, 25.0):
        kill_and_start(serve, random.Random(lab.seed), times=6, longest_s=3.0)
    wait_empty(lab.bootstrap, lab.intake, workload, reader)
    report = verdict(workload, reader, [serve])
    report.assert_kept()


@pytest.mark.exhaustive
def test_a_service_that_moves_to_another_group_goes_on_where_a_dead_one_was(lab: Lab) -> None:
    before = lab.serve(group_protocol="consumer", **SMALL_WHEEL).start()
    before.wait_serving()
    workload, reader, watch = lab.watched(delays_ms=(200, 12_000))
    with Sending(workload, 10_000, 10.0):
        watch.wait_served()
        before.kill()
        after = lab.serve(group=f"{lab.group}-2", **SMALL_WHEEL).start()
        after.wait_serving()
    wait_empty(lab.bootstrap, lab.intake, workload, reader)
    assert {event["topic"] for event in after.events("checkpoint_from_copy")} == {lab.intake}
    report = verdict(workload, reader, [after])
    report.assert_kept()
