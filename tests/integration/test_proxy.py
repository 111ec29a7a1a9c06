"""The proxy between a client and a listener that the test plays itself."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tarry.errors import UsageError
from tarry.testing import PRODUCE, Fault, KafkaProxy, Side
from tests.support.brokers import wait_until

_HOST = "127.0.0.1"
_FETCH = 1
_PATIENCE_S = 10.0


def _request(correlation: int, body: bytes = b"", api_key: int = PRODUCE) -> bytes:
    frame = struct.pack(">hhi", api_key, 9, correlation) + body
    return struct.pack(">i", len(frame)) + frame


def _response(correlation: int, body: bytes = b"") -> bytes:
    frame = struct.pack(">i", correlation) + body
    return struct.pack(">i", len(frame)) + frame


def _receive(end: socket.socket, size: int) -> bytes:
    """Exactly so many bytes, or what there is before the end."""
    received = b""
    while len(received) < size and (chunk := end.recv(size - len(received))):
        received += chunk
    return received


def _expect(end: socket.socket, *frames: bytes) -> None:
    """These frames come next."""
    assert _receive(end, sum(map(len, frames))) == b"".join(frames)


class Wire:
    """A listener, the proxy before it, and connections through both."""

    def __init__(self) -> None:
        self._opened = contextlib.ExitStack()
        self.listener = self._opened.enter_context(socket.create_server((_HOST, 0)))
        self.listener.settimeout(_PATIENCE_S)
        self.proxy = self._opened.enter_context(KafkaProxy(self.listener.getsockname()[1]))

    def client(self) -> socket.socket:
        return self._opened.enter_context(socket.create_connection((_HOST, self.proxy.port), _PATIENCE_S))

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """A client's end and the broker's end of one connection."""
        client = self.client()
        broker, _address = self.listener.accept()
        broker.settimeout(_PATIENCE_S)
        return client, self._opened.enter_context(broker)

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_frames_pass_unchanged_in_both_directions(wire: Wire) -> None:
    client, broker = wire.connect()
    requests = [_request(1, b"a" * 10), _request(2), _request(3, bytes(range(256)))]
    client.sendall(b"".join(requests))
    _expect(broker, *requests)
    broker.sendall(_response(1, b"x") + _response(2))
    _expect(client, _response(1, b"x"), _response(2))
    assert wire.proxy.requests(PRODUCE) == 3


def test_a_frame_that_comes_byte_by_byte_arrives_whole(wire: Wire) -> None:
    client, broker = wire.connect()
    frame = _request(7, b"slow")
    for at in range(len(frame)):
        client.sendall(frame[at : at + 1])
    _expect(broker, frame)


def test_a_frame_larger_than_all_buffers_passes(wire: Wire) -> None:
    client, broker = wire.connect()
    frames = [_request(number, bytes([number]) * 6_000_000) for number in range(3)]
    sender = threading.Thread(target=client.sendall, args=(b"".join(frames),))
    sender.start()
    for frame in frames:
        _expect(broker, frame)
    sender.join(_PATIENCE_S)
    assert not sender.is_alive()


def test_connections_do_not_mix(wire: Wire) -> None:
    one, two = wire.connect(), wire.connect()
    two[0].sendall(_request(2))
    one[0].sendall(_request(1))
    _expect(one[1], _request(1))
    _expect(two[1], _request(2))
    assert wire.proxy.connections == 2


def test_a_lost_request_leaves_the_others_of_its_connection(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.LOSE_REQUEST)
    client.sendall(_request(1, b"A") + _request(2, b"B"))
    _expect(broker, _request(2, b"B"))
    broker.sendall(_response(2))
    _expect(client, _response(2))
    assert wire.proxy.struck == 1
    assert wire.proxy.requests(PRODUCE) == 2


def test_a_lost_response_is_that_of_the_request_it_was_planned_for(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.LOSE_RESPONSE)
    client.sendall(_request(1) + _request(2))
    _expect(broker, _request(1), _request(2))
    broker.sendall(_response(2) + _response(1) + _response(3))
    _expect(client, _response(2), _response(3))
    assert wire.proxy.struck == 1


def test_a_planned_fault_hits_one_kind_of_request_and_a_given_number_of_times(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.LOSE_REQUEST, _FETCH, times=2)
    kinds = [_FETCH, PRODUCE, _FETCH, _FETCH]
    frames = [_request(number, api_key=kind) for number, kind in enumerate(kinds)]
    client.sendall(b"".join(frames))
    _expect(broker, frames[1], frames[3])
    assert wire.proxy.struck == 2


def test_a_plan_for_any_kind_takes_the_next_request(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.LOSE_REQUEST, api_key=None)
    client.sendall(_request(1, api_key=_FETCH) + _request(2, api_key=_FETCH))
    _expect(broker, _request(2, api_key=_FETCH))


def test_a_cut_at_a_request_resets_both_ends_before_it_is_through(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.CUT_AT_REQUEST)
    client.sendall(_request(1))
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionResetError):
        broker.recv(1)
    assert wire.proxy.connections == 0
    assert wire.proxy.struck == 1


def test_a_cut_at_a_response_comes_after_the_request_is_through(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.plan(Fault.CUT_AT_RESPONSE)
    client.sendall(_request(1))
    _expect(broker, _request(1))
    broker.sendall(_response(1))
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_cut_resets_all_connections_and_lets_new_ones_in(wire: Wire) -> None:
    ends = [end for _ in range(3) for end in wire.connect()]
    wire.proxy.cut()
    assert wire.proxy.connections == 0
    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    client, broker = wire.connect()
    client.sendall(_request(1))
    _expect(broker, _request(1))


def test_a_client_that_is_half_closed_hears_the_end_and_is_still_listened_to(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.half_close()
    assert client.recv(1) == b""
    client.sendall(_request(1))
    _expect(broker, _request(1))
    broker.sendall(_response(1))
    client.close()
    assert broker.recv(1) == b""
    broker.close()
    wait_until(lambda: wire.proxy.connections == 0, "the connection is over")


def test_a_broker_that_is_half_closed_hears_the_end_and_may_still_answer(wire: Wire) -> None:
    client, broker = wire.connect()
    client.sendall(_request(1))
    _expect(broker, _request(1))
    wire.proxy.half_close(Side.BROKER)
    assert broker.recv(1) == b""
    broker.sendall(_response(1))
    _expect(client, _response(1))


def test_bytes_sent_during_a_stall_arrive_after_it(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.stall()
    client.sendall(_request(1))
    broker.settimeout(0.1)
    with pytest.raises(TimeoutError):
        broker.recv(1)
    assert wire.proxy.requests(PRODUCE) == 0
    broker.settimeout(_PATIENCE_S)
    wire.proxy.resume()
    _expect(broker, _request(1))


def test_a_delay_holds_frames_back_and_keeps_their_order(wire: Wire) -> None:
    client, broker = wire.connect()
    wire.proxy.delay(0.15)
    began = time.monotonic()
    client.sendall(_request(1))
    wait_until(lambda: wire.proxy.requests(PRODUCE) == 1, "the request is in the proxy")
    wire.proxy.delay(0)
    client.sendall(_request(2))
    _expect(broker, _request(1), _request(2))
    assert time.monotonic() - began >= 0.15


def test_an_end_of_either_side_is_passed_on(wire: Wire) -> None:
    client, broker = wire.connect()
    client.sendall(_request(1))
    client.shutdown(socket.SHUT_WR)
    _expect(broker, _request(1))
    assert broker.recv(1) == b""
    broker.sendall(_response(1))
    broker.close()
    _expect(client, _response(1))
    assert client.recv(1) == b""
    wait_until(lambda: wire.proxy.connections == 0, "the connection is over")


def test_a_client_of_a_listener_that_is_away_is_reset(wire: Wire) -> None:
    wire.listener.close()
    with pytest.raises(ConnectionResetError):
        wire.client().recv(1)  # the reset may come while it still connects
    assert wire.proxy.connections == 0


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">iI", 4, 0), struct.pack(">i", -1)])
def test_a_client_that_does_not_speak_kafka_is_reset(wire: Wire, garbage: bytes) -> None:
    client, _broker = wire.connect()
    client.sendall(garbage)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    client, broker = wire.connect()
    client.sendall(_request(1))
    _expect(broker, _request(1))


def test_closing_resets_connections_ends_the_thread_and_frees_the_port(wire: Wire) -> None:
    client, _broker = wire.connect()
    port = wire.proxy.port
    wire.proxy.stall()
    wire.proxy.close()
    wire.proxy.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((_HOST, port), _PATIENCE_S)
    assert "kafka-proxy" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(UsageError, match="the proxy is closed"):
        wire.proxy.cut()
