"""Several intakes of one group: each worker serves some partitions, also if there are more workers than one has."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer
from tests.e2e.conftest import places_of
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.topics import read_topic

MESSAGES = 200


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    ("partitions", "shares", "shares_of_two"),
    [(2, [1, 1, 2], [2, 2]), pytest.param(12, [8, 8, 8], [12, 12], marks=pytest.mark.exhaustive)],
)
def test_each_worker_serves_as_many_partitions_of_all_intakes_before_and_after_a_kill(
    bootstrap: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    group_protocol: str,
    partitions: int,
    shares: list[int],
    shares_of_two: list[int],
) -> None:
    intakes, target, group = [unique_name("orders"), unique_name("payments")], unique_name("out"), unique_name("group")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    config = ServeConfig(
        bootstrap, intakes[0], partitions, others=intakes[1:], group=group, group_protocol=group_protocol
    )
    services = [Serve(config, tmp_path, name).start() for name in "abc"]
    there = sorted(f"{intake}/{partition}" for intake in intakes for partition in range(partitions))

    def shared() -> list[int]:
        served = [places_of(serve) if serve.events("serving") else [] for serve in services]
        return sorted(map(len, served)) if sorted(place for one in served for place in one) == there else []

    def show() -> None:
        for serve in services:
            print(serve.name, sorted(places_of(serve)))  # noqa: T201 - for whoever asks pytest who serves what

    def send(delay: timedelta) -> None:
        for intake in intakes:
            with DelayedProducer(bootstrap, intake) as producer:
                for number in range(MESSAGES // 2):
                    producer.send(target, b"v", b"k%d" % number, delay=delay)

    try:
        wait_until(lambda: shared() == shares, "each of three workers serves as many", 60.0)
        show()
        send(timedelta(seconds=4))
        services.pop(1).kill()
        wait_until(lambda: shared() == shares_of_two, "two workers serve as many", 60.0)
        show()
        send(timedelta(milliseconds=100))
        wait_until(lambda: len(read_topic(bootstrap, target)) >= 2 * MESSAGES, "all are delivered", 30.0)
        assert len(read_topic(bootstrap, target)) == 2 * MESSAGES
    finally:
        for serve in services:
            serve.close()
