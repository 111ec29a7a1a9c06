"""Waiting for outcomes on a real broker: of a service's messages, and of results written by hand."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt
from tarry.devbroker import EmbeddedBroker
from tarry.errors import BrokerError, FatalError, HeaderError, UsageError
from tarry.handle import Handle
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.topics import make_topics

PARTITIONS = 3
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
SECOND = timedelta(seconds=1)


# -- a running service ------------------------------------------------------------------------------------------------


@pytest.fixture
def served(bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[tuple[str, str]]:
    """An intake that is served, and a target."""
    target = unique_name("out")
    config = ServeConfig(bootstrap, unique_name("in"), partitions=2, group=unique_name("group"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(target, 1, 1)])[target].result(30)
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        yield config.intake, target
        assert serve.stop() == 0
    finally:
        serve.close()


_ELSEWHERE = """
import json, sys
from tarry.client import OutcomeReader
servers, intake, handle = sys.argv[1:]
with OutcomeReader(servers, intake) as outcomes:
    print(json.dumps(outcomes.await_outcome(handle, 60)))
"""


@pytest.mark.exhaustive
def test_ten_thousand_wait_at_once_and_nothing_is_left_of_them(bootstrap: str, served: tuple[str, str]) -> None:
    intake, target = served
    count = 10_000
    due = datetime.now(UTC) + timedelta(seconds=30)
    messages = [DelayedMessage(target, b"v", b"k%d" % (number % 97), at=due) for number in range(count)]
    with DelayedProducer(bootstrap, intake) as producer, OutcomeReader(bootstrap, intake) as outcomes:
        receipts = list(producer.send_many(messages))
        futures = [outcomes.outcome(receipt, 120) for receipt in receipts]
        assert (outcomes.waiting, outcomes.watched, outcomes.delayed) == (count, count, count)
        assert not wait(futures, 120).not_done
        assert [future.result()["source"] for future in futures] == [
            f"{intake}/{receipt.handle.partition}/{receipt.offset}" for receipt in receipts
        ]
        assert {future.result()["outcome"] for future in futures} == {"fired"}
        wait_until(lambda: (outcomes.waiting, outcomes.watched, outcomes.delayed) == (0, 0, 0), "all have left")


def test_a_result_that_was_there_first_is_found_wherever_it_is_asked_for(
    bootstrap: str, served: tuple[str, str]
) -> None:
    intake, target = served
    sent = datetime.now(UTC)
    with DelayedProducer(bootstrap, intake) as producer, OutcomeReader(bootstrap, intake, remembered=5) as outcomes:
        first = producer.send(target, b"v", delay=timedelta(0))
        assert outcomes.await_outcome(first, 30)["outcome"] == "fired"
        assert outcomes.outcome(first, 30).done(), "it is remembered"
        for later in [producer.send(target, b"v", delay=timedelta(0)) for _ in range(20)]:
            outcomes.await_outcome(later, 30)
        assert outcomes.remembered == 5
        assert outcomes.await_outcome(first, 30)["outcome"] == "fired", "it is forgotten, and read again"

        coming = producer.send(target, b"v", delay=timedelta(seconds=3))
        elsewhere = [
            subprocess.Popen(
                [sys.executable, "-c", _ELSEWHERE, bootstrap, intake, str(one.handle)], stdout=subprocess.PIPE
            )
            for one in (first, coming)
        ]
        for process, one in zip(elsewhere, (first, coming), strict=True):
            output, _ = process.communicate(timeout=90)
            assert process.returncode == 0
            assert json.loads(output)["source"].rpartition("/")[2] == str(one.offset)
    with OutcomeReader(bootstrap, intake) as outcomes:
        assert outcomes.await_outcome(first, 30)["outcome"] == "fired"
        assert outcomes.await_outcome(first.handle, 30, since=sent)["id"] == first.id


def test_coroutines_wait_for_a_message_and_for_its_cancel(bootstrap: str, served: tuple[str, str]) -> None:
    intake, target = served

    async def outcomes_of_all(outcomes: OutcomeReader, producer: DelayedProducer) -> list[str]:
        receipt = producer.send(target, b"v", delay=timedelta(seconds=20))
        message = asyncio.wrap_future(outcomes.outcome(receipt, 60))
        cancel = asyncio.wrap_future(outcomes.outcome(producer.cancel(receipt.handle), 60))
        never = producer.send(target, b"v", delay=timedelta(seconds=50))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(outcomes.outcome(never)), 0.05)
        return [result["outcome"] for result in await asyncio.gather(message, cancel)]

    with DelayedProducer(bootstrap, intake) as producer, OutcomeReader(bootstrap, intake) as outcomes:
        assert asyncio.run(outcomes_of_all(outcomes, producer)) == ["cancelled", "cancelled"]
        assert (outcomes.waiting, outcomes.delayed) == (0, 0)


# -- results written by hand ------------------------------------------------------------------------------------------


def _make_intake(bootstrap: str, topic_name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make_topics(admin, [topic_name, f"{topic_name}.results"], PARTITIONS)
    return topic_name


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake with results, which nobody serves."""
    return _make_intake(bootstrap, topic_name)


def _write(writer: Producer, handle: Handle, outcome: str, source: str = "") -> None:
    result = {"v": 1, "outcome": outcome, "id": handle.id, "source": source, "due_ms": handle.due_ms}
    writer.produce(f"{handle.topic}.results", json.dumps(result), handle.id, handle.partition)


def _source(receipt: Receipt) -> str:
    return f"{receipt.handle.topic}/{receipt.handle.partition}/{receipt.offset}"


def _handle(intake: str, due: datetime) -> Handle:
    return Handle(intake, 1, int(due.timestamp() * 1_000), str(uuid.uuid4()))


def test_a_result_of_a_transaction_that_is_aborted_is_none(bootstrap: str, intake: str) -> None:
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{intake}.writer"})
    writer.init_transactions(30)
    with DelayedProducer(bootstrap, intake) as producer, OutcomeReader(bootstrap, intake) as outcomes:
        receipt = producer.send("orders", b"v", b"k", delay=SECOND)
        future = outcomes.outcome(receipt, 60)
        writer.begin_transaction()
        _write(writer, receipt.handle, "fired", _source(receipt))
        assert writer.flush(20) == 0
        writer.abort_transaction(30)
        writer.begin_transaction()
        _write(writer, receipt.handle, "cancelled", _source(receipt))
        writer.commit_transaction(30)
        assert future.result(60)["outcome"] == "cancelled"
        assert outcomes.remembered == 1
    with OutcomeReader(bootstrap, intake) as outcomes:
        assert outcomes.await_outcome(receipt, 60)["outcome"] == "cancelled"
        assert outcomes.await_outcome(receipt.handle, 60)["outcome"] == "cancelled"


def test_a_handle_is_looked_for_before_its_due_time_too_but_not_before_it_was_sent(bootstrap: str, intake: str) -> None:
    begun = datetime.now(UTC)
    ahead = [_handle(intake, begun + timedelta(hours=1)) for _ in range(20)]
    passed = _handle(intake, begun - timedelta(hours=1))
    writer = Producer({"bootstrap.servers": bootstrap})
    for handle in (*ahead, passed):
        _write(writer, handle, "duplicate")
        _write(writer, handle, "cancelled")
    assert writer.flush(20) == 0
    with OutcomeReader(bootstrap, intake) as outcomes:
        futures = [outcomes.outcome(handle, 60) for handle in (*ahead, passed)]
        assert {future.result()["outcome"] for future in futures} == {"cancelled"}
        assert outcomes.await_outcome(passed, 60, since=begun)["id"] == passed.id
        with pytest.raises(TimeoutError):
            outcomes.await_outcome(passed, 2, since=datetime.now(UTC) + timedelta(hours=1))


def test_when_the_reader_is_closed_waiting_calls_fail(bootstrap: str, intake: str) -> None:
    outcomes = OutcomeReader(bootstrap, intake)
    handle = _handle(intake, datetime.now(UTC))
    futures = [outcomes.outcome(handle), outcomes.outcome(handle, 60)]
    outcomes.close()
    outcomes.close()
    for future in futures:
        with pytest.raises(FatalError, match="is closed"):
            future.result(5)
    with pytest.raises(FatalError, match="is closed"):
        outcomes.await_outcome(handle, 60)


@pytest.mark.parametrize("is_reading", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_when_the_results_are_deleted_waiting_calls_fail(bootstrap: str, intake: str, is_reading: bool) -> None:
    """A consumer that is reading already gets no error from the client library."""
    handle, results = _handle(intake, datetime.now(UTC)), f"{intake}.results"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with OutcomeReader(bootstrap, intake) as outcomes:
        futures = [outcomes.outcome(handle), outcomes.outcome(handle, 300)]
        if is_reading:
            writer, other = Producer({"bootstrap.servers": bootstrap}), _handle(intake, datetime.now(UTC))
            _write(writer, other, "fired")
            assert writer.flush(20) == 0
            assert outcomes.await_outcome(other, 30)["outcome"] == "fired"
        admin.delete_topics([results])[results].result(30)
        for future in futures:
            with pytest.raises(BrokerError, match=rf"{intake}\.results"):
                future.result(90)
        with pytest.raises(BrokerError, match=rf"{intake}\.results"):
            outcomes.await_outcome(handle, 60)


def test_brokers_that_are_away_are_waited_for_and_a_right_that_is_missing_is_not(
    start_embedded_broker: Callable[..., EmbeddedBroker],
) -> None:
    broker = start_embedded_broker(properties=_AUTHORIZER)
    bootstrap = broker.bootstrap_servers
    intake = _make_intake(bootstrap, "in")
    handles = [_handle(intake, datetime.now(UTC)) for _ in range(2)]
    with OutcomeReader(bootstrap, intake) as outcomes:
        before, after = [outcomes.outcome(handle, 120) for handle in handles]
        broker.kill()
        during = outcomes.outcome(handles[0], 0.5)
        with pytest.raises(TimeoutError):
            during.result(30)
        broker.start()
        writer = Producer({"bootstrap.servers": bootstrap})
        _write(writer, handles[0], "fired")
        assert writer.flush(60) == 0
        assert before.result(60)["outcome"] == "fired"

        admin = AdminClient({"bootstrap.servers": bootstrap})
        # All but reading stays allowed: where the topic is hidden as well, its records may just cease to come.
        rules = ((AclPermissionType.ALLOW, AclOperation.ALL), (AclPermissionType.DENY, AclOperation.READ))
        topic = ResourceType.TOPIC, f"{intake}.results", ResourcePatternType.LITERAL
        bindings = [AclBinding(*topic, "User:ANONYMOUS", "*", operation, permission) for permission, operation in rules]
        for future in admin.create_acls(bindings).values():
            future.result(30)
        with pytest.raises(BrokerError) as refusal:
            after.result(60)
        assert refusal.value.code == "TOPIC_AUTHORIZATION_FAILED"


def test_a_message_of_another_intake_is_refused(bootstrap: str, intake: str) -> None:
    with OutcomeReader(bootstrap, intake) as outcomes:
        for other in (Handle("other", 0, 0, str(uuid.uuid4())), Handle(intake, PARTITIONS, 0, str(uuid.uuid4()))):
            with pytest.raises(UsageError, match=f"not of intake {intake}"):
                outcomes.outcome(other)
        with pytest.raises(HeaderError, match="not a handle"):
            outcomes.outcome("nonsense")
