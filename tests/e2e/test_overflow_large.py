"""Buckets that are larger than all the memory there is for messages, on a real broker, with kill -9 between two passes.

A bucket of a second, and one in which all is due in the same millisecond. Both come in due order, once, without a
standstill, and what a process holds stays about the budget. And a bucket of which nobody can know beforehand that it is
larger, because its messages are much longer than others.
"""

import signal
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.e2e.conftest import Lab, verdict
from tests.support.brokers import wait_until
from tests.support.buckets import QUICK_WHEEL, wait_empty, waiting_in_buckets
from tests.support.chaos import now_ms
from tests.support.checker import ALL_WITH_A_KEY
from tests.support.dying import MOST_HELD
from tests.support.fate import STRUCK
from tests.support.workload import Sending

BUDGET_BYTES = 16 * 2**20
MESSAGES = 8_000
LONGEST = 10_000
WIDTH_MS = 10_000
WIDE_WHEEL: Final[dict[str, Any]] = {
    "intake_settings": {"max_delay": "60s"},
    "overflow": {"from": "20s", "width": "10s", "size": 3},
}
"""One level is enough: what is filed comes straight into memory."""
LONG = 100_000
LONG_MESSAGES = 800
AHEAD_MS = 15_000
"""Within the first level: each message is filed once."""
DEAD_WITHIN_S = 30.0
DELIVERED_WITHIN_S = 60.0


@pytest.mark.alone
@pytest.mark.exhaustive
@pytest.mark.some_of("width_ms")
@pytest.mark.parametrize("width_ms", [1_000, 1], ids=["in-one-bucket", "in-one-millisecond"])
def test_more_than_memory_is_delivered_in_order_within_the_budget_through_deaths_between_passes(
    lab: Lab, width_ms: int, tell: Callable[[str], None]
) -> None:
    settings = {"instance": "only", "service": {"memory_budget": "16MiB"}, **QUICK_WHEEL}
    # The last one would die of a phase too, but nobody tells it to begin to count.
    *dying, last = lives = [lab.serve_until("read-again", count=count, **settings) for count in (1, 2, 1)]
    dying[0].start().wait_serving()
    reader = lab.read()
    due_ms = (now_ms() + AHEAD_MS) // 1_000 * 1_000
    workload = lab.workload(due_ms=(due_ms, due_ms + width_ms - 1), longest=LONGEST)
    with Sending(workload, MESSAGES, 3.0):
        dying[0].signal(signal.SIGUSR1)
    assert LONGEST / 2 * MESSAGES > 2 * BUDGET_BYTES  # what messages take beside their values not counted
    wait_until(lambda: waiting_in_buckets(lab.bootstrap, lab.intake) == MESSAGES, "all is filed")
    assert now_ms() < due_ms, "all was read before any of it was due"
    for serve in dying:
        assert serve.wait_ended(DEAD_WITHIN_S) == 128 + signal.SIGKILL
        assert serve.events()[-1]["event"] == STRUCK, serve.tail()
        following = lives[lives.index(serve) + 1].start()
        following.wait_serving()
        if following is not last:
            following.signal(signal.SIGUSR1)
    arrived = len(reader.poll())
    wait_empty(lab.bootstrap, lab.intake, workload, reader, DELIVERED_WITHIN_S)
    report = verdict(workload, reader, [last], all_read_before=True)
    report.assert_kept(ALL_WITH_A_KEY)
    most_bytes = [max(each["held_bytes"] for each in serve.events(MOST_HELD)) for serve in lives]
    most = ", ".join(f"{held / 2**20:.0f}" for held in most_bytes)
    tell(f"{arrived} came before the last process served; held at most {most} of {BUDGET_BYTES / 2**20:.0f} MiB")
    # The first also reads the intake: up to 5,000 messages at once, which may be more than there is room for.
    assert most_bytes[0] < 2.25 * BUDGET_BYTES
    # The others read buckets alone, which take half of the budget, and what comes in a turn.
    assert max(most_bytes[1:]) < BUDGET_BYTES


@pytest.mark.alone
@pytest.mark.exhaustive
def test_a_bucket_of_far_longer_messages_than_others_is_delivered_in_order_within_the_budget(
    lab: Lab, tell: Callable[[str], None]
) -> None:
    """The process that drains it has not read any of it before: it knows how many there are, and no more."""
    settings = {"instance": "only", "service": {"memory_budget": "16MiB"}, **WIDE_WHEEL}
    files = lab.serve(**settings).start()
    files.wait_serving()
    reader = lab.read()
    due_ms = (now_ms() // WIDTH_MS + 6) * WIDTH_MS
    workload = lab.workload(due_ms=(due_ms - WIDTH_MS, due_ms - 1), longest=100)
    workload.send(8_000, 1.0)
    workload.go_on(due_ms=(due_ms, due_ms + 999), longest=LONG)
    workload.send(LONG_MESSAGES, 5.0)
    assert LONG / 2 * LONG_MESSAGES > 2 * BUDGET_BYTES
    wait_until(lambda: waiting_in_buckets(lab.bootstrap, lab.intake) == 8_000 + LONG_MESSAGES, "all is filed")
    assert files.stop() == 0
    drains = lab.serve_until("read-again", **settings).start()  # and is never told to begin to count
    drains.wait_serving()
    assert now_ms() < due_ms - 2 * WIDTH_MS, "all was read before any of it was due"
    wait_empty(lab.bootstrap, lab.intake, workload, reader, DELIVERED_WITHIN_S)
    verdict(workload, reader, [drains], all_read_before=True).assert_kept(ALL_WITH_A_KEY)
    most_bytes = max(each["held_bytes"] for each in drains.events(MOST_HELD))
    tell(f"held at most {most_bytes / 2**20:.0f} of {BUDGET_BYTES / 2**20:.0f} MiB")
    # A bucket that is read whole takes half of the budget at most; with all of it 13 of 16 MiB were held, and not 6.
    assert most_bytes < 0.625 * BUDGET_BYTES
