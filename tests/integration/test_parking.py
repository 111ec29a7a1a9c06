"""A target that is away delays its own messages only; when it is back all of them arrive, in order."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers import wait_until
from tests.support.checker import digest
from tests.support.processes import Serve, ServeConfig
from tests.support.reader import reading
from tests.support.rights import allow, deny

_AT_FIRST = 20


@pytest.mark.parametrize("away_s", [3, pytest.param(120, marks=pytest.mark.exhaustive)])
def test_a_target_that_is_away_delays_its_own_messages_only(
    bootstrap_of_authorizer: str, unique_name: Callable[[str], str], tmp_path: Path, away_s: int
) -> None:
    bootstrap, away, there, intake = bootstrap_of_authorizer, *map(unique_name, ("away", "there", "intake"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(away, 2, 1), NewTopic(there, 2, 1)]).values():
        future.result(timeout=30)
    deny(admin, away, AclOperation.WRITE)
    serve = Serve(ServeConfig(bootstrap, intake, partitions=2, group=unique_name("group")), tmp_path, "serve")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    sent = {away: 0, there: 0}

    def send(target: str, delay_ms: int) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("tarry-target", target), ("tarry-delay-ms", str(delay_ms))]
        producer.produce(intake, b"%d" % sent[target], b"key", headers=headers)
        assert producer.flush(30) == 0
        sent[target] += 1

    def arrived(target: str) -> list[bytes | None]:
        return [one.value for one in reader.arrived if one.target == target]

    def all_of(target: str) -> list[bytes | None]:
        return [digest(b"%d" % number) for number in range(sent[target])]

    try:
        serve.start()
        serve.wait_serving()
        with reading(bootstrap, (away, there), tmp_path) as reader:
            for round_ in range(_AT_FIRST):
                for target in sent:
                    send(target, 200 + 100 * round_)
            reader.wait_until(lambda _: arrived(there) == all_of(there), "what goes elsewhere", 30)
            wait_until(lambda: bool(serve.events("target_away")), "a target that is away")
            # Once it is known to be away nothing else waits for it.
            for _ in range(away_s):
                send(away, 500)
                sent_ms = time.time_ns() // 1_000_000
                send(there, 500)
                reader.wait_until(lambda _: arrived(there) == all_of(there), "one more", 10)
                assert reader.arrived[-1].seen_ms - sent_ms < 2_500
                time.sleep(max(0, sent_ms / 1_000 + 1 - time.time()))  # so long it is to be away
            assert arrived(away) == []
            wait_until(lambda: serve.metric("tarry_parked_messages", target=away) == sent[away], "they are counted")
            allow(admin, away, AclOperation.WRITE)
            reader.wait_until(lambda _: len(arrived(away)) == sent[away], "what was parked", 40)
            reader.finish()
            assert arrived(away) == all_of(away)
            assert arrived(there) == all_of(there)
        wait_until(lambda: bool(serve.events("target_back")), "the target back")
        wait_until(lambda: "tarry_parked_messages{" not in serve.get("/metrics")[1], "none is counted any more")
        assert serve.stop() == 0
    finally:
        serve.close()
