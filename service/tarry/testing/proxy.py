"""A TCP proxy in front of a Kafka listener, which breaks connections when a test asks for it.

Kafka's protocol is a sequence of frames: four bytes of length, then the frame. A request begins with its api key, its
version and its correlation id; a response begins with the correlation id of its request. The proxy splits both
directions into whole frames. So it can drop one of several requests in flight and keep the stream readable. A test can
also choose the request that a fault hits; a fault at a given time would hit a different request in each run.

One thread and one selector serve all connections. That thread executes the calls of the test between two turns of its
loop; a call returns when it has been executed.
"""

import selectors
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Final, Self, TypeVar

from tarry.clock import Clock, SystemClock
from tarry.errors import UsageError

PRODUCE: Final = 0
"""The api key of a Produce request."""

_HOST: Final = "127.0.0.1"
_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">ihhi")
_RESPONSE: Final = struct.Struct(">ii")
_CHUNK_BYTES: Final = 262_144
#: Larger than the largest request that a broker accepts by default (`socket.request.max.bytes`).
_LARGEST_FRAME_BYTES: Final = 128 * 1024 * 1024
#: The proxy stops reading from one side while it holds more than this for the other side.
_AHEAD_BYTES: Final = 4 * 1024 * 1024
_ANSWER_WITHIN_S: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)

_T = TypeVar("_T")


class Side(Enum):
    """The peer of one of the proxy's sockets."""

    CLIENT = auto()
    BROKER = auto()


class Fault(Enum):
    """A fault for one request."""

    LOSE_REQUEST = auto()
    """The request never reaches the broker. The connection stays open."""
    LOSE_RESPONSE = auto()
    """The broker executes the request, but its response never reaches the client. The connection stays open."""
    CUT_AT_REQUEST = auto()
    """The connection is reset before the request reaches the broker."""
    CUT_AT_RESPONSE = auto()
    """The broker executes the request, then the connection is reset."""


@dataclass(slots=True)
class _Plan:
    fault: Fault
    api_key: int | None
    times: int


class KafkaProxy:
    """Forwards connections from its own loopback port to one Kafka listener.

    A context manager. It listens as soon as it is constructed; the broker need not run yet. The broker must advertise
    the listener at `address`; otherwise clients bypass the proxy after their first metadata request. Not thread-safe.

    Args:
        broker_port: the port of the listener, on the loopback address.
        clock: for delays.
    """

    def __init__(self, broker_port: int, clock: Clock | None = None) -> None:
        self._broker_port = broker_port
        self._clock = clock or SystemClock()
        self._links: dict[_Link, None] = {}  # an ordered set, oldest connection first
        self._unsent: dict[_Link, None] = {}  # connections with frames that wait for their time or their socket
        self._plans: list[_Plan] = []
        self._seen: Counter[int] = Counter()
        self._struck = 0
        self._delay_ms = 0
        self._stalled = False
        self._closing = False
        self._actions: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._door = socket.create_server((_HOST, 0))
        self._door.setblocking(False)
        self._port = int(self._door.getsockname()[1])
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._door, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="kafka-proxy", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port at which the broker must advertise the listener."""
        return self._port

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients' `bootstrap.servers`."""
        return f"{_HOST}:{self._port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    @property
    def struck(self) -> int:
        """The number of planned faults that have happened."""
        return self._struck

    def requests(self, api_key: int) -> int:
        """Return how many requests with this api key clients have sent, including dropped ones."""
        return self._seen[api_key]

    def plan(self, fault: Fault, api_key: int | None = PRODUCE, times: int = 1) -> None:
        """Plan a fault for the next requests of a kind. Each request uses the first plan that matches it.

        Args:
            fault: the fault.
            api_key: Kafka's api key of the requests; None: any request.
            times: the number of requests that the fault hits.
        """
        self._call(lambda: self._plans.append(_Plan(fault, api_key, times)))

    def delay(self, seconds: float) -> None:
        """Delay each frame that arrives from now on by `seconds`, in both directions, in order; 0 ends the delay."""
        self._call(lambda: setattr(self, "_delay_ms", round(seconds * 1_000)))

    def stall(self) -> None:
        """Forward no byte until `resume`. Connections stay open, and new ones are accepted."""
        self._call(lambda: setattr(self, "_stalled", True))

    def resume(self) -> None:
        """End a stall, and forward the bytes that were sent during it."""
        self._call(lambda: setattr(self, "_stalled", False))

    def cut(self) -> None:
        """Reset all connections on both sides. Frames inside the proxy are lost."""
        self._call(lambda: self._on_all(self._reset))

    def half_close(self, towards: Side = Side.CLIENT) -> None:
        """Half-close each connection: send FIN to one side, and still read from that side."""
        self._call(lambda: self._on_all(lambda link: self._half_close(link, towards)))

    def close(self) -> None:
        """Reset all connections, end the thread and release the port. A second call does nothing."""
        if self._thread.is_alive():
            self._call(lambda: setattr(self, "_closing", True))
        self._thread.join(_ANSWER_WITHIN_S)
        self._ringer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, action: Callable[[], _T]) -> _T:
        """Have the thread execute an action, and wait for its result."""
        if not self._thread.is_alive():
            raise UsageError("the proxy is closed")
        done: Future[_T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except Exception as error:  # noqa: BLE001 - the caller gets it
                done.set_exception(error)

        self._actions.append(act)
        self._ringer.send(b"!")
        return done.result(_ANSWER_WITHIN_S)

    # Only the thread runs the methods below.

    def _run(self) -> None:
        try:
            while not self._closing:
                moved: dict[_Link | None, None] = {}
                for key, mask in self._selector.select(self._wait_s()):
                    if key.fileobj is self._door:
                        moved[self._accept()] = None
                    elif key.fileobj is self._bell:
                        self._act()
                        moved.update(dict.fromkeys(self._links))
                    else:
                        self._serve(key.data, key.fileobj, mask)
                        moved[key.data] = None
                # With a hundred connections, checking each of them in every turn would be most of the work.
                for link in moved | self._unsent:
                    if link is not None and link in self._links:
                        self._send(link)
        finally:
            self._on_all(self._reset)
            self._selector.close()
            self._door.close()
            self._bell.close()

    def _on_all(self, do: "Callable[[_Link], None]") -> None:
        for link in list(self._links):  # a copy, because the action may remove the connection
            do(link)

    def _wait_s(self) -> float | None:
        """Return the seconds until the next delayed frame may be sent; None: no frame is delayed."""
        if self._stalled:
            return None
        now_ms = self._clock.monotonic_ms()
        releases = [lane.waiting[0][0] for link in self._unsent for lane in link.lanes if lane.waiting]
        # Frames whose time has come wait for their socket, which the selector watches.
        later = [release_ms for release_ms in releases if release_ms > now_ms]
        return (min(later) - now_ms) / 1_000 if later else None

    def _act(self) -> None:
        self._bell.recv(_CHUNK_BYTES)
        while self._actions:
            self._actions.popleft()()

    def _accept(self) -> "_Link | None":
        try:
            client, _address = self._door.accept()
        except OSError:  # the client closed the connection before it was accepted
            return None
        broker = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (client, broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # If the broker refuses the connection, the first read reports it.
        broker.connect_ex((_HOST, self._broker_port))
        link = _Link(client, broker)
        self._links[link] = None
        return link

    def _serve(self, link: "_Link", end: object, mask: int) -> None:
        """Read from one end of a connection. Writing happens at the end of each turn."""
        if link not in self._links or not mask & selectors.EVENT_READ:
            return
        lane = link.requests if end is link.client else link.responses
        try:
            frames = lane.receive()
        except BlockingIOError:
            return
        except OSError:
            self._reset(link)
            return
        # The clock rounds down to milliseconds: one more prevents that a frame is early.
        release_ms = self._clock.monotonic_ms() + (self._delay_ms + 1 if self._delay_ms else 0)
        for frame in frames:
            fault = self._judge_request(link, frame) if lane is link.requests else link.judge_response(frame)
            if fault is None:
                lane.put(frame, release_ms)
                continue
            self._struck += 1
            if fault in {Fault.CUT_AT_REQUEST, Fault.CUT_AT_RESPONSE}:
                self._reset(link)
                return

    def _judge_request(self, link: "_Link", frame: bytes) -> Fault | None:
        """Return the fault that hits a request now. A fault for its response is remembered."""
        _size, api_key, _version, correlation = _REQUEST.unpack_from(frame)
        self._seen[api_key] += 1
        plan = next((one for one in self._plans if one.api_key in {None, api_key}), None)
        if plan is None:
            return None
        plan.times -= 1
        if plan.times <= 0:
            self._plans.remove(plan)
        if plan.fault in {Fault.LOSE_REQUEST, Fault.CUT_AT_REQUEST}:
            return plan.fault
        link.condemned[correlation] = plan.fault
        return None

    def _send(self, link: "_Link") -> None:
        """Send the frames whose time has come, close a finished connection, and update what the selector watches."""
        if not self._stalled:
            now_ms = self._clock.monotonic_ms()
            try:
                for lane in link.lanes:
                    lane.send(now_ms)
            except OSError:
                self._reset(link)
                return
            if all(lane.shut and lane.ended for lane in link.lanes):
                self._drop(link)
                return
        if any(lane.waiting for lane in link.lanes):
            self._unsent[link] = None
        else:
            self._unsent.pop(link, None)
        self._watch(link)

    def _watch(self, link: "_Link") -> None:
        """Watch both ends only for events that can be handled now; otherwise the selector would never wait."""
        now_ms = self._clock.monotonic_ms()
        for end, inward, outward in (
            (link.client, link.requests, link.responses),
            (link.broker, link.responses, link.requests),
        ):
            mask = 0
            if not self._stalled:
                mask |= selectors.EVENT_READ if inward.takes_more else 0
                mask |= selectors.EVENT_WRITE if outward.waiting and outward.waiting[0][0] <= now_ms else 0
            known = self._selector.get_map().get(end)
            if known is None:
                if mask:
                    self._selector.register(end, mask, link)
            elif not mask:
                self._selector.unregister(end)
            elif mask != known.events:
                self._selector.modify(end, mask, link)

    def _half_close(self, link: "_Link", towards: Side) -> None:
        lane = link.responses if towards is Side.CLIENT else link.requests
        try:
            lane.shut_down()
        except OSError:
            self._reset(link)

    def _reset(self, link: "_Link") -> None:
        for end in (link.client, link.broker):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._drop(link)

    def _drop(self, link: "_Link") -> None:
        del self._links[link]
        self._unsent.pop(link, None)
        for end in (link.client, link.broker):
            if end in self._selector.get_map():
                self._selector.unregister(end)
            end.close()


class _Lane:
    """One direction of a connection. It receives bytes, and sends whole frames, each not before its release time."""

    __slots__ = ("_least_bytes", "_received", "_unsent_bytes", "ended", "shut", "sink", "source", "waiting")

    def __init__(self, source: socket.socket, sink: socket.socket, least_bytes: int) -> None:
        self.source = source
        self.sink = sink
        self.waiting: deque[tuple[int, memoryview]] = deque()
        self.ended = False  # the source has sent FIN
        self.shut = False  # FIN was sent to the sink: later frames are dropped
        self._least_bytes = least_bytes
        self._received = bytearray()
        self._unsent_bytes = 0

    @property
    def takes_more(self) -> bool:
        return not self.ended and self._unsent_bytes < _AHEAD_BYTES

    def receive(self) -> list[bytes]:
        """Read once, and return the frames that are now complete."""
        chunk = self.source.recv(_CHUNK_BYTES)
        self.ended = not chunk
        self._received += chunk
        frames = []
        while len(self._received) >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if not self._least_bytes <= size <= _LARGEST_FRAME_BYTES:
                raise ConnectionAbortedError("not a frame of Kafka's protocol")
            if len(self._received) < size:
                break
            with memoryview(self._received) as received:
                frames.append(bytes(received[:size]))
            del self._received[:size]
        return frames

    def put(self, frame: bytes, release_ms: int) -> None:
        """Queue a frame. It is never sent before the frames that already wait, even if its delay is shorter."""
        if not self.shut:
            self.waiting.append((max(release_ms, self.waiting[-1][0] if self.waiting else 0), memoryview(frame)))
            self._unsent_bytes += len(frame)

    def send(self, now_ms: int) -> None:
        """Write the frames whose time has come, as far as the sink accepts them; after the last one, pass on a FIN."""
        while self.waiting and self.waiting[0][0] <= now_ms:
            release_ms, rest = self.waiting.popleft()
            try:
                sent = self.sink.send(rest)
            except BlockingIOError:
                sent = 0
            self._unsent_bytes -= sent
            if sent < len(rest):
                self.waiting.appendleft((release_ms, rest[sent:]))
                return
        if self.ended and not self.waiting and not self.shut:
            self.shut_down()

    def shut_down(self) -> None:
        """Send FIN to the sink, and drop the frames that wait."""
        self.shut = True
        self.waiting.clear()
        self._unsent_bytes = 0
        self.sink.shutdown(socket.SHUT_WR)


class _Link:
    """A connection of a client, and the proxy's connection to the broker for it."""

    __slots__ = ("broker", "client", "condemned", "requests", "responses")

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client = client
        self.broker = broker
        self.requests = _Lane(client, broker, _REQUEST.size)
        self.responses = _Lane(broker, client, _RESPONSE.size)
        self.condemned: dict[int, Fault] = {}  # by the correlation id of the response

    @property
    def lanes(self) -> tuple[_Lane, _Lane]:
        return self.requests, self.responses

    def judge_response(self, frame: bytes) -> Fault | None:
        """Return the fault for a response, which was chosen when its request arrived."""
        return self.condemned.pop(_RESPONSE.unpack_from(frame)[1], None)
