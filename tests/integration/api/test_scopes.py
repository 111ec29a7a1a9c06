"""Who may do what: each endpoint with each scope, on a real service. The table is the test."""

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from tarry.testing import LiveService
from tests.support.api import JSON, NDJSON, Api, config_beside, make_token
from tests.support.freezing import frozen

SCOPES: Final = ("send", "look", "look-keys", "look-values", "act")
TIMER: Final = {"key": "k", "name": "theirs"}

# What somebody with one scope for the target gets; the last column is somebody with that scope for another target.
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "send": ("send", "act"),
    "batch": ("send", "act"),
    "status": SCOPES,
    "cancel": ("send", "act"),
    "move": ("send", "act"),
    "deliver-now": ("send", "act"),
    "timer": SCOPES,
    "set-timer": ("send", "act"),
    "cancel-timer": ("send", "act"),
    "events": SCOPES,
    "dead:redrive": ("act",),
    "dead:dismiss": ("act",),
    "pending:cancel": ("act",),
    "pending:move": ("act",),
    "operations": ("look", "look-keys", "look-values", "act"),
    "audit": ("look", "look-keys", "look-values", "act"),
}
BULK: Final = ("dead:redrive", "dead:dismiss", "pending:cancel", "pending:move")
LISTS: Final = (*BULK, "operations", "audit")
"""Whoever has the scope for another target may ask, and nothing of this one is found."""


@dataclass(frozen=True)
class Place:
    """An API with a token for each scope, and the service beside it."""

    api: Api
    service: LiveService
    target: str
    tokens: Mapping[str, str]

    def client(self, name: str | None) -> httpx.Client:
        headers = {} if name is None else {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx.Client(base_url=self.api.url, headers=headers, timeout=30, trust_env=False)


@pytest.fixture(scope="module")
def place(service: LiveService, orders: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("api")
    path = directory / "tokens.json"
    tokens = {"all": make_token(path, "all", *SCOPES)}
    for scope in SCOPES:
        tokens[scope] = make_token(path, scope, f"{scope}:{orders}")
        tokens[f"{scope} elsewhere"] = make_token(path, f"{scope}.elsewhere", f"{scope}:{service.name}.elsewhere")
    with Api(config_beside(service, 2, tokens=str(path)), directory) as api:
        yield Place(api, service, orders, tokens)


@pytest.fixture(scope="module")
def waiting(place: Place) -> dict[str, Any]:
    """A message and a timer that wait throughout."""
    with place.client("all") as client:
        body = {"target": place.target, "value": "secret value", "delay": "50m", "headers": {"h": "secret header"}}
        timer = client.put("/v1/timers", params=TIMER, json={**body, "if": "absent"})
        assert timer.status_code == 200, timer.text
        return dict(client.post("/v1/messages", json={**body, "key": "secret key"}).json())


def ask(  # noqa: PLR0911 - one for each endpoint
    client: httpx.Client, endpoint: str, target: str, waiting: dict[str, Any]
) -> httpx.Response:
    """Ask for something that would change nothing that other cases need."""
    body = {"target": target, "value": "v", "delay": "50m"}
    status = waiting["status_url"]
    match endpoint:
        case "send":
            return client.post("/v1/messages", json=body)
        case "batch":
            return client.post(
                "/v1/messages:batch", content=b'{"target": "%s", "delay": "50m"}\n' % target.encode(), headers=NDJSON
            )
        case "status":
            return client.get(status)
        case "cancel" | "move" | "deliver-now":
            with_all = httpx.Client(
                base_url=client.base_url, headers={"Authorization": waiting["all"]}, trust_env=False
            )
            with with_all:
                own = with_all.post("/v1/messages", json=body).json()["status_url"]
            if endpoint == "cancel":
                return client.delete(own)
            ending = ":move" if endpoint == "move" else ":deliver-now"
            return client.post(own + ending, json={"delay": "40s"} if endpoint == "move" else None)
        case "timer":
            return client.get("/v1/timers", params=TIMER)
        case "set-timer":
            return client.put("/v1/timers", params=TIMER, json={**body, "if": "absent"})
        case "cancel-timer":
            with_all = httpx.Client(
                base_url=client.base_url, headers={"Authorization": waiting["all"]}, trust_env=False
            )
            own_timer = {"key": "k", "name": "to-cancel"}
            with with_all:
                set_ = with_all.put("/v1/timers", params=own_timer, json={**body, "if": "absent"})
                assert set_.status_code in {200, 412}, set_.text
            return client.delete("/v1/timers", params=own_timer)
        case "dead:redrive" | "dead:dismiss" | "pending:cancel" | "pending:move":
            by = {"by": "1m"} if endpoint == "pending:move" else {}
            return client.post(f"/v1/{endpoint}", json={"target": target, **by})
        case "operations" | "audit":
            return client.get(f"/v1/{endpoint}")
        case "events":
            with client.stream("GET", "/v1/events", params={"target": target}) as answer:
                if answer.status_code != 200:
                    answer.read()
                return answer
    raise AssertionError(endpoint)


@pytest.mark.parametrize("endpoint", ALLOWED)
@pytest.mark.parametrize("scope", SCOPES)
def test_each_endpoint_needs_its_scope_for_the_target(
    place: Place, waiting: dict[str, Any], endpoint: str, scope: str
) -> None:
    known = {**waiting, "all": f"Bearer {place.tokens['all']}"}
    with place.client(scope) as client:
        answer = ask(client, endpoint, place.target, known)
    if scope in ALLOWED[endpoint]:
        # 412: the name is taken, which only somebody who may send is told.
        assert answer.status_code in {200, 202, 412}, (answer.status_code, answer.text)
    elif endpoint == "batch" and answer.status_code == 200:
        assert '"code":"forbidden"' in answer.text
    else:
        assert answer.status_code == 403, (answer.status_code, answer.text)
        assert answer.json()["code"] == "forbidden"
    with place.client(f"{scope} elsewhere") as client:
        answer = ask(client, endpoint, place.target, known)
    if endpoint in LISTS and scope in ALLOWED[endpoint]:
        assert answer.status_code == 200, answer.text
        assert place.target not in answer.text
        assert answer.json().get("count", 0) == 0
    elif endpoint == "batch" and answer.status_code == 200:
        assert '"code":"forbidden"' in answer.text
        assert '"accepted":0' in answer.text
    else:
        assert answer.status_code == 403, (answer.status_code, answer.text)


@pytest.mark.parametrize("endpoint", ALLOWED)
def test_nothing_is_answered_without_a_token(place: Place, waiting: dict[str, Any], endpoint: str) -> None:
    known = {**waiting, "all": f"Bearer {place.tokens['all']}"}
    with place.client(None) as client:
        if endpoint in {"cancel", "move", "deliver-now"}:
            ending = "" if endpoint == "cancel" else f":{endpoint}"
            method = "DELETE" if endpoint == "cancel" else "POST"
            body = b'{"delay": "1s"}' if endpoint == "move" else None
            headers = JSON if body else None
            answer = client.request(method, waiting["status_url"] + ending, content=body, headers=headers)
        else:
            answer = ask(client, endpoint, place.target, known)
    assert answer.status_code == 401, answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_keys_names_headers_and_values_are_left_out_without_their_scopes(place: Place, waiting: dict[str, Any]) -> None:
    shown = {}
    for scope in SCOPES:
        with place.client(scope) as client:
            shown[scope] = client.get(waiting["status_url"]).text
    assert {scope for scope, text in shown.items() if "secret key" in text} == {"look-keys"}
    assert {scope for scope, text in shown.items() if "secret value" in text} == {"look-values"}
    assert {scope for scope, text in shown.items() if "secret header" in text} == {"look-values"}


def test_a_name_of_others_is_not_replaced_by_sending_elsewhere(
    place: Place, waiting: dict[str, Any], service: LiveService
) -> None:
    with place.client("send elsewhere") as client:
        body = {"target": f"{service.name}.elsewhere", "delay": "50m"}
        answer = client.post("/v1/messages", json={**body, **TIMER})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text
        answer = client.put("/v1/timers", params=TIMER, json=body)
        assert answer.status_code == 403
    with place.client("all") as client:
        assert client.get("/v1/timers", params=TIMER).json()["target"] == place.target


def test_no_header_of_a_message_cancels_or_purges_those_of_others(
    place: Place, waiting: dict[str, Any], service: LiveService
) -> None:
    elsewhere = f"{service.name}.elsewhere"
    # The client library writes a name up to its first NUL.
    smuggled = {"tarry-cancel\0zz": waiting["handle"], "tarry-purge\0": place.target, "tarry-name\0": "theirs"}
    with place.client("send elsewhere") as client:
        for name, value in smuggled.items():
            body = {"target": elsewhere, "delay": "50m", "headers": {name: value}}
            as_bytes = {name: base64.b64encode(value.encode()).decode()}
            for one in (body, body | {"headers": {}, "headers_base64": as_bytes}):
                answer = client.post("/v1/messages", json=one)
                assert (answer.status_code, answer.json()["code"]) == (422, "bad-request"), answer.text
                assert "NUL" in answer.json()["detail"]
                answer = client.put("/v1/timers", params={"key": "k", "name": "own"}, json=one)
                assert (answer.status_code, answer.json()["code"]) == (422, "bad-request"), answer.text
                line = json.dumps(one).encode() + b"\n"
                assert '"accepted":0' in client.post("/v1/messages:batch", content=line, headers=NDJSON).text


def frozen_service(place: Place) -> AbstractContextManager[None]:
    return frozen(place.service.process, place.service.bootstrap_servers, place.service.intake)


def test_a_name_of_others_is_neither_replaced_nor_cancelled_before_the_service_has_read_it(place: Place) -> None:
    timer = {"key": "unread", "name": "unread"}
    with frozen_service(place):
        with place.client("all") as client:
            sent = client.post("/v1/messages", json={**timer, "target": place.target, "delay": "50m"})
            assert sent.status_code == 202, sent.text
        with place.client("send elsewhere") as client:
            body = {"target": f"{place.service.name}.elsewhere", "delay": "50m"}
            replaced = client.post("/v1/messages", json={**timer, **body})
            cancelled = client.delete("/v1/timers", params={**timer, "wait": "1s"})
        assert (replaced.status_code, cancelled.status_code) == (403, 403), (replaced.text, cancelled.text)
        with place.client("send") as client:
            assert client.delete("/v1/timers", params={**timer, "wait": "1s"}).status_code == 202


def test_a_named_message_is_not_moved_over_a_newer_one_that_the_service_has_not_read(place: Place) -> None:
    timer, body = {"key": "moved", "name": "moved"}, {"target": place.target, "delay": "50m"}
    with place.client("all") as client:
        first = client.put("/v1/timers", params=timer, json={**body, "if": "absent"}).json()
        with frozen_service(place):
            assert client.put("/v1/timers", params=timer, json=body).status_code == 202
            moved = client.post(f"{first['status_url']}:move", json={"delay": "40m"})
            assert moved.status_code == 409, moved.text


@pytest.mark.parametrize("scope", ["look", "look-keys", "look-values"])
def test_whoever_may_only_look_sends_no_cancel_even_if_nothing_waits_and_is_not_in_the_audit_log(
    place: Place, scope: str
) -> None:
    timer = {"key": scope, "name": "nothing-waits"}
    with place.client(scope) as client:
        assert client.delete("/v1/timers", params={**timer, "wait": "20s"}).status_code == 403
        body = {"target": place.target, "delay": "50m"}
        assert client.put("/v1/timers", params=timer, json=body).status_code == 403
    assert not [one for one in place.api.process.events("audit") if one["principal"] == scope]


def test_acts_are_in_the_audit_log_and_nobodys_secrets_are_in_any_log(place: Place, waiting: dict[str, Any]) -> None:
    with place.client("act") as client:
        client.delete("/v1/timers", params={"key": "secret key", "name": "secret name"})
    audits = place.api.process.events("audit")
    assert {"act": "cancel-timer", "principal": "act"}.items() <= audits[-1].items()
    text = str(place.api.process.events())
    assert "secret" not in text
    assert not any(token in text for token in place.tokens.values())
