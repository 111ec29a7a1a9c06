"""Schedules on a real broker: replaced and cancelled while their occurrences are delivered, through kill -9."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.core.murmur2 import partition_of
from tarry.headers import Outcome
from tarry.testing.simulation.duplicates import SeenResult
from tarry.testing.simulation.repeating import Occurred, Repeating, SentRepeating
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.topics import read_topic

KEYS: Final = 40
FOR_S: Final = 25
PER_S: Final = 40
KILLS: Final = 2
PARTITIONS: Final = 2
AROUND_MS: Final = (-40, 90)
"""Most schedules are due at the full second: what replaces or cancels them comes around it."""
WITHIN_S: Final = 120.0

Headers = list[tuple[str, str | bytes | None]]


class Storm:
    """Schedules and their cancels, as they were sent, and what became of them."""

    def __init__(self, bootstrap: str, config: ServeConfig, target: str, seed: int) -> None:
        self.choose = random.Random(seed)
        self.repeating = Repeating()
        self._bootstrap = bootstrap
        self._intake = config.intake
        self._target = target
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 0}
        self._producer = Producer(settings)

    def send(self, key: bytes | None = None, *, cancels: bool = False) -> None:
        """Send a schedule of a key, or a cancel of one."""
        now_ms = time.time_ns() // 1_000_000
        key = key or b"key-%d" % self.choose.randrange(KEYS)
        record, headers = self.repeating.headers(self.choose, [self._target], 0.0, now_ms)
        if cancels:
            headers = [("tarry-cancel-name", record.name)]
            record = SentRepeating(("", 0), -1, b"", record.name, now_ms)
        self._produce(replace(record, key=key), headers)

    def cancel(self, key: bytes, name: bytes) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._produce(SentRepeating(("", 0), -1, key, name, now_ms), [("tarry-cancel-name", name)])

    def _produce(self, record: SentRepeating, headers: list[tuple[str, bytes | None]]) -> None:
        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None
            place = self._intake, message.partition() or 0
            self.repeating.records.append(replace(record, place=place, offset=message.offset() or 0))

        written: Headers = [*headers]
        value = record.value if record.id else None
        own = partition_of(record.key, PARTITIONS)
        self._producer.produce(
            self._intake, value, record.key, own, on_delivery=note, timestamp=record.stamp_ms, headers=written
        )
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0
        self.repeating.records.sort(key=lambda record: (record.place, record.offset))

    def look(self) -> None:
        """Read what became of them."""
        results = read_topic(self._bootstrap, f"{self._intake}.results")
        self.repeating.results = [
            SeenResult(json.loads(record.value() or b""), record.offset() or 0) for record in results
        ]
        self.repeating.occurred = [self._occurred(record) for record in read_topic(self._bootstrap, self._target)]

    def _occurred(self, record: Message) -> Occurred:
        headers: Any = dict(record.headers() or [])
        return Occurred(
            headers["tarry-schedule"],
            int(headers["tarry-occurrence"]),
            int(headers["tarry-due-ms"]),
            (self._target, record.partition() or 0),
            record.offset() or 0,
            record.timestamp()[1],
            record.timestamp()[1],
            0,
            record.value(),
        )

    def is_answered(self) -> bool:
        self.look()
        return not self.repeating.unanswered and not self.repeating.live


@pytest.mark.exhaustive
def test_what_replaces_or_cancels_a_schedule_around_its_due_time_meets_it_through_kill_9(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path, seed: int, tell: Callable[[str], None]
) -> None:
    target = unique_name("out")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 2, 1)])[target].result(30)
    config = ServeConfig(
        bootstrap,
        unique_name("in"),
        partitions=PARTITIONS,
        group=unique_name("group"),
        intake_settings={"max_delay": "40s"},
        overflow={"from": "2s", "width": "1s", "size": 3},
    )
    serve, storm = Serve(config, tmp_path), Storm(bootstrap, config, target, seed)
    kills = sorted(storm.choose.uniform(3, FOR_S - 3) for _ in range(KILLS))
    try:
        serve.start().wait_serving()
        began = time.monotonic()
        for second in range(FOR_S):
            due_ms = (time.time_ns() // 10**9 + 1) * 1_000
            for at_ms in sorted(due_ms + storm.choose.uniform(*AROUND_MS) for _ in range(PER_S)):
                while time.time() * 1_000 < at_ms:
                    time.sleep(0.0005)  # the pace of the load
                storm.send(cancels=storm.choose.random() < 0.2)
            if kills and second >= kills[0]:
                kills.pop(0)
                serve.kill()
                serve.start()
        storm.flush()
        took_s = time.monotonic() - began
        for key, name in sorted({(record.key, record.name) for record in storm.repeating.records}):
            storm.cancel(key, name)
        storm.flush()
        wait_until(storm.is_answered, "all schedules have an end", WITHIN_S)
        assert serve.stop() == 0
    finally:
        serve.close()
    storm.look()
    faults = list(storm.repeating.faults(1))
    assert not faults, faults[:5]
    fired = {one.source for one in storm.repeating.results if one.outcome == Outcome.FIRED}
    ends = [one for one in storm.repeating.results if one.outcome in {Outcome.REPLACED, Outcome.CANCELLED}]
    between = sum(one.source in fired for one in ends)
    assert len(storm.repeating.occurred) > KEYS * FOR_S // 4
    assert between > 0, "no record stood between an occurrence and the next record of its schedule"
    tell(
        f"{len(storm.repeating.occurred)} occurrences in {took_s:.0f} s, {KILLS} kill -9; "
        f"{len(ends)} schedules replaced or cancelled, {between} of them between two occurrences"
    )
