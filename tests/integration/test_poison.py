"""Whatever bad input there is among good messages, it ends in the dead letters, and the good ones are on time."""

import random
import time
from collections import Counter, defaultdict
from itertools import cycle
from typing import Any

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.reader import RequestReader
from tarry.core.wire import batch_bytes
from tarry.headers import ErrorCode
from tarry.kafka.settings import BATCH_BYTES, Cluster
from tarry.service.worker.plan import IntakePlan
from tarry.service.worker.targets import MISSING_MS
from tests.support import poison
from tests.support.stage import Inbox, Running, Stage

pytestmark = pytest.mark.stage(partitions=2, intake=True)

HALF = 1_000
HOLDS_MS = 6_000
"""From the first message sent to when all are due: enough to send and to read them."""

DEADLINE_S = 120.0
"""Ten times as long as it takes: each refusal costs a transaction, and a take-over in the middle all of them again."""


@pytest.fixture
def stage(stage: Stage) -> Stage:
    poison.make_targets(stage)
    return stage


def serve(stage: Stage, **plan: Any) -> Running:
    reader = RequestReader(poison.policy(stage.intake))
    intakes = {stage.intake: IntakePlan(reader, False, Geometry(20_000, 10, 0), 3_600_000)}
    worker = stage.worker(intakes=intakes, **plan)
    worker.until_serving()
    return worker


def mixed(stage: Stage, kinds: list[poison.Kind], due_ms: int) -> tuple[list[poison.Message], Counter[ErrorCode]]:
    """Good and bad messages in turn; the good ones go to all targets that exist."""
    targets = cycle(poison.good_targets(stage))
    bad = cycle(kinds)
    messages: list[poison.Message] = []
    codes: Counter[ErrorCode] = Counter()
    for number in range(HALF):
        kind = next(bad)
        codes[kind.code] += 1
        messages += [poison.good(next(targets), number, due_ms), kind.make(number, due_ms)]
    return messages, codes


def in_order(arrived: Inbox) -> bool:
    """Whether each key's messages stand in the order of their numbers, once each."""
    numbers = defaultdict(list)
    for record in arrived.records:
        numbers[record.topic(), record.key()].append(int(record.value() or b"-1"))
    return all(found == sorted(set(found)) for found in numbers.values())


def error_codes(dead: Inbox) -> dict[str, int]:
    headers: list[Any] = [letter.headers() for letter in dead.records]
    return Counter(dict(one)["tarry-error"].decode() for one in headers)


def test_every_kind_of_bad_message_is_one_dead_letter_and_slows_no_good_one(stage: Stage) -> None:
    worker = serve(stage)
    due_ms = time.time_ns() // 1_000_000 + HOLDS_MS
    messages, codes = mixed(stage, poison.every_kind(stage.target), due_ms)
    stage.put(stage.intake, *[(number // 2 % 2, *message) for number, message in enumerate(messages)])
    arrived, dead = stage.committed(*poison.good_targets(stage)), stage.committed(f"{stage.intake}.dead")
    worker.until(lambda: len(arrived.poll()) >= HALF and len(dead.poll()) >= HALF, "all are out", DEADLINE_S)
    assert sorted(int(record.value() or b"") for record in arrived.records) == list(range(HALF))
    assert in_order(arrived)
    found: Counter[str] = Counter()
    sent = {(number // 2 % 2, message[0], message[1]): message[2] for number, message in enumerate(messages)}
    for letter in dead.records:
        headers: Any = letter.headers()
        original = sent.pop((letter.partition() or 0, letter.key(), letter.value()))
        assert headers[:-2] == original
        assert [name for name, _ in headers[-2:]] == ["tarry-error", "tarry-error-detail"]
        found[headers[-2][1].decode()] += 1
    assert found == codes
    without_cause = {
        ErrorCode.REJECTED_BY_BROKER,
        ErrorCode.UNREADABLE_HEADERS,
        ErrorCode.BEYOND_HORIZON,
        ErrorCode.PURGED,
        # These need another intake, partition or limit: `test_names`, `test_schedules_refused`.
        ErrorCode.NAMES_NOT_ACCEPTED,
        ErrorCode.SCHEDULES_NOT_ACCEPTED,
        ErrorCode.WRONG_PARTITION,
        ErrorCode.TOO_MANY_NAMES,
    }
    assert set(codes) == set(ErrorCode) - without_cause
    assert len(worker.events.of("transaction_aborted")) <= 2


def test_a_target_whose_records_only_the_broker_can_judge_slows_no_other(stage: Stage) -> None:
    # Compressed, so that what is too large cannot be told beforehand; and random, so that it stays too large.
    stage.cluster = Cluster(stage.cluster.bootstrap_servers, {"compression.type": "gzip"})
    touchy = f"{stage.target.removesuffix('.out')}.small"
    many, poisonous = 300, 12
    worker = serve(stage)
    elsewhere, there = stage.committed(stage.target), stage.committed(touchy)
    dead = stage.committed(f"{stage.intake}.dead")
    large = random.Random(1).randbytes(2 * poison.SMALL_MAX_BYTES)
    due_ms = time.time_ns() // 1_000_000 + 2_000
    for number in range(many):
        for target in (stage.target, touchy):
            stage.put(stage.intake, (0, *poison.good(target, number, due_ms)))
        if number % (many // poisonous) == 0:
            stage.put(stage.intake, (0, b"key-00", large, poison.request(touchy, due_ms)))
    worker.until(lambda: len(elsewhere.poll()) == many, "what goes elsewhere")
    assert not worker.events.of("transaction_aborted")
    worker.until(lambda: len(there.poll()) == many and len(dead.poll()) == poisonous, "what goes there", DEADLINE_S)
    assert error_codes(dead) == {"too-large": poisonous}
    assert in_order(there)
    assert not worker.events.of("transaction_aborted")


def test_limits_that_were_changed_since_they_were_asked_for_cost_one_transaction(stage: Stage) -> None:
    worker = serve(stage)
    arrived, dead = stage.committed(stage.target), stage.committed(f"{stage.intake}.dead")
    stage.send(b"0")
    worker.until(lambda: arrived.values() == [b"0"], "the first")
    stage.configure(stage.target, max_message_bytes=str(poison.SMALL_MAX_BYTES))
    due_ms = time.time_ns() // 1_000_000 + 1_000
    messages = [poison.good(stage.target, number, due_ms) for number in range(1, HALF)]
    for number in range(1, HALF, 100):
        messages.insert(
            number, (b"bad-%d" % number, b"." * poison.SMALL_MAX_BYTES, poison.request(stage.target, due_ms))
        )
    stage.put(stage.intake, *[(0, *message) for message in messages])
    worker.until(lambda: len(arrived.poll()) == HALF and len(dead.poll()) == 10, "all are out", DEADLINE_S)
    assert error_codes(dead) == {"too-large": 10}
    assert in_order(arrived)
    assert len(worker.events.of("transaction_aborted")) <= 1


def test_a_message_of_the_very_size_that_its_target_takes_is_delivered_and_one_byte_more_is_dead(stage: Stage) -> None:
    worker = serve(stage)
    narrow = f"{stage.target.removesuffix('.out')}.small"
    arrived, dead = stage.committed(narrow), stage.committed(f"{stage.intake}.dead")
    request: poison.Headers = [("tarry-target", narrow.encode()), ("tarry-delay-ms", b"0")]
    first_bytes = poison.SMALL_MAX_BYTES // 2
    stage.put(stage.intake, (0, b"k", b"." * first_bytes, request))
    worker.until(arrived.poll, "the first")
    (first,) = arrived.records
    headers: Any = first.headers()
    spare = poison.SMALL_MAX_BYTES - batch_bytes(first.key(), first.value(), headers)
    for size in (first_bytes + spare, first_bytes + spare + 1):
        stage.put(stage.intake, (0, b"k", b"." * size, request))
    worker.until(lambda: len(arrived.poll()) == 2 and len(dead.poll()) == 1, "both are out")
    assert [len(record.value() or b"") for record in arrived.records] == [first_bytes, first_bytes + spare]
    assert [len(record.value() or b"") for record in dead.records] == [first_bytes + spare + 1]
    assert not worker.events.of("transaction_aborted")


def test_many_dead_letters_at_once_fit_into_a_topic_of_small_messages(stage: Stage) -> None:
    stage.configure(stage.intake, max_message_bytes="20000")
    stage.configure(f"{stage.intake}.dead", max_message_bytes=str(BATCH_BYTES))
    worker = serve(stage)
    dead = stage.committed(f"{stage.intake}.dead")
    for _ in range(200):
        stage.put(stage.intake, (0, b"k", b"." * 15_000, [("trace", b"1")]))
    worker.until(lambda: len(dead.poll()) == 200, "all are dead letters")
    assert not worker.events.of("transaction_aborted")


def test_a_topic_that_is_made_after_a_message_for_it_was_dead_gets_the_next_ones(stage: Stage) -> None:
    worker = serve(stage)
    late = f"{stage.target.removesuffix('.out')}.missing-yet"
    dead = stage.committed(f"{stage.intake}.dead")
    stage.send(b"too soon", target=late)
    worker.until(dead.poll, "it is dead")
    stage.make_topic(late)
    arrived = stage.committed(late)

    def some_arrive() -> bool:
        stage.send(b"in time", target=late)
        return bool(arrived.poll())

    worker.until(some_arrive, "one arrives", MISSING_MS / 1_000 + 2)
    assert error_codes(dead) == {"unknown-target": len(dead.records)}
