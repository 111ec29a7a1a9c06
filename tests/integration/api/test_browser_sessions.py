"""Logging in and out, read-only servers, and what a hostile sender may try, on a running server."""

import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tarry.api.access.tokens import TokenFile
from tarry.testing import LiveService
from tests.support.api import Api, config_beside, make_token
from tests.support.brokers import wait_until


def test_a_session_begins_with_a_token_and_ends_with_it(service: LiveService, tmp_path: Path) -> None:
    path, keys = tmp_path / "tokens.json", tmp_path / "keys"
    token = make_token(path, "ann", "look")
    keys.write_text("k" * 40, encoding="ascii")
    config = config_beside(service, 2, tokens=str(path), session_keys=str(keys))
    with Api(config, tmp_path, "one") as one, Api(config, tmp_path, "two") as two, one.client() as client:
        page = client.get("/waiting", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/waiting")
        form = client.get("/login").text
        assert "<script" not in form
        assert 'href="/static/console.css"' in form
        assert client.get("/static/console.css").status_code == 200
        refused = client.post("/login", data={"token": "tarry_wrong", "next": "/waiting"})
        assert (refused.status_code, refused.headers.get("set-cookie")) == (401, None)
        cross = {"Origin": "http://evil.example"}
        assert client.post("/login", data={"token": token}, headers=cross).status_code == 403
        for next_, to in (("/waiting", "/waiting"), ("//evil.example", "/"), ("https://evil.example", "/")):
            begun = client.post("/login", data={"token": token, "next": next_})
            assert (begun.status_code, begun.headers["location"]) == (303, to)
        cookie = begun.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert token not in cookie
        assert client.get("/v1/targets").status_code == 200
        shown = client.get("/audit", headers={"Accept": "text/html"}).text
        assert 'You are <span class="of-user">ann</span>' in shown
        assert 'method="post" action="/logout"' in shown
        for path_, accept, is_page in (
            ("/x/y", "text/html", True),
            ("/x", "*/*", False),
            ("/v1/x", "text/html", False),
        ):
            unknown = client.get(path_, headers={"Accept": accept})
            assert unknown.status_code == 404
            assert ("There is no such page." in unknown.text) == is_page
            assert unknown.headers["content-type"].startswith("text/html" if is_page else "application/problem+json")
        # Another replica knows the session, and what it may not do is refused.
        jar = dict(client.cookies)
        with two.client(cookies=jar) as other:
            assert other.get("/v1/targets").status_code == 200
            assert other.post("/v1/messages", json={"target": "a", "delay": "1s"}).status_code == 403
            TokenFile(path).revoke("ann")
            wait_until(lambda: other.get("/v1/targets").status_code == 401, "the end of the session", 10)
        assert client.post("/logout").status_code == 303
        assert not dict(client.cookies)


def test_whoever_may_not_look_can_log_out_and_use_another_token(service: LiveService, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = make_token(path, "sender", "send")
    with Api(config_beside(service, 2, tokens=str(path)), tmp_path, "one") as api, api.client() as client:
        assert client.post("/login", data={"token": token}).status_code == 303
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 403
        assert "sender has no scope look" in page.text
        assert "log out below and use another one" in page.text
        assert 'action="/logout"' in page.text


def test_behind_a_proxy_with_tls_and_a_prefix_cookies_are_secure_and_links_keep_the_prefix(
    service: LiveService, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    token = make_token(path, "ann", "look")
    settings = {"tokens": str(path), "prefix": "/delays", "hosts": ["tarry.example"]}
    said_by_the_proxy = {"Host": "tarry.example", "X-Forwarded-Proto": "https", "Accept": "text/html"}
    with (
        Api(config_beside(service, 2, **settings, proxies=["127.0.0.1"]), tmp_path, "one") as api,
        api.client() as client,
    ):
        client.headers.update(said_by_the_proxy)
        page = client.get("/delays/waiting")
        assert (page.status_code, page.headers["location"]) == (303, "/delays/login?next=/waiting")
        form = {"token": token, "next": "/waiting"}
        # The browser says where the form was: with the proxy's scheme and name.
        begun = client.post("/delays/login", data=form, headers={"Origin": "https://tarry.example"})
        assert (begun.status_code, begun.headers["location"]) == (303, "/delays/waiting")
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith("__Host-tarry=")
        assert {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= set(cookie.split("; "))
        assert client.post("/delays/login", data=form, headers={"Origin": "http://tarry.example"}).status_code == 403
        name, _, value = cookie.partition(";")[0].partition("=")
        session = {"Cookie": f"{name}={value}"}
        shown = client.get("/delays/targets", headers=session)
        assert shown.status_code == 200
        links = re.findall(r'(?:href|src|action)="([^"#]*)"', shown.text)
        assert links
        assert [one for one in links if not one.startswith(("/delays/", "https://"))] == []
        # A proxy may pass the path on without the prefix. A cookie of the other kind does not count.
        assert client.get("/targets", headers=session).status_code == 200
        assert client.get("/delays/v1/targets", headers={"Cookie": f"tarry={value}"}).status_code == 401
    with Api(config_beside(service, 2, **settings), tmp_path, "two") as api, api.client() as client:
        begun = client.post("/delays/login", data=form, headers=said_by_the_proxy)
        assert begun.headers["set-cookie"].startswith("tarry="), "somebody who is no proxy was believed"


def test_a_server_that_is_read_only_changes_nothing(service: LiveService, orders: str, tmp_path: Path) -> None:
    with Api(config_beside(service, 2, read_only=True), tmp_path) as api, api.client() as client:
        answer = client.post("/v1/messages", json={"target": orders, "delay": "1s"})
        assert (answer.status_code, answer.json()["code"]) == (403, "read-only")
        assert client.put(f"/v1/targets/{orders}/pause", json={"reason": "r"}).status_code == 403
        assert client.get("/v1/intakes").status_code == 200


def raw(api: Api, text: bytes) -> bytes:
    """What a connection answers to bytes, until it is closed or answers with a whole head."""
    url = urlsplit(api.url)
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=30) as connection:
        with suppress(ConnectionError):  # refused before all of it was sent
            connection.sendall(text)
        received = b""
        while b"\r\n\r\n" not in received:
            try:
                part = connection.recv(65_536)
            except ConnectionError:
                break
            if not part:
                break
            received += part
        return received


JSON = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000, b"400"),
        (b"GET /v1/intakes HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
        (b"GET /v1/intakes HTTP/1.1\r\n\r\n", b"421"),
        (b"NONSENSE\r\n\r\n", b"400"),
        (
            JSON + b"99999999\r\n\r\n",
            b"413",
        ),
        (
            JSON + b"5\r\n\r\n[[[[[",
            b"422",
        ),
        (b"GET /v1/messages/%00%0a HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
    ],
)
def test_hostile_bytes_are_refused_and_the_server_goes_on(
    api: Api, http: httpx.Client, text: bytes, status: bytes
) -> None:
    assert raw(api, text).startswith(b"HTTP/1.1 " + status)
    assert http.get("/livez").status_code == 200


def test_deep_and_odd_json_is_refused(http: httpx.Client) -> None:
    for text in (
        b"[" * 100_000,
        b'{"target": "a", "delay": "1s", "value": "\\ud800"}',
        b"\xff",
        b"null",
        b'{"target": NaN}',
    ):
        answer = http.post("/v1/messages", content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code in {400, 422}, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
