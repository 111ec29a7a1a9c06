"""Workload, reader and checker agree with each other: a deliverer that obeys the contract is found clean.

The deliverer here has all it needs in memory and one transaction for everything; it is no service, only the
contract's words on what a target receives.
"""

import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from tests.e2e.conftest import Lab
from tests.support.brokers import wait_until
from tests.support.checker import all_accepted, check
from tests.support.reader import Reading
from tests.support.topics import read_topic
from tests.support.workload import NAMESPACE, SentHeaders, Target

WHEN = {"tarry-delay-ms", "tarry-deliver-at", "tarry-window-ms", "tarry-expires-at"}
REQUEST = WHEN | {"tarry-target", "tarry-id", "tarry-partition"}
INBOUND = {"tarry-due-ms", "tarry-source"}


def delivery(message: "Message[Any, Any]", due_ms: int) -> dict[str, Any]:
    """The record that the target receives, as arguments of `produce`."""
    headers: Any = message.headers()
    named = dict(headers)
    source = f"{message.topic()}/{message.partition()}/{message.offset()}"
    carried = named.get("tarry-id") or named.get("ce_id")
    if carried is None:
        id_ = uuid.uuid5(NAMESPACE, source)
    else:
        id_ = uuid.UUID(bytes=carried) if len(carried) == 16 else uuid.UUID(carried.decode())
    own: SentHeaders = [("tarry-id", str(id_)), ("tarry-due-ms", str(due_ms)), ("tarry-source", source)]
    arguments = {
        "topic": named["tarry-target"].decode(),
        "value": message.value(),
        "key": message.key(),
        "headers": [pair for pair in headers if pair[0] not in REQUEST | INBOUND] + own,
    }
    if "tarry-partition" in named:
        arguments["partition"] = int(named["tarry-partition"])
    elif message.key() is None:
        partition = message.partition() or 0
        arguments["partition"] = partition % (4 if arguments["topic"].endswith("orders") else 3)
    return arguments


@pytest.mark.parametrize("fault", ["none", "twice", "aborted"])
def test_a_correct_run_is_clean_and_aborted_messages_never_arrive(lab: Lab, fault: str) -> None:
    lab.create(Target(lab.intake, 4))
    workload = lab.workload(delays_ms=(0, 300))
    reader = lab.read()
    workload.send(500, 0.2)
    produced = all_accepted(workload.produced())
    due_ms = {record.source: record.due_ms for record in produced}
    sent = [
        (due_ms[f"{message.topic()}/{message.partition()}/{message.offset()}"], message)
        for message in read_topic(lab.bootstrap, lab.intake)
    ]
    sent.sort(key=lambda pair: (pair[0], pair[1].offset()))
    while time.time_ns() // 1_000_000 <= sent[-1][0]:
        time.sleep(0.01)
    producer = Producer(
        {
            "bootstrap.servers": lab.bootstrap,
            "transactional.id": lab.group,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions()
    for commit in {"none": [True], "twice": [True, True], "aborted": [False, True]}[fault]:
        producer.begin_transaction()
        for due, message in sent:
            producer.produce(**delivery(message, due))
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    report = check(produced, reader.finish())
    assert report.judged == sum(record.key is not None for record in produced)
    assert report.count("twice") == (500 if fault == "twice" else 0)
    if fault != "twice":
        report.assert_clean()


def test_a_reader_that_is_told_to_finish_while_it_starts_reads_to_the_end(lab: Lab) -> None:
    topic = lab.targets[0].topic
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    producer.produce(topic, b"v", partition=1)
    producer.flush()
    assert [one.partition for one in lab.read(topic).finish()] == [1]


def test_a_reader_that_waits_in_vain_tells_what_an_open_transaction_holds_back(lab: Lab) -> None:
    topic = lab.targets[0].topic
    reader = lab.read(topic)
    producer = Producer({"bootstrap.servers": lab.bootstrap, "transactional.id": lab.group})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, partition=2)
    producer.flush()
    with pytest.raises(AssertionError, match=rf"{topic}/2: read to 0, stable to 0, written to 1"):
        reader.wait_for(1, 0.1)
    producer.abort_transaction()


def test_a_reader_waits_for_a_topic_that_is_so_new_that_the_broker_lacks_it(lab: Lab) -> None:
    late = Target(f"{lab.group}.late", 2)
    reader = lab.read(late.topic)
    with pytest.raises(AssertionError, match="no 1 messages"):  # and not: the reader ended
        reader.wait_until(bool, "1 messages", 2.0)
    lab.create(late)
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    producer.produce(late.topic, b"v", partition=1)
    producer.flush()
    assert [one.partition for one in reader.wait_for(1, 20)] == [1]


def test_a_reader_whose_client_library_has_stopped_fetching_goes_on_where_it_was(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    target = lab.targets[1]
    producer = Producer({"bootstrap.servers": lab.bootstrap})
    reading = Reading(lab.bootstrap, [target.topic], stalled_s=0.5)
    read: list[Any] = []

    def reads(expected: list[bytes]) -> bool:
        read.extend(one[1] for one in reading.batch())
        assert len(read) <= len(expected)
        return sorted(read) == expected

    def send(*keys: bytes) -> None:
        for number, key in enumerate(keys):
            producer.produce(target.topic, b"v", key, partition=number % target.partitions)
        assert producer.flush(30) == 0

    send(b"a", b"b")
    wait_until(lambda: reads([b"a", b"b"]), "the first are read")
    reading.consumer.pause(reading.consumer.assignment())  # from here on it fetches nothing, and says nothing of it
    send(b"c", b"d", b"e")
    wait_until(lambda: reads([b"a", b"b", b"c", b"d", b"e"]), "the others are read")
    assert "another consumer goes on" in capsys.readouterr().err
