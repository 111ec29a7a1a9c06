"""A rolling update of two services under load: none lost, twice, early or out of order, and no long pause.

`TARRY_PREVIOUS` names the Python of an environment with another version, which is then replaced by this one. Without
it, this version is replaced by itself.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from tests.e2e.conftest import PARTITIONS, Lab, verdict
from tests.support.chaos import now_ms
from tests.support.checker import Arrived
from tests.support.workload import Sending

PREVIOUS = os.environ.get("TARRY_PREVIOUS", sys.executable)
DELAYS_MS = (200, 4_000)


def longest_pauses_ms(arrived: Sequence[Arrived], first_ms: int, last_ms: int) -> dict[str, int]:
    """How long nothing came from each partition of the intake, at most, by `TOPIC/PARTITION`.

    Args:
        arrived: what a reader got.
        first_ms: from then on something is due in each partition all the time, wall time.
        last_ms: until then.
    """
    seen: defaultdict[str, list[int]] = defaultdict(lambda: [first_ms])
    for message in arrived:
        if first_ms < message.seen_ms < last_ms:
            seen[message.source.rpartition("/")[0]].append(message.seen_ms)
    return {
        source: max(after - before for before, after in pairwise([*sorted(times), last_ms]))
        for source, times in sorted(seen.items())
    }


def roll(lab: Lab, per_s: int, seconds: float, settings: dict[str, str], tell: Callable[[str], None]) -> None:
    """Replace one of two services after the other while messages are sent, judge, and tell the pauses."""
    old = [lab.serve(python=PREVIOUS, **settings).start() for _ in range(2)]
    for serve in old:
        serve.wait_serving()
    reader, workload = lab.read(), lab.workload(keys=200, delays_ms=DELAYS_MS, limits=sys.executable == PREVIOUS)
    new = []
    with Sending(workload, round(per_s * seconds), seconds) as sending:
        reader.wait_until(lambda arrived: len(arrived) >= 2 * per_s, "it is in full swing", 30.0)
        first_ms = now_ms()
        for serve in old:
            assert serve.stop() == 0
            new.append(lab.serve(**settings).start())
            new[-1].wait_serving()
        rolled_ms = now_ms()
        assert sending.is_going_on, "the load was over before the update was"
    last_ms = now_ms()
    report = verdict(workload, reader, new)
    report.assert_kept()
    pauses_ms = longest_pauses_ms(reader.arrived, first_ms, last_ms)
    assert len(pauses_ms) == PARTITIONS
    tell(f"rolled in {rolled_ms - first_ms:,} ms at {per_s:,} msg/s, {settings}: longest pauses {pauses_ms}; {report}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_two_services_are_replaced_one_after_the_other(
    lab: Lab, tell: Callable[[str], None], group_protocol: str
) -> None:
    roll(lab, 1_000, 40.0, {"group_protocol": group_protocol}, tell)


@pytest.mark.exhaustive
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_two_services_are_replaced_at_5000_a_second(lab: Lab, tell: Callable[[str], None], group_protocol: str) -> None:
    roll(lab, 5_000, 60.0, {"group_protocol": group_protocol}, tell)
