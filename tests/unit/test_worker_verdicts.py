"""Which records are to blame when brokers refuse records."""

from confluent_kafka import KafkaError

from tarry.core.message import HeldMessage
from tarry.headers import ErrorCode
from tarry.service.worker.verdicts import Reports, verdicts_of

PLACE = ("in", 0)


def reports_of(*codes: int) -> Reports:
    """Delivery reports of one partition, of messages at offsets 0, 1 and so on."""
    return {
        3: [
            (PLACE, HeldMessage(0, offset, b"k", b"v", [], False, "orders", -1, b""), KafkaError(code))
            for offset, code in enumerate(codes)
        ]
    }


def condemned(reports: Reports, *, alone: bool = False) -> dict[int, str]:
    return {offset: code for (_, offset), (code, _) in verdicts_of(reports, alone=alone).items()}


def test_a_batch_that_was_refused_as_a_whole_condemns_no_message() -> None:
    assert condemned(reports_of(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE)) == {}
    assert condemned(reports_of(KafkaError.INVALID_RECORD, KafkaError.INVALID_RECORD)) == {}


def test_a_record_alone_in_its_batch_is_to_blame() -> None:
    assert condemned(reports_of(KafkaError.MSG_SIZE_TOO_LARGE)) == {0: ErrorCode.TOO_LARGE}
    both = reports_of(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD)
    assert condemned(both, alone=True) == {0: ErrorCode.TOO_LARGE, 1: ErrorCode.REJECTED_BY_BROKER}


def test_where_the_broker_names_records_these_are_to_blame_and_no_other_batch_is() -> None:
    named_and_a_batch_refused_as_one = reports_of(
        KafkaError.INVALID_RECORD,
        KafkaError._INVALID_DIFFERENT_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.MSG_SIZE_TOO_LARGE,
    )
    assert condemned(named_and_a_batch_refused_as_one) == {0: ErrorCode.REJECTED_BY_BROKER}
