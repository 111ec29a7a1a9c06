"""The small server in a loop of its own: what good clients get, and what bad ones cannot do."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from selectors import DefaultSelector

import pytest

from tarry.clock import SystemClock
from tarry.errors import UsageError
from tarry.service.http import HttpServer, Response, listen
from tarry.service.http.server import CONNECTION_MS, CONNECTIONS
from tests.support.brokers import wait_until
from tests.support.programs import tarry

LARGE = Response(b"x" * 20_000_000)


class AheadClock(SystemClock):
    """The machine's clock, which a test may put forward."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


class Looped:
    """A server, and the thread whose loop it lives in."""

    def __init__(self) -> None:
        self.clock = AheadClock()
        self._selector = DefaultSelector()
        pages = {"/livez": lambda: Response(b"ok\n"), "/large": lambda: LARGE}
        self._server = HttpServer(listen("127.0.0.1", 0), pages, self._selector, self.clock)
        self.port = self._server.port
        self._over = False
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def get(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self._server.close()
        self._selector.close()

    def _loop(self) -> None:
        while not self._over:
            for key, mask in self._selector.select(0.05):
                key.data(mask)
            self._server.expire()


@pytest.fixture
def server() -> Iterator[Looped]:
    looped = Looped()
    yield looped
    looped.close()


def was_dropped(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_probe_is_answered(server: Looped) -> None:
    assert server.get("/livez") == (200, b"ok\n")
    assert server.get("/livez", "HEAD") == (200, b"")
    assert server.get("/nothing")[0] == 404
    assert server.get("/livez", "POST", b"x" * 1_000_000)[0] == 405


def test_an_answer_larger_than_any_buffer_arrives_whole(server: Looped) -> None:
    assert server.get("/large") == (200, LARGE.body)


def test_a_request_may_come_byte_by_byte(server: Looped) -> None:
    with server.connect() as client:
        for byte in b"GET /livez HTTP/1.1\r\n\r\n":
            client.sendall(bytes([byte]))
        received = b""
        while chunk := client.recv(4096):
            received += chunk
    assert received.endswith(b"\r\n\r\nok\n")


def test_clients_that_say_nothing_do_not_keep_a_probe_out_and_the_oldest_are_dropped(server: Looped) -> None:
    with ExitStack() as until_the_end:
        silent = [until_the_end.enter_context(server.connect()) for _ in range(CONNECTIONS + 10)]
        assert server.get("/livez") == (200, b"ok\n")
        wait_until(lambda: was_dropped(silent[0]), "the oldest is dropped")
        assert not was_dropped(silent[-1])


def test_a_client_that_reads_nothing_delays_no_other_and_is_dropped_after_its_time(server: Looped) -> None:
    with server.connect() as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert server.get("/livez") == (200, b"ok\n")
        server.clock.ahead_ms = CONNECTION_MS
        # It has what the buffers held, and then an end before all of it.
        client.settimeout(10)
        received = 0
        try:
            while chunk := client.recv(1 << 20):
                received += len(chunk)
        except ConnectionResetError:
            pass
    assert received < len(LARGE.body)


def test_a_client_that_resets_its_connection_harms_no_other(server: Looped) -> None:
    for _ in range(20):
        client = server.connect()
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
    assert server.get("/livez") == (200, b"ok\n")


def test_a_host_that_is_not_ours_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on http.host 192.0.2.1, http.port 0: .+"):
        listen("192.0.2.1", 0)


def test_a_port_in_use_ends_serve_with_one_error_and_exit_1_before_it_touches_kafka(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        settings = {"TARRY_HTTP__PORT": str(port), "TARRY_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
        said = tarry("serve", cwd=tmp_path, within_s=30, environment=settings)
    assert (said.code, said.out) == (1, "")
    configured, failed, error = said.err.splitlines()  # and nothing else: no topic was made, and no broker asked
    assert '"event": "configured"' in configured
    assert '"event": "failed"' in failed
    assert f"http.port {port}: Address already in use" in error
