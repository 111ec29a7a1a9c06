"""Several processes under one supervisor: killed, ended, and asked how they are."""

import os
import signal
import time
from contextlib import suppress

import pytest

from tarry.core.window.matching import DONE_BYTES
from tarry.headers import ErrorCode
from tests.e2e.conftest import PARTITIONS, Lab, verdict
from tests.support.brokers import is_alive, wait_until
from tests.support.chaos import now_ms
from tests.support.processes import HAND_OVER_S, Serve
from tests.support.workload import Sending

BACK_MS = 10_000
"""A deadline far beyond the expected, as the machine is busy with other tests; `test_faults_members.py` measures it."""


def workers(serve: Serve) -> dict[int, int]:
    """Process ids of the newest life of each, by index."""
    return {started["process"]: started["pid"] for started in serve.events("process_started")}


def test_two_processes_deliver_all_and_a_killed_one_is_back_in_time(lab: Lab) -> None:
    serve = lab.serve(instance="only", service={"processes": 2}).start()
    serve.wait_serving(times=2)
    reader = lab.read()
    workload = lab.workload(delays_ms=(200, 6_000))
    before = workers(serve)
    with Sending(workload, 3_000, 8.0):
        time.sleep(2.5)  # in the midst of it
        from_ms = now_ms()
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(serve.events("serving")) == 3, "it serves again")
        back_ms = now_ms() - from_ms
    assert back_ms <= BACK_MS
    after = workers(serve)
    assert (after[0] != before[0], after[1]) == (True, before[1])
    [ended] = serve.events("process_ended")
    assert (ended["process"], ended["how"]) == (0, "SIGKILL")
    assert serve.metric("tarry_process_restarts_total") == 1
    report = verdict(workload, reader, [serve])
    report.assert_kept()
    assert {event["process"] for event in serve.events("serving")} == {0, 1}
    assert not any(is_alive(pid) for pid in {*before.values(), *after.values()})


def test_metrics_agree_with_what_was_sent(lab: Lab) -> None:
    serve = lab.serve(service={"processes": 2}).start()
    wait_until(lambda: serve.get("/readyz")[0] == 200, "ready", 60.0)
    none = [f'tarry_dead_messages_total{{code="{code}",intake="{lab.intake}"}} 0.0' for code in ErrorCode]
    assert set(none) <= set(serve.get("/metrics")[1].splitlines()), (
        "a rate does not see the first of what was not there"
    )
    workload = lab.workload(delays_ms=(1_000, 1_500))
    bad = lab.workload(delays_ms=(90_000, 100_000))  # beyond the 60 s that the intake allows
    workload.send(2_000, 0.5)
    bad.send(20, 0.0)
    wait_until(lambda: serve.metric("tarry_waiting_messages") > 0, "messages wait")
    wait_until(lambda: serve.metric("tarry_fired_messages_total") == 2_000, "all are counted as fired")
    wait_until(lambda: serve.metric("tarry_waiting_messages") == 0, "none waits")
    samples = serve.get("/metrics")[1]
    assert f'tarry_dead_messages_total{{code="beyond-max-delay",intake="{lab.intake}"}} 20.0' in samples
    assert serve.metric("tarry_received_messages_total") == 2_020
    assert serve.metric("tarry_placed_messages_total") == 2_020
    assert serve.metric("tarry_lateness_seconds_count") == 2_000
    assert 0 < serve.metric("tarry_lateness_seconds_sum") < 2_000 * 5
    assert serve.metric("tarry_transaction_messages_sum") == 2_020
    assert serve.metric("tarry_transaction_messages_count") == serve.metric("tarry_transaction_duration_seconds_count")
    assert serve.metric("tarry_assigned_partitions") == PARTITIONS
    assert serve.metric("tarry_takeovers_total") >= PARTITIONS
    assert serve.metric("tarry_takeover_duration_seconds_count") >= 1
    assert serve.metric("tarry_memory_budget_bytes") == 2 * 2**30
    # All that is left is what is known of messages that are done.
    assert 0 <= serve.metric("tarry_held_bytes") <= DONE_BYTES * 2_000
    wait_until(lambda: serve.metric("tarry_position_lag_messages") <= PARTITIONS, "read to the end")
    keys = {label.split("=")[0] for line in samples.splitlines() for label in labels_of(line)}
    assert keys <= {"intake", "partition", "process", "code", "decision", "outcome", "le", "version"}
    assert serve.stop() == 0


def labels_of(line: str) -> list[str]:
    inside = line.partition("{")[2].rpartition("}")[0]
    return inside.split(",") if inside and not line.startswith("#") else []


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_processes_without_partitions_are_ready_too_and_sigterm_ends_all_in_time(lab: Lab, group_protocol: str) -> None:
    serve = lab.serve(group_protocol=group_protocol, service={"processes": PARTITIONS + 1}).start()
    seen = set()

    def is_ready() -> bool:
        status, why = serve.get("/readyz")
        seen.add(status)
        assert status == 200 or why.startswith("process ")
        return status == 200

    wait_until(is_ready, "ready", 60.0)
    assert seen == {200, 503}
    assert serve.get("/livez") == (200, "ok\n")
    pids = workers(serve).values()
    began = time.monotonic()
    assert serve.stop() == 0
    assert time.monotonic() - began < HAND_OVER_S
    assert not any(is_alive(pid) for pid in pids)
    assert serve.events("process_killed") == []


def test_a_killed_supervisor_leaves_no_process_a_hung_one_neither(lab: Lab) -> None:
    serve = lab.serve(service={"processes": 2}).start()
    serve.wait_serving()
    pids = workers(serve)
    os.kill(pids[1], signal.SIGSTOP)
    try:
        serve.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in pids.values()), "all are gone", 5.0)
    finally:
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
