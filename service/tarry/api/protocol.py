"""HTTP/1.1 by uvicorn and httptools, with bounds on the head of a request: its size, and the time that it may take.

httptools has none of its own, so one connection could send a header without end, or one byte a minute.
"""

import asyncio
import json
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tarry.api.problems import MEDIA_TYPE, ProblemError

HEAD_BYTES: Final = 65_536
HEAD_WITHIN_S: Final = 10.0


class BoundedProtocol(HttpToolsProtocol):
    """A connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_in_head = False
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the time of the first head."""
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head."""
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        """Begin the time of a head."""
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        """End the time of a head."""
        self._end()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, by a problem as all errors, and close the connection."""
        body = json.dumps(ProblemError(HTTPStatus.BAD_REQUEST, msg).body()).encode()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
        self.transport.close()

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
