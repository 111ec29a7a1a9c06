"""A header's name may be any bytes: what the client library makes of that, and what can be had all the same."""

import pytest

from tarry.client.dedup import DeliveredMessage
from tarry.client.exclusive_record import last_record
from tarry.client.retry.redrive import Redrive
from tarry.kafka.record_headers import LOST_NAME, headers_of, read_headers
from tests.contracts.steps import Reading
from tests.support.contract import WITHIN_S, Kafka

WARM = 100
HEADERS = [(b"a", b"1"), (b"caf\xe9", b"2"), (b"null", None), (b"\xff", None), (b"\xc0x", b""), (b"tarry-id", b"z")]


def test_a_name_that_is_not_utf_8_is_refused_by_the_library_and_all_values_can_be_had(kafka: Kafka, topic: str) -> None:
    kafka.put_raw(topic, HEADERS, b"k", b"v", WARM)
    reading = Reading(kafka, {(topic, 0): 0})
    assert reading.until_end(topic, WARM) == [b"v"] * WARM
    *refused, saved = reading.records
    for record in refused:
        with pytest.raises(SystemError):
            read_headers(record)
    assert headers_of(saved) == [
        ("a", b"1"),
        ("caf\\xe9", b"2"),
        ("null", None),
        (LOST_NAME, None),
        (LOST_NAME, b""),
        ("tarry-id", b"z"),
    ]
    assert (saved.key(), saved.value()) == (b"k", b"v")


def test_headers_with_good_names_are_as_they_came(kafka: Kafka, topic: str) -> None:
    kafka.put_raw(topic, [("é".encode(), b"1"), (b"a", None), (b"a", b"")], b"k", b"v")
    kafka.put_raw(topic, [], b"k", b"v")
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 2)
    assert [headers_of(record) for record in reading.records] == [[("é", b"1"), ("a", None), ("a", b"")], []]


def test_a_name_ends_at_its_first_nul_whoever_writes_it_and_reads_it(kafka: Kafka, topic: str) -> None:
    kafka.put_raw(topic, [(b"tarry-cancel\0zz", b"1"), (b"\0", b"2"), (b"a\0\xff", b"3"), (b"a\0", None)], b"k", b"raw")
    producer = kafka.producer()
    producer.begin_transaction()
    producer.produce(topic, b"ours", headers=[("tarry-purge\0zz", b"1"), ("\0", b"2"), ("a", b"\0")])
    producer.commit_transaction(WITHIN_S)
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, kafka.settled_end(topic))
    assert [headers_of(record) for record in reading.records] == [
        [("tarry-cancel", b"1"), ("", b"2"), ("a", b"3"), ("a", None)],
        [("tarry-purge", b"1"), ("", b"2"), ("a", b"\0")],
    ]


def test_readers_of_messages_survive_a_header_name_that_is_not_utf_8(kafka: Kafka, topic: str) -> None:
    id_ = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
    own = [(b"\xff", b"1"), (b"tarry-id", id_), (b"tarry-due-ms", b"9" * 5_000), (b"tarry-position", b"here")]
    # The interpreter treats a call in another way once it has run some times: what is asked first is not all.
    kafka.put_raw(topic, own, b"k", b"v", 2 * WARM)
    reading = Reading(kafka, {(topic, 0): 0})
    reading.until_end(topic, 2 * WARM)
    for record in reading.records[:WARM]:
        message = DeliveredMessage.of(record)
        assert (message.id, message.due_ms, message.headers[0]) == (id_.decode(), None, ("\\xff", b"1"))
    for record in reading.records[WARM:]:
        assert last_record(record).position == b"here"


def test_a_dead_letter_that_could_not_be_written_as_it_is_stays_where_it_is_and_the_others_are_sent(
    kafka: Kafka, topic: str
) -> None:
    target = kafka.make_topic()
    kafka.put_raw(topic, [(b"\xff", b"1")], b"k", b"bad")
    kafka.put_raw(topic, [(b"a", b"1"), (b"tarry-redriven-offset", b"none")], b"k", b"note of a stranger")
    kafka.put_raw(topic, [(b"a", b"1"), (b"tarry-error", b"unknown-target")], b"k", b"good")
    warnings: list[str] = []
    redrive = Redrive(kafka.cluster, topic, warnings.append, lambda _sent, _more: None)
    assert redrive.run(target, []) == 1
    reading = Reading(kafka, {(target, 0): 0})
    assert reading.until_end(target, kafka.settled_end(target)) == [b"good"]
    left_out = f"{topic}/0 at offset 0 is left out: the name of a header is not UTF-8, and cannot be written again"
    assert left_out in warnings
