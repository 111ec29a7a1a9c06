"""kill -9 in each phase of the overflow wheel: filing, closing, draining each level, trimming, and over large buckets.

`tests.support.phases` tells by its calls of the client library in which phase a process is, and stops it there. Who
comes next has to find everything in Kafka: nothing lost, twice, early or out of order, and in the end no bucket holds
anything.
"""

import random
import signal
from collections.abc import Sequence

import pytest

from tests.e2e.conftest import Lab, verdict
from tests.support.buckets import QUICK_WHEEL, wait_empty
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.fate import STRUCK
from tests.support.phases import Phase
from tests.support.processes import Serve
from tests.support.workload import Flow

DELAYS_MS = (200, 15_500)
PER_S = 600
DEAD_WITHIN_S = 30.0


def wait_dead(serve: Serve) -> None:
    """Have a process go on until it dies in its phase."""
    serve.signal(signal.SIGUSR1)
    assert serve.wait_ended(DEAD_WITHIN_S) == 128 + signal.SIGKILL
    assert serve.events()[-1]["event"] == STRUCK, serve.tail()


@pytest.mark.exhaustive
@pytest.mark.some_of("phases")
@pytest.mark.parametrize(
    "phases",
    [
        ("filing-written", "filing-offsets", "filing-committed", "closed"),
        ("level-2-read", "level-2-written", "level-2-offsets", "level-2-committed"),
        ("level-1-read", "level-1-written", "level-1-offsets", "level-1-committed"),
        ("trimming", "trimmed"),
    ],
    ids=["filing-and-closing", "draining-level-2", "draining-level-1", "trimming"],
)
def test_the_next_owner_continues_after_a_process_that_died_in_a_phase(lab: Lab, phases: Sequence[Phase]) -> None:
    choose = random.Random(lab.seed)
    dying = [
        lab.serve_until(phase, count=choose.randint(1, 3), instance="only", **QUICK_WHEEL)
        for phase in choose.sample(phases, len(phases))
    ]
    last = lab.serve(instance="only", **QUICK_WHEEL)
    dying[0].start().wait_serving()  # it makes the topics
    workload, reader, watch = lab.watched(delays_ms=DELAYS_MS)
    with Flow(workload, PER_S), watch.harm():
        wait_dead(dying[0])
        for serve in dying[1:]:
            serve.start().wait_serving()
            wait_dead(serve)
        last.start().wait_serving()
    wait_empty(lab.bootstrap, lab.intake, workload, reader)
    report = verdict(workload, reader, [last])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
