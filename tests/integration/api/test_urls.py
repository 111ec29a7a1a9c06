"""URLs whose bytes are no text, on real connections."""

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tarry.config import Api
from tests.support.layers import Line, layered


async def handler(scope: Scope, receive: Receive, send: Send) -> None:
    """Say what the URL holds."""
    request = Request(scope, receive)
    await JSONResponse({"path": scope["path"], "query": dict(request.query_params)})(scope, receive, send)


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (b"/v1/timers?key=%C3%BC+%E2%82%AC&name=a", 200),
        (b"/v1/timers?key=50%&name=%zz", 200),
        (b"/v1/timers?key=%ff", 400),
        (b"/v1/timers?key=%C3", 400),
        (b"/v1/timers?key=%ED%A0%80", 400),  # half of a surrogate pair
        (b"/v1/timers?%ff=a", 400),
        (b"/v1/timers?key=\xff", 400),
        # Text, but not in the form in which a URL holds it: it would be read byte by byte.
        ("/v1/timers?key=ü".encode(), 400),
        (b"/v1/messages/1.in.0.1.%C3%BC", 200),
        (b"/v1/messages/1.in.0.1.%ff", 400),
        (b"/v1/messages/1.in.0.1.\xff", 400),
    ],
)
def test_a_url_that_is_no_text_is_refused(url: bytes, status: int) -> None:
    with layered(handler, Api()) as port, Line(port) as line:
        line.send(b"GET " + url + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found, _, body = line.answer()
        assert found == status, body
        assert body.get("code", "bad-request") == "bad-request"
        assert "\ufffd" not in str(body)
