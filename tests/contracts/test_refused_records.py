"""One refused record aborts its whole transaction; its delivery report names it, and its error says what it means.

What it leaves behind is a gap: the record took a number in its partition's sequence, and the brokers never saw that
number. They refuse what the same producer sends to that partition next, and only to that partition.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.errors import AbortableError
from tarry.kafka.errors import translate
from tests.contracts.steps import CALL_S, Reading, Reports, commit, refused
from tests.support.contract import Kafka

LIMIT = 1_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Poison:
    """A record that is refused.

    Attributes:
        code: of its delivery report.
        aborts_with: code of the error with which the commit is refused.
        record: what to produce; its topic is a good one where it names none.
        config: of a topic of its own, if it needs one.
        reaches: whether the brokers get to see it.
    """

    code: int
    aborts_with: int
    record: dict[str, Any]
    config: dict[str, object] = field(default_factory=dict)
    reaches: bool = True

    @property
    def names_no_topic(self) -> bool:
        """Whether its topic does not exist: a client that has learned this already refuses it when it is given."""
        return "topic" in self.record


TOO_LARGE = Poison(
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.MSG_SIZE_TOO_LARGE,
    {"value": b"x" * 2 * LIMIT},
    {"max_message_bytes": LIMIT},
)
NO_KEY = Poison(
    KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD, {"value": b"no key"}, {"cleanup_policy": "compact"}
)
IN_THE_FUTURE = Poison(
    KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_TIMESTAMP, {"value": b"future", "later_ms": 2 * HOUR_MS}
)
BAD_PARTITION = Poison(
    KafkaError._UNKNOWN_PARTITION, KafkaError._INCONSISTENT, {"value": b"no such", "partition": 7}, reaches=False
)
BAD_NAME = Poison(
    KafkaError.TOPIC_EXCEPTION, KafkaError._INCONSISTENT, {"value": b"bad name", "topic": "a b"}, reaches=False
)
NO_TOPIC = Poison(
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._INCONSISTENT,
    {"value": b"no topic", "topic": "no-such-topic"},
    reaches=False,
)
POISONS = {
    "too large": TOO_LARGE,
    "no key": NO_KEY,
    "in the future": IN_THE_FUTURE,
    "bad partition": BAD_PARTITION,
    "bad name": BAD_NAME,
    "no topic": NO_TOPIC,
}
REFUSED_BY_A_PARTITION = {name: poison for name, poison in POISONS.items() if poison.reaches}

every_poison = pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
every_gap = pytest.mark.parametrize("poison", REFUSED_BY_A_PARTITION.values(), ids=REFUSED_BY_A_PARTITION)


class Case:
    """A producer, a good topic, and the poison's own."""

    def __init__(self, kafka: Kafka, poison: Poison, **properties: object) -> None:
        if poison is IN_THE_FUTURE:
            kafka.needs("4.0", "a bound of its own for timestamps in the future")
        self.name = kafka.name("id")
        self.producer: Producer = kafka.producer(self.name, **properties)
        self.good = kafka.make_topic(2)
        # Not the good one: once the client library knows a topic, it refuses a partition that is not there at once.
        self.topic = kafka.make_topic(2, **poison.config)
        self._kafka = kafka
        self._record = {"topic": self.topic, "partition": 0, **poison.record}
        later_ms = self._record.pop("later_ms", None)
        if later_ms is not None:
            self._record["timestamp"] = kafka.clock.now_ms() + later_ms

    def poisoned(self, *good: bytes) -> tuple[KafkaError, Reports]:
        """A transaction with the poison, and good records to partition 1; the refusal of one of them."""
        reports = Reports()
        self.producer.begin_transaction()
        for value in good:
            self.producer.produce(self.good, value, b"key", 1, on_delivery=reports)
        try:
            self.producer.produce(**self._record, on_delivery=reports)
        except KafkaException as exception:
            return exception.args[0], reports
        error = refused(self.producer.commit_transaction, CALL_S)
        return error, reports

    def together(self, *values: bytes | None) -> list[int]:
        """The codes in the reports of records to one partition; None stands for the poison."""
        reports = Reports()
        self.producer.begin_transaction()
        for value in values:
            if value is None:
                self.producer.produce(**self._record, on_delivery=reports)
            else:
                self.producer.produce(self.topic, value, b"key", 0, on_delivery=reports)
        assert refused(self.producer.commit_transaction, CALL_S).txn_requires_abort()
        return [code for _, code in reports]


@every_poison
def test_a_refused_record_aborts_the_transaction_and_is_named_by_its_report(kafka: Kafka, poison: Poison) -> None:
    case = Case(kafka, poison)
    error, reports = case.poisoned(b"good")
    if poison.names_no_topic and error.code() == KafkaError._UNKNOWN_TOPIC:
        # The answer about the topic came while the client library was taking the record: the transaction is unchanged.
        case.producer.commit_transaction(CALL_S)
        written = [b"good", b"next"]
    else:
        assert isinstance(translate(error, "commit"), AbortableError)
        assert error.code() == poison.aborts_with
        assert [value for value, code in reports if code == poison.code] == [poison.record["value"]]
        case.producer.abort_transaction(CALL_S)
        written = [b"next"]
    commit(case.producer, case.good, b"next", partition=1)
    reading = Reading(kafka, {(case.good, 1): 0})
    assert reading.until_end(case.good, kafka.settled_end(case.good, 1), 1) == written


@every_gap
def test_a_renewed_producer_writes_where_a_record_was_refused(kafka: Kafka, poison: Poison) -> None:
    case = Case(kafka, poison)
    case.poisoned(b"good")
    case.producer.abort_transaction(CALL_S)
    renewed = kafka.producer(case.name)
    commit(renewed, case.topic, b"next")
    commit(renewed, case.good, b"next", partition=1)
    reading = Reading(kafka, {(case.topic, 0): 0, (case.good, 1): 0})
    reading.until_end(case.topic, kafka.settled_end(case.topic))
    assert reading.until_end(case.good, kafka.settled_end(case.good, 1), 1) == [b"next", b"next"]


def test_a_producer_may_be_renewed_without_aborting_first(kafka: Kafka) -> None:
    case = Case(kafka, TOO_LARGE)
    case.poisoned(b"good")
    commit(kafka.producer(case.name), case.good, b"next", partition=1)
    reading = Reading(kafka, {(case.good, 1): 0})
    assert reading.until_end(case.good, kafka.settled_end(case.good, 1), 1) == [b"next"]


@every_gap
def test_the_next_transaction_into_the_partition_is_aborted_and_the_one_after_it_goes(
    kafka: Kafka, poison: Poison
) -> None:
    case = Case(kafka, poison)
    case.poisoned()
    case.producer.abort_transaction(CALL_S)
    error = refused(commit, case.producer, case.topic, b"behind the gap")
    assert error.code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(translate(error, "commit"), AbortableError)
    case.producer.abort_transaction(CALL_S)
    commit(case.producer, case.topic, b"a")
    reading = Reading(kafka, {(case.topic, 0): 0})
    assert reading.until_end(case.topic, kafka.settled_end(case.topic)) == [b"a"]


@every_gap
def test_other_partitions_have_no_gap(kafka: Kafka, poison: Poison) -> None:
    case = Case(kafka, poison)
    case.poisoned(b"good")
    case.producer.abort_transaction(CALL_S)
    for value in (b"a", b"b"):
        commit(case.producer, case.good, value, partition=1)
    reading = Reading(kafka, {(case.good, 1): 0})
    assert reading.until_end(case.good, kafka.settled_end(case.good, 1), 1) == [b"a", b"b"]


def test_nothing_can_be_added_to_a_transaction_whose_record_was_refused(kafka: Kafka) -> None:
    case = Case(kafka, TOO_LARGE)
    case.producer.begin_transaction()
    case.producer.produce(case.topic, b"x" * 2 * LIMIT, partition=0)
    case.producer.flush(CALL_S)
    error = refused(case.producer.produce, case.good, b"more")
    assert error.code() == KafkaError._STATE
    assert refused(case.producer.commit_transaction, CALL_S).txn_requires_abort()


one_of_a_batch = pytest.mark.parametrize("poison", [NO_KEY, IN_THE_FUTURE], ids=["no key", "in the future"])


@one_of_a_batch
def test_one_bad_record_has_all_of_its_batch_refused_and_none_of_it_named(kafka: Kafka, poison: Poison) -> None:
    assert Case(kafka, poison, linger_ms=200).together(b"a", None, b"b") == [poison.code] * 3


@one_of_a_batch
def test_several_bad_records_of_a_batch_are_named(kafka: Kafka, poison: Poison) -> None:
    invalid, of_another = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert Case(kafka, poison, linger_ms=200).together(None, b"a", None) == [invalid, of_another, invalid]


def test_records_that_went_out_together_are_refused_together(kafka: Kafka) -> None:
    assert Case(kafka, TOO_LARGE, linger_ms=200).together(b"a", None, b"b") == [KafkaError.MSG_SIZE_TOO_LARGE] * 3


@pytest.mark.parametrize("poison", [TOO_LARGE, NO_KEY], ids=["too large", "no key"])
def test_a_record_above_the_size_of_a_batch_goes_alone_and_is_refused_alone(kafka: Kafka, poison: Poison) -> None:
    case = Case(kafka, poison, batch_size=1, message_timeout_ms=1_000)
    codes = case.together(b"a", None, b"b")
    assert codes[0] == poison.code
    # What was behind it met the gap: it was dropped, or in flight until it timed out.
    assert set(codes[1:]) <= {KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE}
    assert len(codes) > 1


def test_a_refused_record_can_be_aborted_before_others_time_out_behind_it(kafka: Kafka) -> None:
    case = Case(kafka, NO_KEY, batch_size=1)
    reports = Reports()
    case.producer.begin_transaction()
    case.producer.produce(case.topic, b"no key", None, 0, on_delivery=reports)
    case.producer.produce(case.topic, b"b", b"key", 0, on_delivery=reports)
    kafka.until(lambda: case.producer.flush(0.05) == 0 or reports, "a report")
    assert reports[0] == (b"no key", KafkaError.INVALID_RECORD)
    case.producer.abort_transaction(CALL_S)
    renewed = kafka.producer(case.name)
    commit(renewed, case.topic, b"a")
    reading = Reading(kafka, {(case.topic, 0): 0})
    assert reading.until_end(case.topic, kafka.settled_end(case.topic)) == [b"a"]


def test_a_record_that_the_client_itself_refuses_does_not_harm_the_transaction(kafka: Kafka, topic: str) -> None:
    producer = kafka.producer(message_max_bytes=LIMIT)
    producer.begin_transaction()
    assert refused(producer.produce, topic, b"x" * 2 * LIMIT).code() == KafkaError.MSG_SIZE_TOO_LARGE
    producer.produce(topic, b"a", partition=0)
    producer.commit_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_end(topic, 2) == [b"a"]


def test_deliveries_are_reported_only_where_they_failed(kafka: Kafka, topic: str) -> None:
    reports = Reports()
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0, on_delivery=reports)
    producer.commit_transaction(CALL_S)
    assert reports == []


def test_a_limit_is_on_the_batch_as_it_is_compressed(kafka: Kafka) -> None:
    topic = kafka.make_topic(1, max_message_bytes=LIMIT)
    commit(kafka.producer(compression_type="zstd"), topic, b"x" * 20 * LIMIT)
    plain = kafka.producer()
    error = refused(commit, plain, topic, b"x" * 20 * LIMIT)
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    plain.abort_transaction(CALL_S)
    assert Reading(kafka, {(topic, 0): 0}).until_values(1) == [b"x" * 20 * LIMIT]
