"""Names on a real broker: a storm of replaces through kill -9 of service and broker, and cancels at the due time."""

import json
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.devbroker import EmbeddedBroker
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.topics import read_topic

NAMES: Final = 100
PER_S: Final = 2_000
FOR_S: Final = 30
KILLS: Final = 3
DELAY_MS: Final = 6_000
"""Beyond the hot window, so that most messages are filed before they are replaced."""

RACES: Final = 10_000
RACES_PER_S: Final = 500
PAYS_MS: Final = (-60, 90)
"""A payment comes at a random time around the due time of its message."""

JOURNAL_RECORDS: Final = 1_500
"""More than a service keeps that rests: what is behind the pointers is trimmed."""

WITHIN_S: Final = 120.0


@pytest.mark.exhaustive
def test_of_each_name_the_last_message_of_a_storm_comes_once_and_all_others_are_replaced(
    embedded_broker: EmbeddedBroker,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    seed: int,
    tell: Callable[[str], None],
) -> None:
    bootstrap = embedded_broker.bootstrap_servers
    target = unique_name("out")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 2, 1)])[target].result(30)
    config = ServeConfig(
        bootstrap,
        unique_name("in"),
        partitions=2,
        group=unique_name("group"),
        intake_settings={"max_delay": "40s"},
        overflow={"from": "2s", "width": "1s", "size": 3},
    )
    choose = random.Random(seed)
    kills = sorted(choose.uniform(2, FOR_S - 2) for _ in range(KILLS))
    kills_broker_at = FOR_S / 2
    serve = Serve(config, tmp_path)
    sent: list[tuple[int, str]] = []
    try:
        serve.start().wait_serving()
        rested = resting(serve)
        settings: dict[str, Any] = {"partitioner": "murmur2_random", "enable.idempotence": True}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        began = time.monotonic()
        while (passed := time.monotonic() - began) < FOR_S:
            while len(sent) < passed * PER_S:
                name, id_ = choose.randrange(NAMES), str(uuid.UUID(int=choose.getrandbits(128), version=4))
                headers: list[tuple[str, str | bytes | None]] = [
                    ("tarry-target", target.encode()),
                    ("tarry-delay-ms", b"%d" % DELAY_MS),
                    ("tarry-id", id_.encode()),
                    ("tarry-name", b"timer"),
                ]
                producer.produce(config.intake, id_.encode(), b"key-%d" % name, headers=headers)
                producer.poll(0)
                sent.append((name, id_))
            if kills and passed > kills[0]:
                kills.pop(0)
                serve.kill()
                serve.start()
            if passed > kills_broker_at:
                kills_broker_at = FOR_S
                embedded_broker.kill()
                embedded_broker.start()
            time.sleep(0.001)  # the pace of the load
        assert producer.flush(60) == 0
        last = dict(sent)
        wait_until(lambda: len(read_topic(bootstrap, target)) >= len(last), "all last ones are there", WITHIN_S)
        logs = [f"{config.intake}.{log}" for log in ("wheel-1", "wheel-2", "wheel-3", "parked")]
        wait_until(lambda: not any(read_topic(bootstrap, log) for log in logs), "no copy is left", WITHIN_S)
        wait_until(lambda: resting(serve) == rested, "nothing is held, and no name", WITHIN_S)
        journal = f"{config.intake}.journal"
        wait_until(lambda: len(read_topic(bootstrap, journal)) < JOURNAL_RECORDS, "the journal is trimmed", WITHIN_S)
        of_journal = len(read_topic(bootstrap, journal))
        assert serve.stop() == 0
    finally:
        serve.close()
    delivered = Counter((record.value() or b"").decode() for record in read_topic(bootstrap, target))
    results = [json.loads(record.value() or b"") for record in read_topic(bootstrap, f"{config.intake}.results")]
    outcomes = Counter((one["id"], one["outcome"]) for one in results)
    lasts = set(last.values())
    assert delivered == Counter(lasts)
    assert outcomes == Counter({(id_, "fired" if id_ in lasts else "replaced"): 1 for _, id_ in sent})
    tell(
        f"{len(sent)} sent, {len(lasts)} delivered, {len(sent) - len(lasts)} replaced, {KILLS} kill -9 of the service, "
        f"one of the broker; then {of_journal} records in the journal, no copy in the logs, nothing held"
    )


def resting(serve: Serve) -> tuple[float, float]:
    """Return what a service holds: names, and bytes of messages."""
    return serve.metric("tarry_names"), serve.metric("tarry_held_bytes")


@pytest.mark.exhaustive
def test_of_a_timeout_and_a_payment_at_the_very_due_time_one_wins_and_the_answer_says_which(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path, seed: int, tell: Callable[[str], None]
) -> None:
    target = unique_name("out")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 2, 1)])[target].result(30)
    config = ServeConfig(bootstrap, unique_name("in"), partitions=2, group=unique_name("group"))
    choose = random.Random(seed)
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 1})
        began_ms = time.time() * 1_000 + 3_000
        due_ms = [round(began_ms + number * 1_000 / RACES_PER_S) for number in range(RACES)]
        for order, at_ms in enumerate(due_ms):
            headers: list[tuple[str, str | bytes | None]] = [
                ("tarry-target", target.encode()),
                ("tarry-deliver-at", b"%d" % at_ms),
                ("tarry-name", b"unpaid"),
            ]
            producer.produce(config.intake, b"%d" % order, b"order-%d" % order, headers=headers)
            producer.poll(0)
        pays = sorted((at_ms + choose.uniform(*PAYS_MS), order) for order, at_ms in enumerate(due_ms))
        for pay_ms, order in pays:
            while time.time() * 1_000 < pay_ms:
                producer.poll(0.001)  # the pace of the load
            producer.produce(config.intake, None, b"order-%d" % order, headers=[("tarry-cancel-name", b"unpaid")])
        assert producer.flush(60) == 0

        def answers() -> Counter[str]:
            results = [
                json.loads(record.value() or b"") for record in read_topic(bootstrap, f"{config.intake}.results")
            ]
            return Counter(one["outcome"] for one in results if one["due_ms"] is None)

        wait_until(lambda: answers().total() == RACES, "all answers are there", WITHIN_S)
        assert serve.stop() == 0
    finally:
        serve.close()
    places = {record.key(): (record.partition(), record.offset()) for record in read_topic(bootstrap, config.intake)}
    results = [json.loads(record.value() or b"") for record in read_topic(bootstrap, f"{config.intake}.results")]
    of_cancel = {one["source"]: one["outcome"] for one in results if one["due_ms"] is None}
    # The last record of a key is its cancel.
    told = {key: of_cancel[f"{config.intake}/{partition}/{offset}"] for key, (partition, offset) in places.items()}
    came = Counter(record.key() for record in read_topic(bootstrap, target))
    assert came == Counter(key for key, outcome in told.items() if outcome == "cancel-too-late")
    counts = Counter(told.values())
    assert set(counts) == {"cancelled", "cancel-too-late"}
    assert min(counts.values()) >= RACES // 10, counts
    tell(f"{RACES} races: {dict(counts)}")
