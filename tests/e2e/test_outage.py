"""An outage: nobody serves while tens of thousands of messages fall due, and others are sent that are not."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.e2e.conftest import Lab
from tests.support.brokers import wait_until
from tests.support.chaos import now_ms
from tests.support.checker import ALL_WITH_A_KEY, all_accepted, check

FLOOD = 20_000
AHEAD = 1_000
ALL_DELIVERED_S = 60.0


@pytest.mark.exhaustive
def test_a_flood_that_fell_due_during_an_outage_comes_once_in_due_order_and_nothing_behind_it_is_early(
    lab: Lab, tell: Callable[[str], None]
) -> None:
    serve = lab.serve(instance="only").start()
    serve.wait_serving()
    serve.kill()
    reader = lab.read()
    # Few keys: long sequences, in which later messages are due before earlier ones.
    overdue = lab.workload(keys=20, delays_ms=(0, 2_000))
    overdue.send(FLOOD, 4.0)
    flood = overdue.produced()
    last_due_ms = max(record.due_ms for record in flood)
    wait_until(lambda: now_ms() > last_due_ms, "all of the flood is overdue")
    ahead = lab.workload(keys=20, delays_ms=(6_000, 14_000), seed=lab.seed + 1)
    ahead.send(AHEAD, 0.5)
    assert not reader.poll()

    serve.start().wait_serving()
    serving_ms = next(at_ms for at_ms, event in reversed(serve.history()) if event["event"] == "serving")
    produced = all_accepted([*flood, *ahead.produced()])
    assert any(record.due_ms > serving_ms for record in produced), "all was overdue when it began to serve"
    with suppress(AssertionError):  # the report says better what is missing
        reader.wait_for(len(produced), ALL_DELIVERED_S)
    assert serve.stop() == 0
    arrived = reader.finish()
    seen_ms = [arrival.seen_ms for arrival in arrived if int(arrival.due_ms) <= last_due_ms]
    tell(f"{len(seen_ms)} overdue messages came from {min(seen_ms) - serving_ms} to {max(seen_ms) - serving_ms} ms")
    report = check(produced, arrived)
    report.assert_kept(ALL_WITH_A_KEY)
