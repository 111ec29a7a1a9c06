"""The figures that owners publish, as one who looks at the service reads them from a broker."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer
from tarry.clock import SystemClock
from tarry.core.request.figures import Figures
from tarry.core.request.pause import Pause
from tarry.kafka.control import Control
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig

MESSAGES = 50


def test_owners_publish_how_they_do(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> None:
    target = unique_name("out")
    cluster, clock = Cluster(bootstrap), SystemClock()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    config = ServeConfig(bootstrap, unique_name("in"), partitions=2, group=unique_name("group"))
    serve = Serve(config, tmp_path)
    with (
        closing(serve),
        closing(Offsets(admin, config.group, cluster)) as offsets,
        closing(Control(cluster, config.group, clock)) as control,
    ):

        def figures() -> list[Figures]:
            found = statuses_of(config.intake, cluster, TopicAdmin(admin), offsets, clock, lambda _text: None)
            return [one.figures for one in found.values() if one.figures is not None]

        serve.start().wait_serving()
        pause = Pause(target, paused=True, reason="r", who="w", at_ms=clock.now_ms())
        with DelayedProducer(bootstrap, config.intake) as producer:
            for number in range(MESSAGES):
                producer.send(target, b"v", str(number), delay=timedelta(milliseconds=100))
            wait_until(lambda: sum(one.process.delivered for one in figures()) == 2 * MESSAGES, "all are counted", 30)
            offset = control.write(config.intake, pause)
            producer.send(target, b"v", "k", delay=timedelta(milliseconds=100))
        wait_until(lambda: any(one.parked for one in figures()), "one is parked", 30)
        [parked] = [parked for one in figures() for parked in one.parked]
        assert (parked.target, parked.messages) == (target, 1)
        for one in figures():
            assert [paused.target for paused in one.paused] == [target]
            assert one.obeyed is not None
            assert one.obeyed > offset
            assert one.process.takeovers == 2
            assert one.process.resident_bytes > 1 << 24
            assert one.process.clock_skew_ms is not None
            assert clock.now_ms() - one.at_ms < 60_000
        assert serve.stop() == 0
