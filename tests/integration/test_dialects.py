"""Messages of other schedulers' producers arrive through a real broker as those schedulers deliver them."""

import time
from datetime import UTC, datetime

import pytest

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import Header, RequestReader
from tarry.service.worker.plan import IntakePlan
from tests.support.stage import GEOMETRY, Stage


def _headers(dialect: str, due_s: int, target: str) -> list[Header]:
    epoch, topic = str(due_s).encode(), target.encode()
    of_all: dict[str, list[Header]] = {
        "etf1": [
            ("scheduler-epoch", epoch),
            ("scheduler-target-topic", topic),
            ("scheduler-target-key", b"target-key"),
        ],
        "karafka": [
            ("schedule_schema_version", b"1.0.0"),
            ("schedule_target_epoch", epoch),
            ("schedule_source_type", b"schedule"),
            ("schedule_target_topic", topic),
            ("schedule_target_key", b"target-key"),
        ],
        "timebridge": [
            ("X-Timebridge-When", datetime.fromtimestamp(due_s, UTC).isoformat().encode()),
            ("X-Timebridge-Where", topic),
        ],
        "rabbitmq": [("x-delay", b"2000"), ("tarry-target", topic)],
    }
    return [*of_all[dialect], ("trace", b"1")]


@pytest.mark.parametrize(
    ("dialect", "key"),
    [("etf1", b"target-key"), ("karafka", b"target-key"), ("timebridge", b"own-key"), ("rabbitmq", b"own-key")],
)
def test_a_dialect_is_served(stage: Stage, dialect: str, key: bytes) -> None:
    stage.make_intake()
    policy = IntakePolicy(stage.intake, dialect=dialect)
    worker = stage.worker(intakes={stage.intake: IntakePlan(RequestReader(policy), False, GEOMETRY, 3_600_000)})
    worker.until_serving()
    arrived, dead = stage.committed(stage.target), stage.committed(f"{stage.intake}.dead")
    due_s = int(time.time()) + 2
    ours: list[Header] = [("tarry-target", stage.target.encode()), ("tarry-delay-ms", b"0")]
    stage.put(
        stage.intake,
        (0, b"own-key", b"value", _headers(dialect, due_s, stage.target)),
        (0, b"own-key", b"unserved", ours if dialect != "rabbitmq" else [("x-delay", b"0")]),
    )
    worker.until(lambda: arrived.poll() and dead.poll(), "a delivery and a dead letter")
    worker.close()

    (record,) = arrived.read_to_the_end()
    assert (record.key(), record.value()) == (key, b"value")
    assert record.timestamp()[1] >= due_s * 1_000
    names = [header[0] for header in record.headers() or []]
    signed = ["scheduler-timestamp", "scheduler-key", "scheduler-topic"] if dialect == "etf1" else []
    assert names == ["trace", *signed, "tarry-id", "tarry-due-ms", "tarry-source"]
    (letter,) = dead.read_to_the_end()
    assert (letter.key(), letter.value()) == (b"own-key", b"unserved")
    code = b"no-target" if dialect == "rabbitmq" else b"no-delay"
    assert dict(letter.headers() or [])["tarry-error"] == code
