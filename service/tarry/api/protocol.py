"""HTTP/1.1 by uvicorn and httptools, with bounds on what a connection may hold, and for how long.

They have no bounds of their own on the head of a request: a connection could send a header without end, or one byte a
minute. Nor do they end a connection that sends a part of a body after its answer, or that never reads its answer: its
request would be under way for ever.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tarry.api.problems import MEDIA_TYPE, ProblemError

HEAD_BYTES: Final = 65_536
HEAD_WITHIN_S: Final = 10.0

REST_WITHIN_S: Final = 15.0
"""How long a connection may send what nobody reads: the rest of a body after the answer, or empty lines."""

READ_WITHIN_S: Final = 30.0
READ_BYTES: Final = 16_384
"""How much of an answer must be read in that time, once the sockets hold no more."""

READ_LATE: Final = "is_read_late"
"""In the state of a request: its answer need not be read until all of its body has come."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the time of the first head."""
        super().connection_made(transport)
        # So that each byte that its reader does not take is known.
        transport.set_write_buffer_limits(high=0)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._end()
        self._end_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head; bound the time of what belongs to nothing."""
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse()
        elif self._head_timer is None and self.cycle is not None and self.cycle.response_complete:
            # uvicorn has ended the time after which it would have closed an idle connection.
            self._head_timer = asyncio.get_running_loop().call_later(REST_WITHIN_S, self.transport.close)

    def on_message_begin(self) -> None:
        """Begin the time of a head."""
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        """End the time of a head."""
        self._end()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Begin the time in which what was written must be read."""
        super().pause_writing()
        self._begin_reading()

    def resume_writing(self) -> None:
        """End that time: all of it was read."""
        self._end_reading()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, by a problem as all errors, and close the connection."""
        body = json.dumps(ProblemError(HTTPStatus.BAD_REQUEST, msg).body()).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _begin_reading(self) -> None:
        size = self.transport.get_write_buffer_size()
        self._read_timer = asyncio.get_running_loop().call_later(READ_WITHIN_S, self._look_at_reading, size)

    def _end_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _look_at_reading(self, size: int) -> None:
        is_sending = not self.pipeline and self.cycle.more_body and READ_LATE in self.cycle.scope["state"]
        if is_sending or self.transport.get_write_buffer_size() <= size - READ_BYTES:
            self._begin_reading()
        else:
            self.transport.abort()

    def _begin(self) -> None:
        self._end()
        self._is_in_head, self._head_bytes = True, 0
        self._head_timer = asyncio.get_running_loop().call_later(HEAD_WITHIN_S, self._refuse)

    def _end(self) -> None:
        self._is_in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self) -> None:
        self._end()
        if not self.transport.is_closing():
            self.send_400_response("The head of the request is too large or took too long.")
