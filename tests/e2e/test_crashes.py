"""kill -9 in mid-load: nothing lost, nothing twice, nothing early, each key in order.

Which moments are hit is left to chance, by the run's seed; the recovery of every single step of a
transaction has tests of its own. A static member that comes back takes its partitions up at once; of a
dynamic one, and with KIP-848 of both, the broker waits the session's 6 s first.
"""

import random
import time

import pytest

from tests.e2e.conftest import Lab, verdict
from tests.support.chaos import kill_and_start, pause
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.workload import Sending

TAKE_OVER_MS = 10_000


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize(
    ("group_protocol", "instance"),
    [("classic", "only"), ("consumer", "")],
    ids=["classic-static", "consumer-dynamic"],
)
def test_a_worker_killed_three_times_in_mid_load_delivers_all_once_in_order(
    lab: Lab, group_protocol: str, instance: str
) -> None:
    serve = lab.serve(group_protocol=group_protocol, instance=instance).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=(200, 8_000))
    with Sending(workload, 4_000, 15.0):
        kill_and_start(serve, random.Random(lab.seed), times=3, longest_s=3.0)
    report = verdict(workload, reader, [serve])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_one_of_two_services_killed_leaves_all_to_the_other(lab: Lab, group_protocol: str) -> None:
    survivor = lab.serve(group_protocol=group_protocol).start()
    survivor.wait_serving()
    victim = lab.serve(group_protocol=group_protocol).start()
    victim.wait_serving()
    survivor.wait_serving(times=2)
    settled = len(survivor.events("serving"))
    reader = lab.read()
    workload = lab.workload(delays_ms=(200, 6_000))
    with Sending(workload, 8_000, 10.0):
        pause(random.Random(lab.seed), 1.0, 4.0)
        killed = time.monotonic()
        victim.kill()
        survivor.wait_serving(times=settled + 1)
        took_ms = (time.monotonic() - killed) * 1_000
    assert took_ms <= TAKE_OVER_MS
    report = verdict(workload, reader, [survivor])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("run", "settings"),
    [
        (1, {"group_protocol": "classic", "instance": "only"}),
        (2, {"group_protocol": "consumer", "instance": "only"}),
        (3, {"group_protocol": "classic", "instance": ""}),
    ],
    ids=["1-classic-static", "2-consumer-static", "3-classic-dynamic"],
)
def test_a_hundred_thousand_messages_a_minute_survive_ten_kills(
    lab: Lab, soak_for_s: float, run: int, settings: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    seed, minutes = lab.seed + run, soak_for_s / 60
    serve = lab.serve(**settings).start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(seed=seed, keys=200, delays_ms=(200, 20_000))
    with Sending(workload, round(100_000 * minutes), soak_for_s):
        kill_and_start(serve, random.Random(seed), times=max(1, round(10 * minutes)), longest_s=5.0)
    report = verdict(workload, reader, [serve], deadline_s=120)
    with capsys.disabled():
        print(f"\nseed {seed}, {settings}: {report}")  # noqa: T201
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
