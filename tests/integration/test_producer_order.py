"""The effect of a fault between producer and broker on the order of A and B, for a plain producer and for ours.

The same proxy stands before the same broker for all of them, and the same requests are hit.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient

from tarry.client import DelayedMessage, DelayedProducer
from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tarry.errors import BrokerError, RetriableError, UsageError
from tarry.testing import PRODUCE, Fault, KafkaProxy
from tests.support.brokers import no_broker, wait_until
from tests.support.topics import make_topics, read_topic

pytestmark = pytest.mark.broker

_END_TXN = 26
# The shortest time-out of a request that a busy machine does not reach by itself.
_REQUEST_TIMEOUT_MS = 1_000
_PLAIN = {
    "acks": "all",
    "enable.idempotence": False,
    "max.in.flight.requests.per.connection": 5,
    # Each message is a request of its own, and several are in flight.
    "batch.num.messages": 1,
    "linger.ms": 0,
    "logger": logging.getLogger("librdkafka"),
}


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[KafkaProxy, EmbeddedBroker]]:
    """A broker with a listener behind the proxy; its plain listener goes past the proxy."""
    port = free_port()
    with KafkaProxy(port) as proxy:
        broker = EmbeddedBroker(
            properties={
                "listeners": f"PROXIED://{HOST}:{port}",
                "advertised.listeners": f"PROXIED://{proxy.address}",
                "listener.security.protocol.map": "PROXIED:PLAINTEXT",
            }
        )
        try:
            broker.start()
        except UsageError as refusal:
            no_broker([str(refusal)])
        yield proxy, broker
        broker.stop()


@pytest.fixture
def proxy(proxied: tuple[KafkaProxy, EmbeddedBroker]) -> KafkaProxy:
    return proxied[0]


@pytest.fixture
def log(proxied: tuple[KafkaProxy, EmbeddedBroker], topic_name: str) -> Callable[[], list[bytes]]:
    """Reads the values in the one partition of a new topic of the test's name, past the proxy."""
    servers = proxied[1].bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    make_topics(admin, [topic_name])
    return lambda: [record.value() or b"" for record in read_topic(servers, topic_name, decided=True)]


class Plain:
    """A producer as many are set up, and what it was told of its messages."""

    def __init__(self, proxy: KafkaProxy, topic: str, **properties: Any) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": proxy.address, **_PLAIN, **properties})
        self.accepted: list[bytes] = []

    def produce(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(self._topic, value, on_delivery=self._report)

    def wait_for(self, *values: bytes) -> None:
        """Until all of these are reported as accepted."""

        def are_accepted() -> bool:
            self._producer.poll(0.05)
            return set(values) <= set(self.accepted)

        wait_until(are_accepted, f"{values!r} are accepted")

    def _report(self, error: object, message: "Message[Any, Any]") -> None:
        assert error is None, error
        self.accepted.append(message.value() or b"")


def test_a_plain_producer_with_several_requests_in_flight_swaps_a_and_b(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    plain = Plain(proxy, topic_name)
    plain.produce(b"first")
    plain.wait_for(b"first")  # the connection stands
    proxy.plan(Fault.LOSE_REQUEST)
    plain.produce(b"A", b"B")
    plain.wait_for(b"B")
    assert plain.accepted == [b"first", b"B"]
    # A has no answer yet. Its connection ends, so it is sent again.
    proxy.cut()
    plain.wait_for(b"A")
    assert log() == [b"first", b"B", b"A"]


def test_a_plain_producer_with_one_request_in_flight_keeps_the_order_and_writes_a_message_twice(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    plain = Plain(proxy, topic_name, **{"max.in.flight.requests.per.connection": 1})
    proxy.plan(Fault.CUT_AT_RESPONSE)
    plain.produce(b"A", b"B")
    plain.wait_for(b"A", b"B")
    assert log() == [b"A", b"A", b"B"]


def test_a_producer_that_wants_no_acknowledgement_is_told_that_a_lost_message_is_there(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    struck = proxy.struck
    plain = Plain(proxy, topic_name, acks=0)
    proxy.plan(Fault.CUT_AT_REQUEST)
    plain.produce(b"A")
    plain.wait_for(b"A")
    wait_until(lambda: proxy.struck > struck, "the request is cut off")
    assert log() == []


@pytest.mark.parametrize("fault", Fault)
def test_ours_keeps_the_order_and_writes_each_message_once_whatever_becomes_of_a_request(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]], fault: Fault
) -> None:
    times = 2  # A's first attempt, and its second
    struck, requests = proxy.struck, proxy.requests(PRODUCE)
    values = [b"first", b"A", b"B", b"C"]
    with _ours(proxy, topic_name) as producer:
        producer.send("orders", b"first", key=b"k", delay=timedelta(hours=1))
        proxy.plan(fault, times=times)
        receipts = list(producer.send_many(_messages(values[1:])))
    assert proxy.struck - struck == times
    assert proxy.requests(PRODUCE) - requests >= 1 + len(values[1:]) + times
    assert log() == values
    assert [receipt.offset for receipt in receipts] == [1, 2, 3]


@pytest.mark.parametrize("fault", Fault)
def test_ours_keeps_its_very_first_message_first(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]], fault: Fault
) -> None:
    # The broker takes any sequence number from a producer that it does not know: idempotence alone would let B in.
    proxy.plan(fault)
    with _ours(proxy, topic_name) as producer:
        receipts = list(producer.send_many(_messages([b"A", b"B"])))
    assert log() == [b"A", b"B"]
    assert [receipt.offset for receipt in receipts] == [0, 1]


def test_ours_loses_and_doubles_nothing_while_connections_end_and_stall_at_any_time(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    values = [b"%d" % number for number in range(60)]

    def send(producer: DelayedProducer) -> list[int]:
        return [receipt.offset for receipt in producer.send_many(_messages(values))]

    faults: list[Callable[[], None]] = [proxy.cut, proxy.half_close, proxy.stall, proxy.resume, proxy.cut]
    with _ours(proxy, topic_name) as producer, ThreadPoolExecutor(1) as thread:
        proxy.delay(0.02)
        try:
            sending = thread.submit(send, producer)
            for fault in faults:
                # In a stall nothing comes through; the client's next connection shows that it has given up waiting.
                wait_for_more(proxy, sending.done, stalled=fault == proxy.resume)
                fault()
            offsets = sending.result(60)
        finally:
            proxy.resume()
            proxy.delay(0)
    assert log() == values
    assert offsets == list(range(len(values)))


def test_a_reschedule_whose_commit_is_not_answered_says_that_its_fate_is_open_and_the_next_one_goes_through(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    # Asked again only after it was given up.
    options: dict[str, str | int | float | bool] = {"socket.timeout.ms": 20_000}
    with DelayedProducer(proxy.address, topic_name, options, timeout_s=3) as producer:
        first = producer.send("orders", b"first", b"k", delay=timedelta(hours=1))
        producer.reschedule(first.handle, *_messages([b"second"]))
        proxy.plan(Fault.LOSE_REQUEST, _END_TXN)
        with pytest.raises(RetriableError, match="may or may not be committed"):
            producer.reschedule(first.handle, *_messages([b"lost"]))
        receipt = producer.reschedule(first.handle, *_messages([b"third"]))
    assert log() == [b"first", b"", b"second", b"", b"third"]
    assert receipt.sent.offset == receipt.cancel.offset + 1


def test_a_broker_that_answers_slowly_is_reached_and_knows_which_intake_is_missing(
    proxy: KafkaProxy, topic_name: str, log: Callable[[], list[bytes]]
) -> None:
    proxy.delay(0.3)
    try:
        with DelayedProducer(proxy.address, topic_name) as producer:
            producer.send("orders", b"v", b"k", delay=timedelta(hours=1))
        with (
            DelayedProducer(proxy.address, f"{topic_name}.missing") as producer,
            pytest.raises(BrokerError, match=r"^there is no topic .*: check the name of the intake"),
        ):
            producer.send("orders", b"v", b"k", delay=timedelta(hours=1))
    finally:
        proxy.delay(0)
    assert log() == [b"v"]


def wait_for_more(proxy: KafkaProxy, is_over: Callable[[], bool], *, stalled: bool) -> None:
    """Until another message is on its way; in a stall, until the client has opened a connection anew."""
    requests, connections = proxy.requests(PRODUCE), proxy.connections
    wait_until(
        lambda: is_over() or (proxy.connections > connections if stalled else proxy.requests(PRODUCE) > requests + 3),
        "the producer goes on",
    )
    assert not is_over(), "all was sent before the last fault"


def _ours(proxy: KafkaProxy, topic: str) -> DelayedProducer:
    # One message a request, so that there are several to lose.
    return DelayedProducer(
        proxy.address,
        topic,
        {"socket.timeout.ms": _REQUEST_TIMEOUT_MS, "batch.num.messages": 1, "reconnect.backoff.max.ms": 200},
    )


def _messages(values: list[bytes]) -> list[DelayedMessage]:
    return [DelayedMessage("orders", value, b"k", delay=timedelta(hours=1)) for value in values]
