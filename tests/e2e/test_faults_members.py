"""Services that come and go while messages fire, two that claim to be the same one, and a worker killed under load."""

import os
import signal
from collections.abc import Callable

import pytest

from tests.e2e.conftest import Lab, verdict, wait_shared
from tests.support.brokers import wait_until
from tests.support.chaos import first_fired_ms, now_ms
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.workload import Flow

PER_S = 1_000
HEAVY_PER_S = 10_000
BACK_WHEN_BUSY_S = 10.0


@pytest.mark.exhaustive
@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_services_that_join_and_leave_while_messages_fire_fence_no_process(lab: Lab, group_protocol: str) -> None:
    stays = lab.serve(group_protocol=group_protocol).start()
    stays.wait_serving()
    guests = [lab.serve(group_protocol=group_protocol) for _ in range(2)]
    workload, reader, watch = lab.watched(delays_ms=(200, 4_000))
    with Flow(workload, PER_S):
        with watch.harm():
            for guest in guests:
                guest.start()
            wait_shared(lab, [stays, *guests])
        for left, stay in ((guests[0], guests[1:]), (guests[1], [])):
            with watch.harm():
                assert left.stop() == 0
                wait_shared(lab, [stays, *stay])
    report = verdict(workload, reader, [stays])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
    said = [event["event"] for serve in (stays, *guests) for _, event in serve.history()]
    assert said.count("revoked") >= 4
    assert "fencing" not in said, "who hands over in good order is not fenced"


@pytest.mark.exhaustive
def test_of_two_services_with_one_instance_the_first_ends_with_one_line(lab: Lab) -> None:
    first = lab.serve(instance="same").start()
    first.wait_serving()
    second = lab.serve(instance="same")
    workload, reader, watch = lab.watched(delays_ms=(200, 4_000))
    with Flow(workload, PER_S):
        watch.wait_served()
        with watch.harm():
            second.start()
            second.wait_serving()
    assert first.wait_ended(90.0) == 1, "it waits whether it was shut out by itself"
    assert [event["event"] for event in first.events()].count("shut_out") == 1
    lines = [line for line in first.tail(1_000).splitlines() if not line.startswith("{")]
    assert len(lines) == 1, lines
    assert "own service.instance" in lines[0]
    report = verdict(workload, reader, [second])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
def test_of_two_services_with_one_instance_under_kip_848_the_second_waits_with_one_line_and_follows(lab: Lab) -> None:
    first = lab.serve(instance="same", group_protocol="consumer").start()
    first.wait_serving()
    second = lab.serve(instance="same", group_protocol="consumer")
    workload, reader, watch = lab.watched(delays_ms=(200, 4_000))
    with Flow(workload, PER_S):
        second.start()
        wait_until(lambda: bool(second.events("instance_in_use")), "it says that it waits", 30.0)
        watch.wait_served()
        assert not second.events("serving")
        with watch.harm():
            assert first.stop() == 0
            second.wait_serving()
    assert len(second.events("instance_in_use")) == 1
    report = verdict(workload, reader, [second])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.alone
@pytest.mark.exhaustive
@pytest.mark.parametrize("kills", [1, 5], ids=["once", "often"])
def test_a_worker_killed_at_ten_thousand_messages_a_second_fires_again_in_time(
    lab: Lab, kills: int, tell: Callable[[str], None]
) -> None:
    serve = lab.serve(instance="only").start()
    serve.wait_serving()
    workload, reader, watch = lab.watched(keys=500, delays_ms=(200, 4_000))
    killed: list[int] = []
    with Flow(workload, HEAVY_PER_S):
        watch.wait_served()
        for left in reversed(range(kills)):
            with watch.harm():
                killed.append(now_ms())
                os.kill(serve.workers[0], signal.SIGKILL)
            if left:  # a supervisor gives who dies again within a minute longer and longer
                with watch.harm():
                    assert serve.stop() == 0
                    serve.start()
    report = verdict(workload, reader, [serve], deadline_s=120.0)
    history = serve.history()
    back_s = []
    for at_ms in killed:
        again_ms = [seen_ms - at_ms for seen_ms in first_fired_ms(reader.arrived, workload.newest, at_ms).values()]
        steps = [f"{event['event']} {then_ms - at_ms}" for then_ms, event in history if 0 <= then_ms - at_ms < 5_000]
        tell(f"after kill -9 the first partition fires after {min(again_ms)} ms, all after {max(again_ms)}: {steps}")
        back_s.append(min(again_ms) / 1_000)
    tell(str(report))
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
    assert max(back_s) <= BACK_WHEN_BUSY_S
