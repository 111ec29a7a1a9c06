"""An intake with one partition and a target with one: one order over all keys, and over messages without one.

With two services, of which one serves and the other waits; who serves is killed, twice.
"""

import random
from collections.abc import Sequence

import pytest

from tests.e2e.conftest import Lab, places_of, verdict
from tests.support.brokers import wait_until
from tests.support.chaos import pause
from tests.support.processes import Serve
from tests.support.workload import Flow, Target

PER_S = 200
SERVES_WITHIN_S = 60.0


def owner_of(services: Sequence[Serve]) -> Serve:
    """Wait until one of the services serves the one partition; return it.

    That it was given the partition is not enough: another one that joins may be given it before this one serves.
    """

    owners: list[Serve] = []

    def has_one() -> bool:
        owners[:] = [serve for serve in services if serves(serve)]  # once: it may be on its way to another one
        return len(owners) == 1

    wait_until(has_one, "one of the services serves the partition", SERVES_WITHIN_S)
    return owners[0]


def serves(serve: Serve) -> bool:
    """Whether the last that a service's log says of its partitions is that it serves one."""
    told = [event for event in serve.events() if event["event"] in {"assigned", "revoked", "lost", "serving"}]
    return bool(told) and told[-1]["event"] == "serving" and bool(places_of(serve))


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_one_partition_keeps_one_order_over_all_keys_when_its_owner_is_killed(lab: Lab, group_protocol: str) -> None:
    choose = random.Random(lab.seed)
    single = Target(f"{lab.group}.single", 1)
    lab.targets = [single]
    lab.create(single)
    services = [lab.serve(partitions=1, group_protocol=group_protocol).start() for _ in range(2)]
    owner_of(services)
    reader = lab.read()
    workload = lab.workload(1, keys=200, delays_ms=(200, 6_000))
    with Flow(workload, PER_S):
        for _ in range(2):
            pause(choose, 1.0, 3.0)
            victim = owner_of(services)
            victim.kill()
            survivor = next(serve for serve in services if serve is not victim)
            owner_of([survivor])
            victim.start().wait_listening()  # before that SIGTERM ends it at once, and not in good order
    report = verdict(workload, reader, services, across_keys=True)
    report.assert_kept(0.5)
