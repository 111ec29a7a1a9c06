"""A transaction that somebody leaves open in logs of a partition, on a real broker: it is reported until it ends.

What waits behind it in which log is tested in `unit/testing/test_fake_open_transactions.py`.
"""

from typing import Final

from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.kafka.partition_logs import read_logs_of
from tarry.service.metrics.families import OPEN_TRANSACTION
from tarry.service.worker.plan import IntakePlan
from tests.support.stage import Running, Stage

AFTER_MS: Final = 1_500
ONE_LEVEL: Final = Geometry(20_000, 10, 1)


def seconds(running: Running) -> dict[str, float]:
    """The series of the metric, by topic."""
    gauges = running.worker._context.tally.snapshot().gauges
    return {series[-1]: value for series, value in gauges.items() if series[0] == OPEN_TRANSACTION.name}


def test_a_transaction_that_is_left_open_is_said_and_shown_until_it_ends(stage: Stage) -> None:
    stage.make_intake(geometry=ONE_LEVEL)
    policy = IntakePolicy(stage.intake, max_delay_ms=3_600_000)
    intakes = {stage.intake: IntakePlan(RequestReader(policy), False, ONE_LEVEL, 3_600_000)}
    running = stage.worker(intakes=intakes, open_after_ms=AFTER_MS)
    running.until_serving()
    arrived, events = stage.committed(stage.target), running.events
    begins = {topic: stage.end(topic) for topic, _ in read_logs_of((stage.intake, 0), ONE_LEVEL)}
    assert len(begins) == 4
    with stage.transaction(stage.intake, [b"open"]) as stranger:
        for topic in begins.keys() - {stage.intake}:
            stranger.produce(topic, 0, None, b"open", None, lambda _error, _record: None)
        stage.send(b"hidden")
        running.until(lambda: len(events.of("transaction_stays_open")) == 4, "it is said of each log")
        said = {(one["topic"], one["partition"]): one["offset"] for one in events.of("transaction_stays_open")}
        assert said == {(topic, 0): offset for topic, offset in begins.items()}
        running.until(lambda: seconds(running).keys() == begins.keys(), "it is shown of each log")
        assert min(seconds(running).values()) * 1000 >= AFTER_MS
        assert events.of("transaction_ended") == []
        assert arrived.values() == []
        stranger.abort()
    running.until(lambda: len(events.of("transaction_ended")) == 4, "its end is said of each log")
    running.until(lambda: not seconds(running), "it is not shown any more")
    running.until(lambda: arrived.values() == [b"hidden"], "what was hidden is delivered")
