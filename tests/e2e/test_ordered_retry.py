"""Ordered retry through the service: what fails comes back, its key waits for it, and no other does."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import pytest

from tarry.client import DelayedProducer
from tarry.client.retry.core.journey import RETRY_TICKET
from tarry.handle import Handle
from tarry.headers import DELIVER_AT, ERROR, ERROR_DETAIL, ID
from tests.e2e.conftest import PARTITIONS, Lab
from tests.support.brokers import wait_until
from tests.support.programs import tarry
from tests.support.retrying import (
    Consuming,
    Done,
    RetryConfig,
    Task,
    all_done,
    consuming,
    drawn,
    in_order_and_once,
    send,
    wait_done,
)
from tests.support.topics import read_topic
from tests.support.workload import Target

if TYPE_CHECKING:
    from confluent_kafka import Message

DONE_WITHIN_S = 120.0


def config_of(lab: Lab, **settings: str | int) -> RetryConfig:
    """A consumer of a topic that is made, and where its handler sends to."""
    topic, out = f"{lab.intake}.tasks", f"{lab.intake}.done"
    group = f"{lab.group}.retrying"
    lab.create(Target(topic, PARTITIONS), Target(out, 1))
    lab.allow(f"{topic}.{group}.retry")
    return replace(RetryConfig(lab.bootstrap, topic, group, lab.intake, out), **settings)  # type: ignore[arg-type]


def wait_taken_over(processes: list[Consuming]) -> None:
    wait_until(lambda: all(one.events("taken_over") for one in processes), "all have partitions", 60.0)


def headers_of(record: "Message[Any, Any]") -> dict[str, bytes]:
    """Its headers, none of which stands twice."""
    found: Any = record.headers() or []
    return dict(found)


def healthy_ms(done: list[Done]) -> tuple[float, float]:
    """How long messages took whose key has none that fails: p50 and p99."""
    took_ms = quantiles([one.at_ms - one.task.sent_ms for one in done if int(one.key[4:]) % 2 == 0], n=100)
    return took_ms[49], took_ms[98]


@pytest.mark.exhaustive
@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_a_message_that_fails_holds_up_its_key_and_no_other(lab: Lab, tmp_path: Path, group_protocol: str) -> None:
    choose = random.Random(lab.seed)
    lab.serve().start().wait_serving()
    config = config_of(lab, group_protocol=group_protocol)
    with consuming(config, tmp_path, 1) as processes:
        wait_taken_over(processes)
        sent = send(lab.bootstrap, config.topic, drawn(20, 1_000, 0.1, choose), 500.0)
        wait_done(lab.bootstrap, config.out, 1_000, DONE_WITHIN_S)
        assert [one.stop() for one in processes] == [0]
    in_order_and_once(sent, all_done(lab.bootstrap, config.out))
    names = f"{config.topic}.{config.group}"
    assert read_topic(lab.bootstrap, f"{names}.dead") == []
    state = {record.key(): record.value() for record in read_topic(lab.bootstrap, f"{names}.retry-state")}
    assert state, "some keys were in trouble"
    assert set(state.values()) == {None}, "and none is"


def done_through_kills(lab: Lab, directory: Path, messages: int, per_s: float, failing: float) -> list[Done]:
    """Let two consumers handle messages, while one of them is killed twice and the service once."""
    serve = lab.serve(instance="only").start()
    serve.wait_serving()
    config = config_of(lab)
    with consuming(config, directory, 2) as processes:
        wait_taken_over(processes)
        with ThreadPoolExecutor(1) as pool:
            wanted = drawn(100, messages, failing, random.Random(lab.seed))
            sending = pool.submit(send, lab.bootstrap, config.topic, wanted, per_s)
            for victim in (processes[0], serve, processes[0]):
                time.sleep(messages / per_s / 4)
                taken_over = processes[0].events("taken_over")
                victim.kill()
                victim.start()
            sent = sending.result()
        wait_done(lab.bootstrap, config.out, messages, DONE_WITHIN_S)
        # One that still imports its modules would end by the signal, and not in good order.
        wait_until(lambda: processes[0].events("taken_over") > taken_over, "the last that was killed is back", 60.0)
        assert [one.stop() for one in processes] == [0, 0]
    assert serve.stop() == 0
    done = all_done(lab.bootstrap, config.out)
    in_order_and_once(sent, done)
    return done


def test_consumers_and_a_service_that_are_killed_break_no_order_and_double_nothing(lab: Lab, tmp_path: Path) -> None:
    done = done_through_kills(lab, tmp_path, 2_000, 250.0, 0.05)
    assert any(one.task.failures for one in done)


@pytest.mark.exhaustive
def test_a_failing_key_delays_no_other_key_even_if_consumers_and_a_service_are_killed(
    bootstrap: str, make_lab: Callable[[str], Lab], tmp_path: Path, tell: Callable[[str], None]
) -> None:
    took_ms = {}
    for failing in (0.0, 0.05):
        done = done_through_kills(make_lab(bootstrap), tmp_path, 10_000, 200.0, failing)
        p50_ms, took_ms[failing] = healthy_ms(done)
        attempts = sum(one.attempt for one in done)
        tell(
            f"{failing:.0%} of {len(done):,} fail, {attempts:,} attempts: keys without failures "
            f"p50 {p50_ms:.0f}, p99 {took_ms[failing]:.0f} ms"
        )
    assert took_ms[0.05] <= 2 * took_ms[0.0]


@pytest.mark.exhaustive
def test_a_head_that_is_cancelled_on_its_way_holds_up_its_key_no_longer_than_it_is_waited_for(
    lab: Lab, tmp_path: Path
) -> None:
    lab.serve().start().wait_serving()
    config = config_of(lab, first_ms=10_000, missing_after_ms=1_000)
    with consuming(config, tmp_path, 1) as processes:
        wait_taken_over(processes)
        sent = send(lab.bootstrap, config.topic, [(b"k", 1), (b"k", 0), (b"k", 0)])
        wait_until(lambda: len(read_topic(lab.bootstrap, lab.intake)) == 3, "all are on their way")
        [head] = [one for one in read_topic(lab.bootstrap, lab.intake) if headers_of(one)[RETRY_TICKET] == b"0/1"]
        headers = headers_of(head)
        due_ms, hop_id = int(headers[DELIVER_AT]), headers[ID].decode()
        with DelayedProducer(lab.bootstrap, lab.intake) as producer:
            producer.cancel(Handle(lab.intake, head.partition() or 0, due_ms, hop_id))
        wait_done(lab.bootstrap, config.out, 2, DONE_WITHIN_S)
        assert [one.stop() for one in processes] == [0]
    assert [one.task for one in all_done(lab.bootstrap, config.out)] == sent[b"k"][1:]
    [dead] = read_topic(lab.bootstrap, f"{config.topic}.{config.group}.dead")
    assert Task.of(dead.value()) == sent[b"k"][0]
    headers = headers_of(dead)
    assert (headers[ERROR], headers[ERROR_DETAIL]) == (b"never-came-back", b"cancelled")


@pytest.mark.exhaustive
def test_a_long_key_queue_pauses_its_partition_and_then_continues(lab: Lab, tmp_path: Path) -> None:
    lab.serve().start().wait_serving()
    config = config_of(lab, first_ms=1_000, max_key_queue=500)
    with consuming(config, tmp_path, 1) as processes:
        wait_taken_over(processes)
        sent = send(lab.bootstrap, config.topic, [(b"k", 2), *[(b"k", 0)] * 1_000])
        wait_done(lab.bootstrap, config.out, 1_001, DONE_WITHIN_S)
        assert processes[0].events("partition_waits") >= 1
        assert [one.stop() for one in processes] == [0]
    in_order_and_once(sent, all_done(lab.bootstrap, config.out))


@pytest.mark.exhaustive
def test_a_key_that_stops_goes_on_when_its_dead_letters_are_sent_again(lab: Lab, tmp_path: Path) -> None:
    lab.serve().start().wait_serving()
    mended = tmp_path / "mended"
    config = config_of(lab, first_ms=100, attempts=2, mended=str(mended))
    with consuming(config, tmp_path, 1) as processes:
        wait_taken_over(processes)
        sent = send(lab.bootstrap, config.topic, [(b"k", 9), (b"k", 0), (b"other", 0)])
        wait_until(
            lambda: len(read_topic(lab.bootstrap, f"{config.topic}.{config.group}.dead")) == 2, "the key has stopped"
        )
        wait_done(lab.bootstrap, config.out, 1, DONE_WITHIN_S)
        assert [one.task for one in all_done(lab.bootstrap, config.out)] == sent[b"other"]
        dead = read_topic(lab.bootstrap, f"{config.topic}.{config.group}.dead")
        assert [Task.of(one.value()) for one in dead] == sent[b"k"]
        assert [headers_of(one)[ERROR] for one in dead] == [b"out-of-attempts", b"key-stopped"]
        mended.touch()
        letters = f"{config.topic}.{config.group}.dead"
        again = ("redrive", letters, "--to", config.topic, "--bootstrap-servers", lab.bootstrap)
        shown = tarry(*again, "--where", "tarry-error=key-*", "--dry-run", cwd=tmp_path)
        assert shown.code == 0, shown.err
        assert shown.out.startswith("would send 1 ")
        assert tarry(*again, cwd=tmp_path)[:2] == (0, f"sent 2 to {config.topic}\n")
        wait_done(lab.bootstrap, config.out, 3, DONE_WITHIN_S)
        assert tarry(*again, cwd=tmp_path)[:2] == (0, f"sent 0 to {config.topic}\n")
        assert [one.stop() for one in processes] == [0]
    assert [one.task for one in all_done(lab.bootstrap, config.out) if one.key == b"k"] == sent[b"k"]
