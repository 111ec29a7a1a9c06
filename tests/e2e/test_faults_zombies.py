"""A process that is stopped for longer than it may be silent, and wakes: it must do no harm."""

import signal
from collections.abc import Callable
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.clock import SystemClock
from tarry.kafka.errors import error_of
from tarry.kafka.offsets import Offsets
from tarry.kafka.patience import patiently
from tarry.kafka.settings import TRANSACTION_TIMEOUT_MS, Cluster
from tests.e2e.conftest import PARTITIONS, TAKE_OVER_S, Lab, places_of, verdict, wait_shared
from tests.support.brokers import wait_until
from tests.support.chaos import first_fired_ms, is_stopped, now_ms
from tests.support.checker import LEAST_JUDGED_OF_FAULTS
from tests.support.dying import Step
from tests.support.workload import Flow

PER_S = 300
BROKERS_LOOK_S = 30.0
"""Beyond its timeout a transaction stays open until the brokers look for such the next time: every 10 s by default."""


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize(
    ("group_protocol", "step", "sleeps_ms"),
    [
        ("classic", "offsets", 0),
        ("consumer", "produced", 0),
        pytest.param("classic", "produced", TRANSACTION_TIMEOUT_MS + 5_000, marks=pytest.mark.exhaustive),
        pytest.param("consumer", "offsets", TRANSACTION_TIMEOUT_MS + 5_000, marks=pytest.mark.exhaustive),
    ],
    ids=["classic", "consumer", "classic-beyond-the-transaction", "consumer-beyond-the-transaction"],
)
def test_a_zombie_that_wakes_in_mid_transaction_finds_its_partitions_gone_and_comes_back_as_a_member(
    lab: Lab, group_protocol: str, step: Step, sleeps_ms: int, tell: Callable[[str], None]
) -> None:
    other = lab.serve(group_protocol=group_protocol).start()
    other.wait_serving()
    zombie = lab.serve_until(step, count=3, number="STOP", group_protocol=group_protocol).start()
    wait_shared(lab, [other, zombie])
    workload, reader, watch = lab.watched(delays_ms=(200, 8_000))
    with Flow(workload, PER_S):
        watch.wait_served()
        its_own = places_of(zombie)
        with watch.harm():
            zombie.signal(signal.SIGUSR1)
            wait_until(lambda: is_stopped(zombie.pid), "it is stopped")
            stopped_ms = now_ms()
            watch.wait_served()
            again_ms = first_fired_ms(reader.arrived, its_own, stopped_ms)
            slept = f"it has slept for {sleeps_ms} ms"
            wait_until(lambda: now_ms() >= stopped_ms + sleeps_ms, slept, 2 * TRANSACTION_TIMEOUT_MS / 1_000)
            served = len(zombie.events("serving"))
            zombie.signal(signal.SIGCONT)
            wait_until(lambda: len(zombie.events("serving")) > served, "it serves again", 30.0)
            wait_shared(lab, [other, zombie])
    took_s = (max(again_ms.values()) - stopped_ms) / 1_000
    tell(f"{group_protocol}: stopped in mid-transaction; all of its own is fired again after {took_s:.1f} s")
    assert zombie.events("lost"), zombie.tail()
    report = verdict(workload, reader, [other, zombie])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
    assert took_s <= TAKE_OVER_S


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("group_protocol", "step"),
    [("classic", "offsets"), ("classic", "committing"), ("consumer", "produced"), ("consumer", "offsets")],
)
def test_a_process_frozen_until_the_brokers_end_its_transaction_fires_it_again(
    lab: Lab, group_protocol: str, step: Step, tell: Callable[[str], None]
) -> None:
    sleeper = lab.serve_until(step, count=3, number="STOP", group_protocol=group_protocol).start()
    sleeper.wait_serving()
    cluster = Cluster(lab.bootstrap)
    offsets = Offsets(AdminClient(cluster.admin()), lab.group, cluster)
    asker = Consumer(cluster.client(group_id=lab.group, isolation_level="read_committed"))
    places = [(target.topic, partition) for target in lab.targets for partition in range(target.partitions)]
    places += [(f"{lab.intake}.journal", partition) for partition in range(PARTITIONS)]

    def is_open() -> bool:
        try:
            asker.committed([TopicPartition(lab.intake, partition) for partition in range(PARTITIONS)], 2.0)
        except KafkaException as exception:
            if error_of(exception).code() != KafkaError._TIMED_OUT:
                raise
            return True
        stable = patiently(partial(offsets.ends, places, committed=True), SystemClock(), 20.0)
        return stable != patiently(partial(offsets.ends, places, committed=False), SystemClock(), 20.0)

    workload, reader, watch = lab.watched(delays_ms=(200, 8_000))
    try:
        with Flow(workload, PER_S):
            watch.wait_served()
            with watch.harm():
                sleeper.signal(signal.SIGUSR1)
                wait_until(lambda: is_stopped(sleeper.pid), "it is stopped")
                stopped_ms = now_ms()
                # Within a commit it may be stopped on either side of it.
                assert step == "committing" or is_open(), "nobody else is there to end what it left open"
                wait_until(
                    lambda: now_ms() > stopped_ms + TRANSACTION_TIMEOUT_MS and not is_open(),
                    "the brokers have ended its transaction",
                    TRANSACTION_TIMEOUT_MS / 1_000 + BROKERS_LOOK_S,
                )
                slept_s = (now_ms() - stopped_ms) / 1_000
                served = len(sleeper.events("serving"))
                sleeper.signal(signal.SIGCONT)
                wait_until(lambda: len(sleeper.events("serving")) > served, "it serves again", 30.0)
        said = [event["event"] for at_ms, event in sleeper.history() if at_ms > stopped_ms]
    finally:
        asker.close()
        offsets.close()
    tell(f"{group_protocol}, {step}: the brokers ended its transaction after {slept_s:.1f} s; it said {said}")
    assert step == "committing" or "begin_anew" in said, said
    report = verdict(workload, reader, [sleeper])
    report.assert_kept(LEAST_JUDGED_OF_FAULTS)
