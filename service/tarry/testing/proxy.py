"""A TCP proxy before a Kafka listener, which breaks connections when a test says so.

Kafka's stream is a row of frames: four bytes of length, then the frame; a request begins with its api key, its version
and its correlation id, a response with the correlation id of its request. The proxy takes both directions apart into
whole frames. So it can lose one request of several in flight and leave the stream readable, and a test can name the
request that a fault is for, where a fault by the clock would hit another one each time.

One thread and one selector serve all connections. A call from the test is done by that thread between two turns of its
loop, and returns when it is done.
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
#: Above the largest request that a broker takes by default (`socket.request.max.bytes`).
_LARGEST_FRAME_BYTES: Final = 128 * 1024 * 1024
#: No more is read from one side while the other is so far behind.
_AHEAD_BYTES: Final = 4 * 1024 * 1024
_ANSWER_WITHIN_S: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)

_T = TypeVar("_T")


class Side(Enum):
    """Who is at the other end of a socket of the proxy's."""

    CLIENT = auto()
    BROKER = auto()


class Fault(Enum):
    """What may happen to one request."""

    LOSE_REQUEST = auto()
    """It never reaches the broker, and the connection goes on."""
    LOSE_RESPONSE = auto()
    """The broker has done it, the client never hears of it, and the connection goes on."""
    CUT_AT_REQUEST = auto()
    """The connection is reset before it reaches the broker."""
    CUT_AT_RESPONSE = auto()
    """The broker has done it, then the connection is reset."""


@dataclass(slots=True)
class _Plan:
    fault: Fault
    api_key: int | None
    times: int


class KafkaProxy:
    """Forwards connections on a loopback port of its own to one Kafka listener.

    A context manager; it listens once it is made. The listener must be advertised at `address`, or clients go past the
    proxy after their first question. The broker need not run yet. For one thread at a time.

    Args:
        broker_port: where the listener is, on the loopback address.
        clock: for delays.
    """

    def __init__(self, broker_port: int, clock: Clock | None = None) -> None:
        self._broker_port = broker_port
        self._clock = clock or SystemClock()
        self._links: dict[_Link, None] = {}  # a set, in the order of their coming
        self._unsent: dict[_Link, None] = {}  # those of which something waits: for its time, or for its socket
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
        """The port that the listener is to be advertised at."""
        return self._port

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients' `bootstrap.servers`."""
        return f"{_HOST}:{self._port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    @property
    def struck(self) -> int:
        """How many planned faults have happened."""
        return self._struck

    def requests(self, api_key: int) -> int:
        """How many requests of a kind came from clients, lost ones included."""
        return self._seen[api_key]

    def plan(self, fault: Fault, api_key: int | None = PRODUCE, times: int = 1) -> None:
        """Have a fault happen to the next requests of a kind; each request takes from the first plan that fits.

        Args:
            fault: what is to happen.
            api_key: Kafka's number of the kind of request; None: any.
            times: to how many of them.
        """
        self._call(lambda: self._plans.append(_Plan(fault, api_key, times)))

    def delay(self, seconds: float) -> None:
        """Hold every frame that comes from now on for so long, in each direction; 0 ends that. Order is kept."""
        self._call(lambda: setattr(self, "_delay_ms", round(seconds * 1_000)))

    def stall(self) -> None:
        """Move no byte until `resume`: connections stay open and are accepted, but nothing comes through."""
        self._call(lambda: setattr(self, "_stalled", True))

    def resume(self) -> None:
        """End a stall; what was sent meanwhile goes on its way."""
        self._call(lambda: setattr(self, "_stalled", False))

    def cut(self) -> None:
        """Reset all connections, on both sides; what is under way in the proxy is lost."""
        self._call(lambda: self._on_all(self._reset))

    def half_close(self, towards: Side = Side.CLIENT) -> None:
        """Tell one side of each connection that nothing more comes, while still taking what it sends."""
        self._call(lambda: self._on_all(lambda link: self._half_close(link, towards)))

    def close(self) -> None:
        """Reset all connections, end the thread and give the port back. A second call does nothing."""
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
        """Have the thread do something, and wait for it."""
        if not self._thread.is_alive():
            raise UsageError("the proxy is closed")
        done: Future[_T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except Exception as error:  # noqa: BLE001 - it is the caller's
                done.set_exception(error)

        self._actions.append(act)
        self._ringer.send(b"!")
        return done.result(_ANSWER_WITHIN_S)

    # What follows runs on the thread alone.

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
                # With a hundred connections, looking at all of them each time would be most of the work.
                for link in moved | self._unsent:
                    if link is not None and link in self._links:
                        self._send(link)
        finally:
            self._on_all(self._reset)
            self._selector.close()
            self._door.close()
            self._bell.close()

    def _on_all(self, do: "Callable[[_Link], None]") -> None:
        for link in list(self._links):  # which may lose the one at hand
            do(link)

    def _wait_s(self) -> float | None:
        """Until the next delayed frame may go; None: until something happens."""
        if self._stalled:
            return None
        now_ms = self._clock.monotonic_ms()
        releases = [lane.waiting[0][0] for link in self._unsent for lane in link.lanes if lane.waiting]
        # What could go now waits for its socket, which the selector watches.
        later = [release_ms for release_ms in releases if release_ms > now_ms]
        return (min(later) - now_ms) / 1_000 if later else None

    def _act(self) -> None:
        self._bell.recv(_CHUNK_BYTES)
        while self._actions:
            self._actions.popleft()()

    def _accept(self) -> "_Link | None":
        try:
            client, _address = self._door.accept()
        except OSError:  # it went away before it was let in
            return None
        broker = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for end in (client, broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A refusal is told by the first read, as any other end of the connection is.
        broker.connect_ex((_HOST, self._broker_port))
        link = _Link(client, broker)
        self._links[link] = None
        return link

    def _serve(self, link: "_Link", end: object, mask: int) -> None:
        """Take in what one end has sent. What may be written is written after every turn."""
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
        # The clock's milliseconds are rounded down: with one more no frame comes early.
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
        """What happens to a request now; what is to happen to its response is noted."""
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
        """Move on what may go, end what is over, and say what is waited for next."""
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
        """Ask the selector for what can be done at both ends, and no more, or it would never wait."""
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
    """One direction of a connection: bytes come in, whole frames go out, each not before its time."""

    __slots__ = ("_least_bytes", "_received", "_unsent_bytes", "ended", "shut", "sink", "source", "waiting")

    def __init__(self, source: socket.socket, sink: socket.socket, least_bytes: int) -> None:
        self.source = source
        self.sink = sink
        self.waiting: deque[tuple[int, memoryview]] = deque()
        self.ended = False  # the source has said that nothing more comes
        self.shut = False  # the sink was told so: what still comes is thrown away
        self._least_bytes = least_bytes
        self._received = bytearray()
        self._unsent_bytes = 0

    @property
    def takes_more(self) -> bool:
        return not self.ended and self._unsent_bytes < _AHEAD_BYTES

    def receive(self) -> list[bytes]:
        """Read once; the frames that are whole by now."""
        chunk = self.source.recv(_CHUNK_BYTES)
        self.ended = not chunk
        self._received += chunk
        frames = []
        while len(self._received) >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
            if not self._least_bytes <= size <= _LARGEST_FRAME_BYTES:
                raise ConnectionAbortedError("not Kafka's framing")
            if len(self._received) < size:
                break
            with memoryview(self._received) as received:
                frames.append(bytes(received[:size]))
            del self._received[:size]
        return frames

    def put(self, frame: bytes, release_ms: int) -> None:
        """Queue a frame. A shorter delay than before does not let it pass those that wait."""
        if not self.shut:
            self.waiting.append((max(release_ms, self.waiting[-1][0] if self.waiting else 0), memoryview(frame)))
            self._unsent_bytes += len(frame)

    def send(self, now_ms: int) -> None:
        """Write what may go and what the sink takes; pass the source's end on behind it."""
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
        """Tell the sink that nothing more comes; what waits is thrown away."""
        self.shut = True
        self.waiting.clear()
        self._unsent_bytes = 0
        self.sink.shutdown(socket.SHUT_WR)


class _Link:
    """A client's connection, and the one to the broker for it."""

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
        """What happens to a response, as was decided at its request."""
        return self.condemned.pop(_RESPONSE.unpack_from(frame)[1], None)
