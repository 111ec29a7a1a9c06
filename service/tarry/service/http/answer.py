"""HTTP responses to probes and scrapes. Pure.

The server knows GET and HEAD of a fixed set of paths. Each connection gets one response and is closed. Only the first
line of a request is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

HEAD_LIMIT_BYTES = 8_192
"""The longest head of a request that is accepted. Probes and scrapers send less."""

TEXT = "text/plain; charset=utf-8"
"""The content type of a plain text."""

_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Response:
    """The response of a page."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


Page = Callable[[], Response]


def answer_to(received: bytes, pages: Mapping[str, Page]) -> bytes | None:
    """Return the response to a request.

    Args:
        received: the bytes of the request so far.
        pages: the pages by path.

    Returns:
        The whole response; None if the head of the request is not complete.
    """
    if _END not in received:
        if len(received) < HEAD_LIMIT_BYTES:
            return None
        return _bytes(_line(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
    if received.index(_END) > HEAD_LIMIT_BYTES:
        return _bytes(_line(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
    words = received.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _bytes(_line(HTTPStatus.BAD_REQUEST))
    method, target, _version = words
    if method not in ("GET", "HEAD"):
        return _bytes(_line(HTTPStatus.METHOD_NOT_ALLOWED), "Allow: GET, HEAD\r\n")
    page = pages.get(target.partition("?")[0])
    return _bytes(page() if page else _line(HTTPStatus.NOT_FOUND), with_body=method == "GET")


def _line(status: HTTPStatus) -> Response:
    return Response(f"{status.phrase}\n".encode(), status)


def _bytes(answer: Response, more: str = "", *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"{more}Connection: close\r\n\r\n"
    ).encode("latin-1")
    return head + answer.body if with_body else head
