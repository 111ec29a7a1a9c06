"""A hundred thousand messages a minute, through everything that may happen to services, connections and their broker.

The time is shared by rounds of at most five minutes. Each has an intake of its own and two services with other
settings than in the round before; the broker, its data and the proxy before it stay. What happens, and when, comes
from the seed, though not which message it hits.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from tarry.devbroker import EmbeddedBroker
from tests.e2e.conftest import Lab, laboratory, verdict
from tests.support.buckets import SMALL_WHEEL, wait_empty
from tests.support.chaos import Chaos, Wire, proxied_broker
from tests.support.checker import Report
from tests.support.processes import Serve
from tests.support.workload import Flow

PER_S: Final = 100_000 / 60
ROUND_S: Final = 300.0
CALM_S: Final = (1.0, 6.0)
SERVED_WITHIN_S: Final = 120.0
"""A call of the client library that hangs costs a minute, until the supervisor ends the process."""

SETTINGS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("static", {"group_protocol": "classic", "service": {"processes": 2}}),
    ("", {"group_protocol": "consumer"}),
    ("", {"group_protocol": "classic"}),
    ("static", {"group_protocol": "consumer", "service": {"processes": 2}}),
)
"""`service.instance`, empty for dynamic members, and the other settings."""


def last(
    lab: Lab, services: Sequence[Serve], chaos: Chaos, for_s: float, choose: random.Random, tell: Callable[[str], None]
) -> Report:
    """Do harm to services for so long, wait until all that was sent has arrived, end them, and judge."""
    for serve in services:
        serve.start().wait_serving()
    reader = lab.read()
    workload = lab.workload(keys=200, delays_ms=(200, 30_000))
    watch = lab.watch(workload, reader)
    began = told = time.monotonic()
    with Flow(workload, PER_S):
        watch.wait_served()
        while time.monotonic() < began + for_s:
            with watch.harm(SERVED_WITHIN_S):
                chaos.strike()
            time.sleep(choose.uniform(*CALM_S))  # for calm, too, is to be judged
            if time.monotonic() > told + 60:
                told = time.monotonic()
                tell(f"  sent {workload.sent:,}, arrived {len(reader.arrived):,}; {dict(chaos.done)}")
    wait_empty(lab.bootstrap, lab.intake, workload, reader, SERVED_WITHIN_S)
    return verdict(workload, reader, services, deadline_s=SERVED_WITHIN_S)


@pytest.mark.soak
def test_nothing_is_lost_twice_early_or_out_of_order_whatever_happens(
    start_embedded_broker: Callable[..., EmbeddedBroker],
    tmp_path: Path,
    unique_name: Callable[[str], str],
    soak_for_s: float,
    seed: int,
    tell: Callable[[str], None],
) -> None:
    choose = random.Random(seed)
    rounds = max(2, math.ceil(soak_for_s / ROUND_S))
    reports = []
    with proxied_broker(start_embedded_broker) as (proxy, broker):
        for number, (instance, settings) in zip(range(1, rounds + 1), cycle(SETTINGS), strict=False):
            tell(f"seed {seed}, round {number} of {rounds}: {settings}, instance {instance!r}")
            with laboratory(broker.bootstrap_servers, tmp_path, unique_name("soak"), seed + number) as lab:
                services = [
                    lab.serve(
                        **settings, **SMALL_WHEEL, bootstrap=proxy.address, instance=instance and f"{instance}-{side}"
                    )
                    for side in ("left", "right")
                ]
                classic = settings["group_protocol"] == "classic"
                chaos = Chaos(services, broker, Wire(proxy, choose), choose, kills_broker=classic)
                report = last(lab, services, chaos, soak_for_s / rounds, choose, tell)
                lab.clear()
            tell(f"{report}\n{dict(chaos.done)}")
            report.assert_clean()
            assert report.judged > report.produced / 10, report
            reports.append(report)
    tell(f"all: sent {sum(r.produced for r in reports):,}, order judged for {sum(r.judged for r in reports):,}")
