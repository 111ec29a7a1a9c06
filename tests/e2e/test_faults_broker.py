"""The broker goes away and comes back, in order and by kill -9; and so do the connections to it."""

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tarry.clock import SystemClock
from tarry.devbroker import EmbeddedBroker
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.settings import Cluster
from tarry.testing import Fault
from tests.e2e.conftest import Lab, verdict
from tests.support.brokers import wait_until
from tests.support.chaos import ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, Wire, proxied_broker
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.workload import Flow, Target

PER_S = 200
LONGEST_S = 120.0
"""A call of the client library that hangs costs a minute, until the supervisor ends the process."""


@pytest.mark.exhaustive
def test_offsets_can_be_asked_for_again_after_the_broker_was_killed(
    embedded_broker: EmbeddedBroker, make_lab: Callable[[str], Lab]
) -> None:
    lab = make_lab(embedded_broker.bootstrap_servers)
    lab.create(Target(lab.intake, 1))
    cluster = Cluster(embedded_broker.bootstrap_servers)
    offsets = Offsets(AdminClient(cluster.admin()), lab.group, cluster)
    place = (lab.intake, 0)

    def ends() -> dict[tuple[str, int], int]:
        return offsets.ends([place], committed=False)

    try:
        assert patiently(ends, SystemClock(), 20.0) == {place: 0}
        embedded_broker.kill()
        embedded_broker.start()
        assert patiently(ends, SystemClock(), 20.0) == {place: 0}
    finally:
        offsets.close()


@pytest.mark.parametrize("group_protocol", [pytest.param("classic", marks=pytest.mark.exhaustive), "consumer"])
def test_a_broker_that_is_killed_and_one_that_is_restarted_cost_time_and_no_message(
    embedded_broker: EmbeddedBroker, make_lab: Callable[[str], Lab], group_protocol: str, tell: Callable[[str], None]
) -> None:
    lab = make_lab(embedded_broker.bootstrap_servers)
    serve = lab.serve(group_protocol=group_protocol).start()
    serve.wait_serving()
    workload, reader, watch = lab.watched(delays_ms=(200, 6_000))
    with Flow(workload, PER_S):
        watch.wait_served()
        with watch.harm(LONGEST_S):
            embedded_broker.kill()
            time.sleep(random.Random(lab.seed).uniform(0, 3))  # what is due meanwhile waits
            embedded_broker.start()
        with watch.harm(LONGEST_S):
            embedded_broker.restart()
    tell(f"{group_protocol}: all fires again {watch.took_s} s after the broker was killed, restarted")
    report = verdict(workload, reader, [serve])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("api_key", "stalled_s"),
    [pytest.param(TXN_OFFSET_COMMIT, 4.0, marks=pytest.mark.exhaustive), (ADD_OFFSETS_TO_TXN, 8.0)],
    ids=["within-the-session", "beyond-the-session"],
)
def test_a_coordinator_that_is_away_as_offsets_are_sent_costs_time_and_no_message(
    start_embedded_broker: Callable[..., EmbeddedBroker],
    make_lab: Callable[[str], Lab],
    api_key: int,
    stalled_s: float,
    tell: Callable[[str], None],
) -> None:
    with proxied_broker(start_embedded_broker) as (proxy, broker):
        lab = make_lab(broker.bootstrap_servers)
        serve = lab.serve(bootstrap=proxy.address).start()
        serve.wait_serving()
        workload, reader, watch = lab.watched(delays_ms=(200, 6_000))
        with Flow(workload, PER_S):
            watch.wait_served()
            with watch.harm(LONGEST_S):
                struck = proxy.struck
                proxy.plan(Fault.LOSE_REQUEST, api_key)
                wait_until(lambda: proxy.struck > struck, "the request is lost")
                proxy.stall()
                time.sleep(stalled_s)
                proxy.cut()
                proxy.resume()
        tell(f"coordinator away for {stalled_s:g} s: all fires again after {watch.took_s} s")
        report = verdict(workload, reader, [serve])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group_protocol", ["classic", pytest.param("consumer", marks=pytest.mark.exhaustive)])
def test_connections_that_end_stall_and_slow_down_at_random_cost_time_and_no_message(
    start_embedded_broker: Callable[..., EmbeddedBroker],
    make_lab: Callable[[str], Lab],
    group_protocol: str,
    tell: Callable[[str], None],
) -> None:
    with proxied_broker(start_embedded_broker) as (proxy, broker):
        lab = make_lab(broker.bootstrap_servers)
        services = [lab.serve(bootstrap=proxy.address, group_protocol=group_protocol).start() for _ in range(2)]
        for serve in services:
            serve.wait_serving()
        workload, reader, watch = lab.watched(delays_ms=(200, 6_000))
        wire = Wire(proxy, random.Random(lab.seed))
        with Flow(workload, PER_S):
            watch.wait_served()
            with watch.harm(LONGEST_S):
                harms = [wire.harm() for _ in range(8)]
        tell(f"{group_protocol}: {', '.join(harms)}; {proxy.struck} requests cut")
        report = verdict(workload, reader, services)
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
