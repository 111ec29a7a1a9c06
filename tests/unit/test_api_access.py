"""Who may do what with the HTTP API: tokens, sessions, rates, hosts and origins; without a broker."""

import asyncio
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Send
from starlette.types import Scope as Connection

from tarry.api.access.gate import Gate, cookie_of
from tarry.api.access.load import Load
from tarry.api.access.principal import ANYBODY, Principal, Scope, parsed_grants
from tarry.api.access.protection import Protection
from tarry.api.access.rates import Rates
from tarry.api.access.request_log import printable
from tarry.api.access.sessions import IDLE_MS, LONGEST_MS, SKEW_MS, Sessions, read_keys
from tarry.api.access.tokens import PREFIX, KnownTokens, TokenFile, parsed
from tarry.api.access.watched import LOOK_EVERY_MS
from tarry.api.metrics import ApiMetrics
from tarry.api.problems import ProblemError
from tarry.config import Api
from tarry.errors import ConfigError, UsageError
from tarry.testing import ManualClock

NOW_MS = 1_767_225_600_000
DAY_MS = 86_400_000


def clock() -> ManualClock:
    return ManualClock(NOW_MS)


def quiet(_event: str, **_fields: object) -> None:
    """Take no notes."""


def test_a_scope_holds_for_the_targets_of_its_globs_and_act_includes_send_and_look() -> None:
    one = Principal("one", parsed_grants(["send:orders.*,bills", "look-keys:orders.1"]))
    assert [one.may(Scope.SEND, target) for target in ("orders.1", "bills", "bill", "Orders.1")] == [
        True,
        True,
        False,
        False,
    ]
    assert one.may(Scope.LOOK, "orders.1")
    assert not one.may(Scope.LOOK, "orders.2")
    assert not one.has_for_all(Scope.SEND)
    other = Principal("other", parsed_grants(["act"]))
    assert other.has_for_all(Scope.SEND)
    assert other.has_for_all(Scope.LOOK)
    assert not other.has(Scope.LOOK_KEYS)
    for wrong in ("sends", "send:", "send:a,,b"):
        with pytest.raises(ValueError, match="send"):
            parsed_grants([wrong])


def test_the_file_holds_no_token_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = TokenFile(path).create("billing", ("send:orders.*",), NOW_MS, None)
    assert token.startswith(PREFIX)
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in TokenFile(path).tokens()] == ["billing"]
    with pytest.raises(UsageError, match="already"):
        TokenFile(path).create("billing", ("send",), NOW_MS, None)
    with pytest.raises(UsageError, match="scopes are"):
        TokenFile(path).create("other", ("everything",), NOW_MS, None)
    with pytest.raises(UsageError, match="not a name"):
        TokenFile(path).create("oidc:somebody", ("send",), NOW_MS, None)
    with pytest.raises(UsageError, match="no token"):
        TokenFile(path).revoke("other")


def test_a_token_ends_when_it_expires_or_is_revoked_without_a_restart(tmp_path: Path) -> None:
    path, now = tmp_path / "tokens.json", clock()
    file = TokenFile(path)
    short, long = (file.create(name, ("send",), NOW_MS, NOW_MS + days * DAY_MS) for name, days in (("a", 1), ("b", 2)))
    known = KnownTokens(path, now, quiet)
    assert known.of(short) is not None
    assert known.of(short + "x") is None
    now.advance(DAY_MS)
    assert known.of(short) is None
    found = known.of(long)
    assert found is not None
    assert found.name == "b"
    file.revoke("b")
    now.advance(LOOK_EVERY_MS)
    assert known.of(long) is None
    third = file.create("c", ("look",), now.now_ms(), None)
    now.advance(LOOK_EVERY_MS)
    assert known.of(third) is not None
    path.write_text("{", encoding="utf-8")
    now.advance(LOOK_EVERY_MS)
    assert known.of(third) is not None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"v": 2, "tokens": []}', '{"v": 1, "tokens": [{}]}', '{"v": 1, "tokens": [1]}']
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tokens\.json") as raised:
        KnownTokens(path, clock(), quiet)
    assert "\n" not in str(raised.value)


def test_a_session_ends_after_half_an_hour_without_a_request_and_after_twelve() -> None:
    now = clock()
    sessions = Sessions(lambda: ("k" * 32,), now)
    cookie = sessions.begin("token", "hash")
    now.advance(IDLE_MS - 1)
    found = sessions.read(cookie)
    assert found is not None
    renewed = sessions.renewed(found)
    assert renewed is not None
    now.advance(IDLE_MS - 1)
    assert sessions.read(cookie) is None
    assert sessions.read(renewed) is not None
    now.advance(LONGEST_MS - 2 * IDLE_MS)
    assert sessions.read(renewed) is None
    for wrong in ("", "a.b", cookie[:-1], cookie + "x"):
        assert sessions.read(wrong) is None


def test_the_keys_of_sessions_are_rotated(tmp_path: Path) -> None:
    now, (old, new) = clock(), ("o" * 32, "n" * 32)
    cookie = Sessions(lambda: (old,), now).begin("token", "hash")
    assert Sessions(lambda: (new, old), now).read(cookie) is not None
    assert Sessions(lambda: (new,), now).read(cookie) is None
    fresh = Sessions(lambda: (new, old), now).begin("token", "hash")
    assert Sessions(lambda: (new,), now).read(fresh) is not None
    path = tmp_path / "keys"
    path.write_text(f"{new}\n\n{old}\n", encoding="ascii")
    assert read_keys(path) == (new, old)
    path.write_text("short\n", encoding="ascii")
    with pytest.raises(ConfigError, match="32 characters"):
        read_keys(path)


def test_what_was_sealed_for_one_purpose_is_worth_nothing_for_another_and_not_for_long() -> None:
    now = clock()
    sessions = Sessions(lambda: ("k" * 32,), now)
    sealed = sessions.seal("login", ["a"])
    assert sessions.unseal("login", sealed, 1_000) == ["a"]
    assert sessions.unseal("other", sealed, 1_000) is None
    assert sessions.read(sealed) is None
    now.advance(1_000 + SKEW_MS)
    assert sessions.unseal("login", sealed, 1_000) is None


@pytest.mark.parametrize(
    ("age_ms", "holds"),
    [(-SKEW_MS - 1, False), (-SKEW_MS, True), (IDLE_MS + SKEW_MS - 1, True), (IDLE_MS + SKEW_MS, False)],
)
def test_the_clocks_of_replicas_may_differ_by_a_minute(age_ms: int, holds: bool) -> None:
    here, there = (Sessions(lambda: ("k" * 32,), ManualClock(now_ms)) for now_ms in (NOW_MS, NOW_MS + age_ms))
    assert (there.read(here.begin("token", "hash")) is not None) == holds
    assert (there.unseal("login", here.seal("login", ["a"]), IDLE_MS) == ["a"]) == holds


@pytest.mark.parametrize(
    "line",
    [
        'other={"a": 1}; tarry=ours',
        "a b=c; tarry=ours; last=x",
        "weird@=1; tarry=ours",
        'open="a; tarry=ours',
        "latin=\xe9; tarry=ours",
        "tarry=ours",
    ],
)
def test_a_session_is_found_beside_cookies_of_other_programs_on_the_host(line: str) -> None:
    headers = Headers(raw=[(b"cookie", line.encode("latin-1"))])
    assert cookie_of(headers, "tarry") == "ours"
    assert cookie_of(headers, "tarry-login") is None


def test_without_tokens_it_listens_on_the_loopback_only(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert Gate(Api(host=host), clock(), quiet).nobody() is not None
    with pytest.raises(ConfigError, match="anybody could send"):
        Gate(Api(host="0.0.0.0"), clock(), quiet)  # noqa: S104 - that it is refused is the point
    path = tmp_path / "tokens.json"
    TokenFile(path).create("a", ("send",), NOW_MS, None)
    assert Gate(Api(host="0.0.0.0", tokens=str(path)), clock(), quiet).nobody() is None  # noqa: S104


def test_each_has_a_rate_of_its_own() -> None:
    now = clock()
    rates = Rates(10, now)
    assert [rates.take("a") for _ in range(20)] == [0.0] * 20
    assert rates.take("a") == pytest.approx(0.1)
    assert rates.take("b") == 0.0
    now.advance(100)
    assert rates.take("a") == 0.0
    assert rates.take("a") > 0


def test_control_characters_do_not_reach_the_log() -> None:
    shown = printable('a\n{"event": "forged"}\x1b[31m\u202e')
    assert shown.isascii()
    assert shown.isprintable()
    assert "\n" not in shown


def answered(headers: Mapping[str, str], *, body: bytes = b"", path: str = "/v1/messages", **scope: Any) -> int:
    """The status that the protection answers with; 200 if the request passes."""

    async def app(_scope: Connection, receive: Receive, _send: Send) -> None:
        await receive()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_message: Message) -> None:
        raise AssertionError("the app answers nothing")

    whole = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "state": {"principal": ANYBODY},
        **scope,
    }
    settings = Api(hosts=("tarry.example.com",), max_body="1KiB")
    try:
        asyncio.run(Protection(Load(app, settings, ApiMetrics()), settings)(whole, receive, send))
    except ProblemError as problem:
        return int(problem.status)
    return 200


HERE = {"Host": "127.0.0.1:8090", "Content-Type": "application/json", "Content-Length": "2"}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"Host": "tarry.example.com"}, 200),
        ({"Host": "TARRY.example.com:443"}, 200),
        ({"Host": "[::1]:8090"}, 200),
        # Another site's name that leads here (DNS rebinding).
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example@127.0.0.1"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "127.0.0.1:8090:1"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://127.0.0.1:8090"}, 200),
        ({"Origin": "https://127.0.0.1:8090"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        # What a form, or a page without CORS, can send.
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Length": "1025"}, 413),
        ({f"X-{n}": "x" for n in range(70)}, 431),
        ({"X": "x" * 40_000}, 431),
    ],
)
def test_what_a_page_of_another_site_could_send_is_refused(change: dict[str, str], status: int) -> None:
    assert answered({**HERE, **change}, body=b"{}") == status


def test_a_body_without_a_length_is_bounded_too() -> None:
    chunked = {name: value for name, value in HERE.items() if name != "Content-Length"} | {
        "Transfer-Encoding": "chunked"
    }
    assert answered(chunked, body=b"x" * 1_025) == 413
    assert answered(chunked, body=json.dumps({}).encode()) == 200


def test_forms_are_for_pages_only() -> None:
    form = {**HERE, "Content-Type": "application/x-www-form-urlencoded"}
    assert answered(form, path="/login") == 200
    assert answered(form, path="/v1/messages") == 415


def test_probes_may_be_asked_by_address() -> None:
    assert answered({"Host": "10.0.0.7:8090"}, path="/readyz", method="GET") == 200
    assert answered({"Host": "10.0.0.7:8090"}, path="/v1/messages/x", method="GET") == 421


def test_a_file_of_tokens_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokens\.json: there is no such file: `tarry api token create` makes it"):
        parsed(tmp_path / "tokens.json")
