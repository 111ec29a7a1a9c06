"""A hundred thousand messages a minute, through everything that may happen to services, connections and their broker.

Among them are records that nobody should write: one that only a compressed batch holds, and one in a bucket that the
service has not filed. Each must be a dead letter, whole. A few messages are due at the end of a round, so that the logs
of the highest level can only be trimmed by filing these again. The only replica of one target is on a broker that comes
and goes, so that its messages go through the parked log. The services are `tests.support.hasty`: both happens within
seconds.

The time is shared by rounds of at most five minutes. Each has an intake of its own and two services with other
settings than in the round before; the broker, its data and the proxy before it stay. What happens, and when, comes
from the seed, though not which message it hits.
"""

import math
import random
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from tarry.config import Config
from tarry.devbroker import EmbeddedBroker
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, wheel_topic
from tarry.testing.judge import LEAST_JUDGED, Report
from tests.e2e.conftest import PARTITIONS, Lab, laboratory, verdict
from tests.support.buckets import STRAGGLING_LEVEL, STRAGGLING_WHEEL, wait_empty
from tests.support.chaos import Chaos, Wire, now_ms, proxied_broker
from tests.support.foreign import Foreign
from tests.support.further_broker import FurtherBroker, make_apart, make_intake, make_internal_topics
from tests.support.hasty import REFILE_FROM
from tests.support.processes import Serve
from tests.support.topics import ends_of, starts_of
from tests.support.workload import Flow, Target

PER_S: Final = 100_000 / 60
ROUND_S: Final = 300.0
CALM_S: Final = (1.0, 6.0)
SERVED_WITHIN_S: Final = 120.0
"""A call of the client library that hangs costs a minute, until the supervisor ends the process."""

HASTY: Final = ("tests.support.hasty", "--config")
LONG_ROUND_S: Final = 180.0
"""A round of this length or longer files stragglers again: before, the logs are too short."""

FLAPS_FOR_SURE: Final = 4
"""After the broker of the target has been away so often, messages have gone through the parked log."""

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
    ends_ms = now_ms() + round(for_s * 1_000)
    workload, reader, watch = lab.watched(keys=200, delays_ms=(200, 30_000), straggle_until_ms=ends_ms)
    foreign = Foreign(lab.bootstrap, lab.intake, choose)
    began = told = time.monotonic()
    trimmed = 0
    with Flow(workload, PER_S):
        watch.wait_served()
        while time.monotonic() < began + for_s:
            foreign.send()
            with watch.harm(SERVED_WITHIN_S):
                chaos.strike()
            time.sleep(choose.uniform(*CALM_S))  # for calm, too, is to be judged
            straggling = max(starts_of(lab.bootstrap, wheel_topic(lab.intake, STRAGGLING_LEVEL)).values())
            trimmed = straggling if now_ms() < ends_ms else trimmed
            if time.monotonic() > told + 60:
                told = time.monotonic()
                tell(f"  sent {workload.sent:,}, arrived {len(reader.arrived):,}; {dict(chaos.done)}")
    foreign.verify(SERVED_WITHIN_S)
    tell(f"  {len(foreign.sent)} foreign records are dead letters")
    tell(f"  trimmed past stragglers: up to {trimmed:,} offsets of a log; parked log: {parked_in(lab):,} offsets")
    chaos.start_aborted()
    # The first straggler of each log is among its first offsets, and waits until the end of the round.
    assert for_s < LONG_ROUND_S or trimmed > REFILE_FROM, "stragglers were filed again"
    wait_empty(lab.bootstrap, lab.intake, workload, reader, SERVED_WITHIN_S)
    return verdict(workload, reader, services, deadline_s=SERVED_WITHIN_S)


def parked_in(lab: Lab) -> int:
    """Return how many offsets of the parked log were written."""
    return sum(ends_of(lab.bootstrap, lab.intake + PARKED, committed=False).values())


def settings_of(directory: Path) -> Config:
    """Those of a service of the last round."""
    newest = max(directory.glob("*.toml"), key=lambda path: path.stat().st_mtime_ns)
    return Config(**tomllib.loads(newest.read_text(encoding="utf-8")))


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
    flaps = parked = 0
    with proxied_broker(start_embedded_broker) as (proxy, broker), ExitStack() as until_the_end:
        further = FurtherBroker(broker, tmp_path / "further", "PROXIED")
        until_the_end.callback(further.stop)
        for number, (instance, settings) in zip(range(1, rounds + 1), cycle(SETTINGS), strict=False):
            tell(f"seed {seed}, round {number} of {rounds}: {settings}, instance {instance!r}")
            with laboratory(broker.bootstrap_servers, tmp_path, unique_name("soak"), seed + number) as lab:
                services = [
                    lab.serve(
                        command=HASTY,
                        **settings,
                        **STRAGGLING_WHEEL,
                        bootstrap=proxy.address,
                        instance=instance and f"{instance}-{side}",
                    )
                    for side in ("left", "right")
                ]
                if number == 1:
                    make_internal_topics(lab.bootstrap, lab.targets[0].topic)
                    further.start()
                apart = (
                    choose.choice((RESULTS, JOURNAL, DEAD, PARKED, wheel_topic("", 1))),
                    choose.randrange(PARTITIONS),
                )
                make_intake(lab.bootstrap, settings_of(tmp_path), apart)
                flapping = Target(f"{lab.intake}-flapping", 2)
                make_apart(lab.bootstrap, flapping.topic, flapping.partitions)
                lab.targets.append(flapping)
                tell(f"  {apart[0]}/{apart[1]} and {flapping.topic} lie on the second broker alone")
                classic = settings["group_protocol"] == "classic"
                chaos = Chaos(services, broker, Wire(proxy, choose), choose, kills_broker=classic, further=further)
                report = last(lab, services, chaos, soak_for_s / rounds, choose, tell)
                flaps, parked = flaps + chaos.done["partition_taken_away"], parked + parked_in(lab)
                lab.clear()
            tell(f"{report}\n{dict(chaos.done)}")
            report.assert_clean()
            reports.append(report)
    produced, judged = sum(one.sent for one in reports), sum(one.judged for one in reports)
    tell(f"all: sent {produced:,}, order judged for {judged:,}")
    assert judged >= LEAST_JUDGED * produced
    assert flaps < FLAPS_FOR_SURE or parked > 0, "messages went through the parked log"
