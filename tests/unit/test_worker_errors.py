"""Kafka's errors become ours in one order: fatal, then abort, then retry, and what is none of these is fatal."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.clock import SystemClock
from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError
from tarry.kafka.errors import group_errors, producer_errors, translate, translate_group
from tarry.kafka.patience import patiently

FENCED, STATE, TIMED_OUT = KafkaError._FENCED, KafkaError._STATE, KafkaError._TIMED_OUT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(FENCED, "x", True, True, True), FatalError),
        (KafkaError(KafkaError.ILLEGAL_GENERATION, "x", False, True, True), AbortableError),
        (KafkaError(TIMED_OUT, "x", False, True, False), RetriableError),
        (KafkaError(STATE, "x", False, False, False), FatalError),
    ],
)
def test_of_a_transactions_error_the_worst_that_it_says_counts(error: KafkaError, kind: type[BrokerError]) -> None:
    found = translate(error, "commit")
    assert type(found) is kind
    assert found.code == error.name()
    assert str(found) == "could not commit: x"


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    ],
)
def test_while_a_group_moves_on_a_refusal_passes(code: int) -> None:
    assert isinstance(translate_group(KafkaError(code), "commit"), RetriableError)


@pytest.mark.parametrize("code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.OFFSET_METADATA_TOO_LARGE])
def test_what_asking_again_does_not_change_is_fatal(code: int) -> None:
    assert isinstance(translate_group(KafkaError(code), "commit"), FatalError)


def test_a_fatal_error_of_a_group_is_fatal_also_where_its_code_passes() -> None:
    assert isinstance(translate_group(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "x", True), "commit"), FatalError)


def test_what_is_raised_inside_is_raised_as_ours_with_its_cause() -> None:
    cause = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(RetriableError, match="could not ask") as asked, group_errors("ask"):
        raise cause
    assert asked.value.__cause__ is cause
    with pytest.raises(FatalError, match="could not begin") as begun, producer_errors("begin"):
        raise cause
    assert begun.value.code == "NOT_COORDINATOR"


def test_patience_asks_again_until_there_is_an_answer() -> None:
    answers: list[int | BrokerError] = [RetriableError("not yet"), RetriableError("not yet"), 7]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    assert patiently(ask, SystemClock(), 5) == 7


def test_patience_ends_with_the_error_and_has_none_with_what_does_not_pass() -> None:
    def passing() -> int:
        raise RetriableError("still not")

    def final() -> int:
        raise FatalError("no")

    with pytest.raises(RetriableError, match="still not"):
        patiently(passing, SystemClock(), 0)
    with pytest.raises(FatalError):
        patiently(final, SystemClock(), 60)
