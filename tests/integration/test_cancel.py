"""Cancels from the client to the service and back: in memory, in every level of the overflow wheel, and too late."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer, OutcomeReader
from tarry.handle import Handle
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.topics import read_topic

DELAYS_S = (1.5, 5, 12, 25)
"""In memory, and in levels 1, 2 and 3, whose buckets take 1, 3 and 9 s."""


@pytest.mark.some_of("at_once")
@pytest.mark.parametrize("at_once", [False, True])
def test_a_cancel_wins_wherever_its_message_waits_and_its_outcome_is_told(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path, *, at_once: bool
) -> None:
    target = unique_name("out")
    config = ServeConfig(
        bootstrap,
        unique_name("in"),
        partitions=2,
        group=unique_name("group"),
        intake_settings={"max_delay": "40s"},
        overflow={"from": "2s", "width": "1s", "size": 3},
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        with DelayedProducer(bootstrap, config.intake) as producer, OutcomeReader(bootstrap, config.intake) as outcomes:
            receipts = [
                producer.send(target, b"cancelled", b"%d" % number, delay=timedelta(seconds=seconds))
                for number, seconds in enumerate(DELAYS_S)
            ]
            if not at_once:
                wait_until(lambda: any(_is_filed(bootstrap, config.intake, level) for level in (2, 3)), "it is filed")
            cancels = [producer.cancel(receipt.handle) for receipt in receipts]
            kept = producer.send(target, b"kept", b"k", delay=timedelta(seconds=2))
            last = [list(outcomes.of_cancel(cancel, 60))[-1] for cancel in cancels]
            assert [one["outcome"] for one in last] == ["cancelled"] * len(DELAYS_S)
            assert [one["source"] for one in last] == [
                f"{config.intake}/{one.handle.partition}/{one.offset}" for one in receipts
            ]
            assert outcomes.await_outcome(kept)["outcome"] == "fired"

            nothing = Handle(config.intake, 0, kept.handle.due_ms, receipts[0].id)
            [late] = list(outcomes.of_cancel(producer.cancel(nothing), 30))
            assert late["outcome"] == "cancel-too-late"
        wait_until(lambda: len(read_topic(bootstrap, target)) == 1, "what was not cancelled is there")
        assert serve.stop() == 0
        assert [record.value() for record in read_topic(bootstrap, target)] == [b"kept"]
    finally:
        serve.close()


def _is_filed(bootstrap: str, intake: str, level: int) -> bool:
    return bool(read_topic(bootstrap, f"{intake}.wheel-{level}"))
