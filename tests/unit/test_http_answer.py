"""Requests, and what is answered."""

from http import HTTPStatus

import pytest

from tarry.service.http import Response
from tarry.service.http.answer import HEAD_LIMIT_BYTES, answer_to

PAGES = {"/livez": lambda: Response(b"ok\n"), "/readyz": lambda: Response(b"no\n", HTTPStatus.SERVICE_UNAVAILABLE)}


def answer(head: bytes) -> bytes:
    found = answer_to(head, PAGES)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /livez HTTP/1.1", b"200 OK", b"ok\n"),
        (b"GET /livez?verbose=1 HTTP/1.0", b"200 OK", b"ok\n"),
        (b"GET /readyz HTTP/1.1", b"503 Service Unavailable", b"no\n"),
        (b"GET / HTTP/1.1", b"404 Not Found", b"Not Found\n"),
        (b"GET /livez/../etc HTTP/1.1", b"404 Not Found", b"Not Found\n"),
        (b"POST /livez HTTP/1.1", b"405 Method Not Allowed", b"Method Not Allowed\n"),
        (b"GET /livez", b"400 Bad Request", b"Bad Request\n"),
        (b"GET  /livez HTTP/1.1", b"400 Bad Request", b"Bad Request\n"),
        (b"GET /livez HTTP/2", b"400 Bad Request", b"Bad Request\n"),
        (b"\xff\x00", b"400 Bad Request", b"Bad Request\n"),
        (b"", b"400 Bad Request", b"Bad Request\n"),
    ],
)
def test_a_request_has_its_answer(request_line: bytes, status: bytes, body: bytes) -> None:
    head, _, found = answer(request_line + b"\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert head.endswith(b"\r\nConnection: close")
    assert found == body


def test_head_has_the_length_and_no_body() -> None:
    head, _, body = answer(b"HEAD /livez HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert b"\r\nContent-Length: 3\r\n" in head
    assert body == b""


def test_a_refused_method_is_told_which_are_not() -> None:
    assert b"\r\nAllow: GET, HEAD\r\n" in answer(b"DELETE /livez HTTP/1.1\r\n\r\n")


def test_half_a_head_is_waited_for() -> None:
    assert answer_to(b"", PAGES) is None
    assert answer_to(b"GET /livez HTTP/1.1\r\nHost: x\r\n", PAGES) is None


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_head_that_is_too_long_is_refused_whether_it_ends_or_not(end: bytes) -> None:
    head = b"GET /livez HTTP/1.1\r\nX: ".ljust(HEAD_LIMIT_BYTES + 1, b"x") + end
    assert answer(head).startswith(b"HTTP/1.1 431 ")
