"""The delayed producer and `tarry send` on a real broker."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader, Receipt
from tarry.clock import SystemClock
from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tarry.errors import BrokerError, FatalError, HeaderError, RetriableError, UsageError
from tarry.handle import Handle
from tarry.headers import TAKEN_OFF
from tests.support.programs import tarry
from tests.support.receipts import PARTITIONS, consume, make_topic, record_of, request_of

_SECOND = timedelta(seconds=1)


@pytest.fixture
def intake(bootstrap: str, topic_name: str) -> str:
    """An intake that nobody serves."""
    return make_topic(bootstrap, topic_name)


@pytest.fixture
def producer(bootstrap: str, intake: str) -> Iterator[DelayedProducer]:
    with DelayedProducer(bootstrap, intake, timeout_s=20) as producer:
        yield producer


@pytest.mark.parametrize("tick_ms", [1, 1_000])
@pytest.mark.parametrize("stamped_by", ["CreateTime", "LogAppendTime"])
def test_a_handle_names_the_due_time_that_the_service_computes(
    bootstrap: str, topic_name: str, stamped_by: str, tick_ms: int
) -> None:
    topic = make_topic(bootstrap, topic_name, message_timestamp_type=stamped_by)
    with DelayedProducer(bootstrap, topic, tick_ms=tick_ms) as producer:
        by_delay = producer.send("orders", b"v", b"k", delay=timedelta(milliseconds=1_234))
        by_time = producer.send("orders", b"v", b"k", at=datetime.now(UTC) + _SECOND)
    for receipt in (by_delay, by_time):
        request = request_of(bootstrap, receipt, tick_ms)
        assert receipt.handle == Handle(topic, receipt.handle.partition, request.due_ms, request.id.decode())
        assert receipt.due == datetime.fromtimestamp(request.due_ms / 1_000, UTC)
        assert request.due_ms % tick_ms == 0


def _others(record: "Message[Any, Any]") -> list[Any]:
    """The headers that the service would send on."""
    headers: Any = record.headers() or []
    return [header for header in headers if header[0] not in TAKEN_OFF]


def test_key_value_and_headers_arrive_as_they_were_given(bootstrap: str, producer: DelayedProducer) -> None:
    receipt = producer.send("orders", None, "kä", delay=_SECOND, headers=[("b", b"\xff"), ("a", None), ("b", "ö")])
    record = record_of(bootstrap, receipt)
    assert (record.key(), record.value()) == ("kä".encode(), None)
    assert request_of(bootstrap, receipt).carries
    assert _others(record) == [("b", b"\xff"), ("a", None), ("b", "ö".encode())]


def test_a_key_lies_where_java_would_put_it(producer: DelayedProducer) -> None:
    # Java: Utils.toPositive(Utils.murmur2(key)) % 3, by the hashes in the tests of Kafka's own Utils.
    hashes = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
    for key, murmur2 in hashes.items():
        receipt = producer.send("orders", b"v", key, delay=_SECOND)
        assert receipt.handle.partition == (murmur2 & 0x7FFFFFFF) % PARTITIONS, key


def test_many_messages_give_receipts_in_their_order(bootstrap: str, intake: str, producer: DelayedProducer) -> None:
    messages = [DelayedMessage("orders", b"%d" % n, b"k%d" % (n % 7), delay=_SECOND) for n in range(30_000)]
    receipts = list(producer.send_many(messages))
    assert len(receipts) == len(messages)
    starts = [TopicPartition(intake, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
    values = {(r.partition(), r.offset()): r.value() for r in consume(bootstrap, starts, len(messages))}
    assert [values[receipt.handle.partition, receipt.offset] for receipt in receipts] == [m.value for m in messages]


def test_messages_sent_before_a_bad_one_get_their_receipts_first(producer: DelayedProducer) -> None:
    good = DelayedMessage("orders", b"v", delay=_SECOND)
    receipts = producer.send_many([good, good, DelayedMessage("a b", b"v", delay=_SECOND), good])
    assert len({next(receipts).id, next(receipts).id}) == 2
    with pytest.raises(HeaderError, match="not a legal topic name"):
        next(receipts)


def test_a_record_that_is_too_large_is_refused_and_the_producer_lives_on(producer: DelayedProducer) -> None:
    with pytest.raises(BrokerError, match="could not send") as refusal:
        producer.send("orders", b"x" * 2_000_000, delay=_SECOND)
    assert refusal.value.code == "MSG_SIZE_TOO_LARGE"
    assert not isinstance(refusal.value, FatalError)
    assert producer.send("orders", b"v", delay=_SECOND).offset >= 0


def test_a_record_that_only_the_broker_finds_too_large_is_refused(bootstrap: str, topic_name: str) -> None:
    topic = make_topic(bootstrap, topic_name, max_message_bytes="10000")
    good = DelayedMessage("orders", b"v", b"k", delay=_SECOND)
    with DelayedProducer(bootstrap, topic) as producer:
        assert producer.send("orders", b"v", b"k", delay=_SECOND).offset == 0
        with pytest.raises(BrokerError, match="could not send") as refusal:
            producer.send("orders", b"x" * 20_000, b"k", delay=_SECOND)
        assert refusal.value.code == "MSG_SIZE_TOO_LARGE"
        assert "\n" not in str(refusal.value)
        assert [receipt.offset for receipt in producer.send_many([good, good])] == [1, 2]


def test_an_intake_that_is_not_there_is_refused_and_not_made(bootstrap: str, topic_name: str) -> None:
    with (
        DelayedProducer(bootstrap, topic_name, timeout_s=20) as producer,
        pytest.raises(BrokerError, match=f"^there is no topic {topic_name}: check the name of the intake") as refusal,
    ):
        producer.send("orders", b"v", delay=_SECOND)
    assert refusal.value.code == "UNKNOWN_TOPIC_OR_PART"
    assert topic_name not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=5).topics


@pytest.mark.some_of("servers")
@pytest.mark.parametrize(
    ("servers", "cause"), [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:9092", "resolve")]
)
def test_a_wrong_address_is_named_with_its_cause_soon(servers: str, cause: str) -> None:
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    says = f"^could not reach Kafka at {servers}: .*{cause}.*; nothing was ever connected$"
    with DelayedProducer(servers) as producer, pytest.raises(RetriableError, match=says):
        producer.send("orders", b"v", delay=_SECOND)
    with pytest.raises(RetriableError, match=says):
        OutcomeReader(servers)
    assert clock.monotonic_ms() - began_ms < 25_000


def test_once_it_was_connected_the_wait_ends_with_a_line_that_says_it_may_be_there(
    start_embedded_broker: Callable[[], EmbeddedBroker], topic_name: str
) -> None:
    broker = start_embedded_broker()
    intake = make_topic(broker.bootstrap_servers, topic_name)
    with DelayedProducer(broker.bootstrap_servers, intake, timeout_s=2) as producer:
        producer.send("orders", b"v", delay=_SECOND)
        broker.kill()
        with pytest.raises(RetriableError, match=r"not acknowledged in time; it may or may not"):
            producer.send("orders", b"v", delay=_SECOND)


def _result(receipt: Receipt, outcome: str, **more: str) -> bytes:
    handle = receipt.handle
    source = f"{handle.topic}/{handle.partition}/{receipt.offset}"
    return json.dumps({"v": 1, "outcome": outcome, "id": receipt.id, "source": source, **more}).encode()


def test_an_outcome_is_the_definite_one_of_this_very_record(
    bootstrap: str, intake: str, producer: DelayedProducer
) -> None:
    results = make_topic(bootstrap, f"{intake}.results")
    first = producer.send("orders", b"v", b"k", delay=_SECOND)
    with OutcomeReader(bootstrap, intake) as outcomes:
        second = producer.send("orders", b"v", b"k", delay=_SECOND, id=first.id)
        writer = Producer({"bootstrap.servers": bootstrap})
        key, place = second.id.encode(), second.handle.partition
        for noise in (b"not json", b"[]", None, _result(first, "fired"), _result(second, "cancel-too-late")):
            writer.produce(results, noise, key, partition=place)
        writer.produce(results, _result(second, "duplicate"), key, partition=place)
        writer.flush()
        assert outcomes.await_outcome(second)["outcome"] == "duplicate"


def test_without_results_there_is_nothing_to_wait_for(bootstrap: str, intake: str) -> None:
    with pytest.raises(UsageError, match=rf"there is no topic {intake}\.results"):
        OutcomeReader(bootstrap, intake)


_COMMAND = """
import typer
from tarry.cli.send import send
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(send)
app()
"""


class _Command:
    """`tarry send` in a process of its own."""

    def __init__(self, bootstrap: str, intake: str, directory: Path) -> None:
        self._given = ["--bootstrap-servers", bootstrap, "--intake", intake]
        self._directory = directory

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", _COMMAND, *self._given, *arguments],
            cwd=self._directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, list[dict[str, Any]], str]:
        process = self.start(*arguments)
        output, errors = process.communicate(stdin, timeout=60)
        return process.returncode, [json.loads(line) for line in output.splitlines()], errors


def test_a_message_for_which_there_will_never_be_room_is_refused(bootstrap: str, intake: str) -> None:
    with DelayedProducer(bootstrap, intake, {"queue.buffering.max.kbytes": 100}) as producer:
        with pytest.raises(BrokerError, match="larger than the producer's whole queue"):
            producer.send("orders", bytes(200_000), b"k", delay=timedelta(seconds=1))
        assert producer.send("orders", b"small", b"k", delay=timedelta(seconds=1)).offset == 0


@pytest.fixture
def command(bootstrap: str, intake: str, tmp_path: Path) -> _Command:
    return _Command(bootstrap, intake, tmp_path)


def _receipt(line: dict[str, Any]) -> Receipt:
    return Receipt(line["id"], Handle.parse(line["handle"]), datetime.fromisoformat(line["due"]), line["offset"])


def test_the_command_prints_a_receipt_as_json(bootstrap: str, intake: str, command: _Command) -> None:
    code, lines, errors = command.run(
        "orders", "-", "--delay", "1h", "--key", "k", "-H", "a=b=c", "-H", "a=", stdin="vä"
    )
    assert (code, errors) == (0, "")
    (line,) = lines
    assert list(line) == ["id", "handle", "due", "due_ms", "intake", "partition", "offset"]
    receipt = _receipt(line)
    assert (line["intake"], line["partition"], line["due_ms"]) == (
        intake,
        receipt.handle.partition,
        receipt.handle.due_ms,
    )
    request = request_of(bootstrap, receipt)
    assert request.due_ms == line["due_ms"]
    record = record_of(bootstrap, receipt)
    assert _others(record) == [("a", b"b=c"), ("a", b"")]
    assert (record.key(), record.value()) == (b"k", "vä".encode())


def test_without_a_value_the_command_sends_an_empty_one(bootstrap: str, command: _Command) -> None:
    code, (line,), _ = command.run("orders", "--at", "2030-01-31T12:00:00+01:00", stdin="not read")
    assert code == 0
    assert (line["due"], record_of(bootstrap, _receipt(line)).value()) == ("2030-01-31T11:00:00.000Z", b"")


def test_the_command_sends_a_file(bootstrap: str, command: _Command, tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    messages = [{"target": "orders", "value": f"v{n}", "key": "k", "delay": "1h"} for n in range(2_000)]
    path.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    code, lines, errors = command.run("--file", str(path))
    assert (code, errors) == (0, "")
    assert [line["offset"] for line in lines] == list(range(2_000))
    assert record_of(bootstrap, _receipt(lines[1_999])).value() == b"v1999"


def test_a_bad_line_ends_the_command_after_the_receipts_before_it(command: _Command, tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    good = '{"target": "orders", "delay": "1h"}\n'
    path.write_text(f"{good}{good}{{}}\n{good}", encoding="utf-8")
    code, lines, errors = command.run("--file", str(path))
    assert code != 0
    assert len(lines) == 2
    assert f"{path}:3: target: missing" in errors


@pytest.mark.parametrize(("outcome", "expected_code"), [("fired", 0), ("dead", 1)])
def test_wait_prints_the_outcome_and_fails_where_it_is_dead(
    bootstrap: str, intake: str, command: _Command, outcome: str, expected_code: int
) -> None:
    results = make_topic(bootstrap, f"{intake}.results")
    process = command.start("orders", "v", "--delay", "0ms", "--wait")
    assert process.stdout is not None
    receipt = _receipt(json.loads(process.stdout.readline()))
    writer = Producer({"bootstrap.servers": bootstrap})
    value = _result(receipt, outcome, reason="too-large")
    writer.produce(results, value, receipt.id.encode(), partition=receipt.handle.partition)
    writer.flush()
    output, _ = process.communicate(timeout=60)
    assert json.loads(output) == json.loads(value)
    assert process.returncode == expected_code


def test_the_command_without_a_broker_says_so_in_one_line(tmp_path: Path) -> None:
    servers = ("--bootstrap-servers", f"{HOST}:{free_port()}")
    said = tarry("send", "orders", "v", "--delay", "5s", *servers, cwd=tmp_path)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"tarry: could not reach Kafka at {servers[1]}: ")
    assert said.err.endswith("; nothing was ever connected\n")
    assert said.err.count("\n") == 1
