"""A process that is stopped for longer than it may be silent, and wakes: it must do no harm."""

import signal
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Lab, verdict
from tests.e2e.test_faults_transactions import TAKE_OVER_S, places_of, wait_shared
from tests.support.brokers import wait_until
from tests.support.chaos import first_fired_ms, is_stopped, now_ms
from tests.support.dying import Step
from tests.support.workload import Flow

PER_S = 800


@pytest.mark.parametrize(
    ("group_protocol", "step"), [("classic", "offsets"), ("consumer", "produced")], ids=["classic", "consumer"]
)
def test_a_zombie_that_wakes_in_mid_transaction_finds_its_partitions_gone_and_comes_back_as_a_member(
    lab: Lab, group_protocol: str, step: Step, tell: Callable[[str], None]
) -> None:
    other = lab.serve(group_protocol=group_protocol).start()
    other.wait_serving()
    zombie = lab.serve_until(step, count=3, number="STOP", group_protocol=group_protocol).start()
    wait_shared(lab, [other, zombie])
    reader = lab.read()
    workload = lab.workload(delays_ms=(200, 8_000))
    watch = lab.watch(workload, reader)
    with Flow(workload, PER_S):
        watch.wait_served()
        its_own = places_of(zombie)
        with watch.outage():
            zombie.signal(signal.SIGUSR1)
            wait_until(lambda: is_stopped(zombie.pid), "it is stopped")
            stopped_ms = now_ms()
            watch.wait_served()
            again_ms = first_fired_ms(reader.arrived, its_own, stopped_ms)
            served = len(zombie.events("serving"))
            zombie.signal(signal.SIGCONT)
            wait_until(lambda: len(zombie.events("serving")) > served, "it serves again", 30.0)
            wait_shared(lab, [other, zombie])
    took_s = (max(again_ms.values()) - stopped_ms) / 1_000
    tell(f"{group_protocol}: stopped in mid-transaction; all of its own is fired again after {took_s:.1f} s")
    assert zombie.events("lost"), zombie.tail()
    report = verdict(workload, reader, [other, zombie], outages=lab.outages)
    report.assert_clean()
    assert report.judged > 0, report
    assert took_s <= TAKE_OVER_S
