"""Results are for others to read: who takes a partition over does not need them, and they may be deleted any time."""

import json

import pytest

from tests.support.brokers import wait_until
from tests.support.stage import Stage

pytestmark = pytest.mark.stage(intake=True)


def results_of(stage: Stage) -> str:
    return f"{stage.intake}.results"


def delete_all_results(stage: Stage) -> None:
    """Delete what is in the topic of results, to its end: records of an open transaction too."""
    results = (results_of(stage), 0)
    end = stage.end(*results)
    assert end > 0, "there is nothing to delete"
    trim = stage.offsets.trim({results: end})
    wait_until(lambda: trim.done, "the results are deleted")
    assert stage.offsets.starts([results]) == {results: end}


def delivered(stage: Stage) -> list[bytes | None]:
    return [record.value() for record in stage.committed(stage.target).read_to_the_end()]


def sources_of_results(stage: Stage) -> list[str]:
    """Which records of the intake there are results of, in the order of the results."""
    records = stage.committed(results_of(stage)).read_to_the_end()
    return [json.loads(record.value() or b"")["source"] for record in records]


def test_a_take_over_goes_by_the_journal_where_all_results_were_deleted(stage: Stage) -> None:
    first = stage.process("first")
    stage.send(b"later", delay_ms=3_600_000)
    stage.send(b"a", b"b")
    first.serve(first.take_over())
    assert first.fire() == 2
    first.die()
    delete_all_results(stage)
    second = stage.process("second")
    second.serve(second.take_over())
    assert second.fire() == 0
    assert second.fire(later_ms=3_700_000) == 1
    assert delivered(stage) == [b"a", b"b", b"later"]
    assert sources_of_results(stage) == [f"{stage.intake}/0/0"]


def test_a_dead_owners_open_transaction_is_aborted_even_if_its_results_were_deleted(stage: Stage) -> None:
    first = stage.process("first")
    stage.send(b"a")
    first.serve(first.take_over())
    assert first.fire() == 1
    stage.send(b"b")
    first.open_a_firing_transaction(b"never committed")
    before = stage.end(results_of(stage))
    first.transactor.produce(results_of(stage), 0, b"id", b"never committed", None, lambda _error, _record: None)
    wait_until(lambda: stage.end(results_of(stage)) > before, "the result is in the log")
    first.die()
    delete_all_results(stage)
    second = stage.process("second")
    second.serve(second.take_over())
    assert second.fire() == 1
    assert delivered(stage) == [b"a", b"b"]
    assert sources_of_results(stage) == [f"{stage.intake}/0/1"]


def test_a_worker_goes_on_where_results_are_deleted_under_it_and_so_does_the_next(stage: Stage) -> None:
    numbers = [b"%03d" % number for number in range(300)]
    first = stage.worker()
    first.until_serving()
    arrived = stage.committed(stage.target)
    stage.send(*numbers[:100])
    stage.send(*numbers[100:200], delay_ms=1_500)
    stage.send(*numbers[200:], delay_ms=5_000)
    first.until(lambda: len(arrived.poll()) == 100, "what is due at once")
    delete_all_results(stage)
    first.until(lambda: len(arrived.poll()) == 200, "what is due next")
    first.close()
    delete_all_results(stage)
    second = stage.worker()
    second.until(lambda: len(arrived.poll()) == 300, "the rest")
    second.close()
    assert delivered(stage) == numbers
    assert sources_of_results(stage) == [f"{stage.intake}/0/{offset}" for offset in range(200, 300)]
