"""kill -9 at each step of a firing transaction, and its owner as a zombie: nothing lost, twice, early or out of order.

`tests.support.dying` stops the process between two calls of the client library, where a signal from outside
would hit one step or another.
"""

import random
import signal
from collections.abc import Callable

import pytest

from tests.e2e.conftest import TAKE_OVER_S, Lab, places_of, verdict, wait_shared
from tests.support.chaos import first_fired_ms, now_ms
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.dying import STEPS, Step
from tests.support.workload import Flow

PER_S = 300


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_a_process_that_dies_at_any_step_of_a_transaction_is_followed_by_one_that_goes_on(lab: Lab, times: int) -> None:
    choose = random.Random(lab.seed)
    workload, reader, watch = lab.watched(delays_ms=(200, 5_000))
    first = lab.serve(instance="only").start()
    first.wait_serving()
    with Flow(workload, PER_S):
        assert first.stop() == 0
        for step in choose.sample(STEPS * times, len(STEPS) * times):
            serve = lab.serve_until(step, count=choose.randint(1, 5), instance="only").start()
            serve.wait_serving()
            serve.signal(signal.SIGUSR1)
            assert serve.wait_ended(20.0) == 128 + signal.SIGKILL, step
        last = lab.serve(instance="only").start()
        last.wait_serving()
        watch.wait_served()
    report = verdict(workload, reader, [last])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)


@pytest.mark.exhaustive
@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize(
    ("group_protocol", "steps"),
    [("classic", ["begun", "produced", "offsets"]), ("consumer", ["produced", "offsets", "committed"])],
    ids=["classic", "consumer"],
)
def test_the_surviving_process_fires_the_messages_of_the_killed_ones_open_transaction(
    lab: Lab, group_protocol: str, steps: list[Step], tell: Callable[[str], None]
) -> None:
    survivor = lab.serve(group_protocol=group_protocol)
    dying = [lab.serve_until(step, count=3, group_protocol=group_protocol) for step in steps]
    survivor.start().wait_serving()  # it makes the topics
    for serve in dying:
        serve.start()
    wait_shared(lab, [survivor, *dying])
    workload, reader, watch = lab.watched(delays_ms=(200, 8_000))
    with Flow(workload, PER_S):
        watch.wait_served()
        victims = {place for serve in dying for place in places_of(serve)}
        with watch.harm():
            for serve in dying:
                serve.signal(signal.SIGUSR1)
            assert [serve.wait_ended(20.0) for serve in dying] == [128 + signal.SIGKILL] * len(dying)
            killed_ms = now_ms()
    again_ms = first_fired_ms(reader.arrived, victims, killed_ms)
    took_s = (max(again_ms.values()) - killed_ms) / 1_000
    report = verdict(workload, reader, [survivor])
    tell(f"{group_protocol}: killed in mid-transaction; all of theirs is fired again after {took_s:.1f} s")
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
    assert took_s <= TAKE_OVER_S
