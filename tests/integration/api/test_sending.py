"""`POST /v1/messages` on a real broker and a real service."""

import base64
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tarry.testing import LiveService
from tests.support.brokers import wait_until
from tests.support.topics import read_topic


def rfc3339(seconds: float) -> str:
    """A time from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def arrived(service: LiveService, topic: str, id_: str) -> list[Any]:
    return [
        one
        for one in read_topic(service.bootstrap_servers, topic)
        if dict(one.headers() or [])["tarry-id"] == id_.encode()
    ]


def test_a_message_is_accepted_and_arrives_as_it_was_sent(
    http: httpx.Client, service: LiveService, orders: str
) -> None:
    body = {
        "target": orders,
        "key_base64": base64.b64encode(b"\x00\xff/ key").decode(),
        "value_base64": base64.b64encode(bytes(range(256))).decode(),
        "headers": {"trace": "tärry", "none": None},
        "headers_base64": {"raw": base64.b64encode(b"\xff").decode()},
        "delay": "200ms",
    }
    answer = http.post("/v1/messages", json=body)
    assert answer.status_code == 202, answer.text
    receipt = answer.json()
    assert receipt["intake"] == service.intake
    assert answer.headers["location"] == receipt["status_url"] == f"/v1/messages/{receipt['handle']}"
    wait_until(lambda: bool(arrived(service, orders, receipt["id"])), "the message")
    [found] = arrived(service, orders, receipt["id"])
    assert (found.key(), found.value()) == (b"\x00\xff/ key", bytes(range(256)))
    headers = dict(found.headers())
    assert (headers["trace"], headers["none"], headers["raw"]) == ("tärry".encode(), None, b"\xff")
    state = http.get(receipt["status_url"]).json()
    assert (state["state"], state["target"]) == ("fired", orders)


def test_whoever_waits_gets_the_outcome(http: httpx.Client, orders: str) -> None:
    answer = http.post("/v1/messages", json={"target": orders, "value": "v", "delay": "300ms", "wait": "20s"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outcome"]["outcome"] == "fired"
    answer = http.post("/v1/messages", json={"target": orders, "delay": "50s", "wait": "100ms"})
    assert answer.status_code == 202
    assert "outcome" not in answer.json()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"delay": "1s", "at": "2030-01-01T00:00:00Z"}, "two-delays"),
        ({}, "no-delay"),
        ({"delay": "5h"}, "beyond-max-delay"),
        ({"delay": "1s", "target": "elsewhere"}, "target-not-allowed"),
        ({"delay": "1s", "target": "a/b"}, "bad-request"),
        ({"delay": "1s", "name": "n"}, "bad-request"),
        ({"delay": "1s", "if": "absent"}, "bad-request"),
        ({"at": "2030-01-01T00:00:00"}, "bad-request"),
        ({"delay": "-1s"}, "bad-request"),
        ({"delay": 5}, "bad-request"),
        ({"delay": "1s", "value": {"a": 1}}, "bad-request"),
        ({"delay": "1s", "value": "a", "value_base64": "YQ=="}, "bad-request"),
        ({"delay": "1s", "value_base64": "!"}, "bad-request"),
        ({"delay": "1s", "headers": {"tarry-target": "x"}}, "bad-request"),
        ({"delay": "1s", "partition": 77}, None),
        ({"delay": "1s", "intake": "another"}, "bad-request"),
        ({"delay": "1s", "unknown": 1}, "bad-request"),
        ({"delay": "1s", "wait": "1h"}, "bad-request"),
        ({"cron": "0 9 * *", "key": "k", "name": "n"}, "bad-request"),
        ({"cron": "0 9 31 2 *", "key": "k", "name": "n"}, "bad-schedule"),
        ({"cron": "0 9 * * *", "zone": "Nowhere/City", "key": "k", "name": "n"}, "bad-schedule"),
        ({"every": "1s", "delay": "1s", "key": "k", "name": "n"}, "two-delays"),
        ({"every": "1s"}, "null-key"),
        ({"delay": "30s", "expires_at": rfc3339(5)}, "bad-request"),
    ],
)
def test_what_the_service_would_not_deliver_is_refused(
    http: httpx.Client, orders: str, change: dict[str, Any], code: str | None
) -> None:
    answer = http.post("/v1/messages", json={"target": orders, **change})
    if code is None:
        assert answer.status_code == 202
        return
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code, answer.text


def test_a_request_that_is_repeated_under_its_key_is_one_message(
    http: httpx.Client, service: LiveService, orders: str
) -> None:
    key = str(uuid.uuid4())
    body = {"target": orders, "value": "once", "at": rfc3339(1), "wait": "20s"}
    answers = [http.post("/v1/messages", json=body, headers={"Idempotency-Key": key}) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 200], [one.text for one in answers]
    assert {one.json()["outcome"]["outcome"] for one in answers} == {"fired"}
    assert len({one.json()["handle"] for one in answers}) == 1
    assert answers[1].json()["known"] is True
    assert len(arrived(service, orders, answers[0].json()["id"])) == 1
    other = http.post("/v1/messages", json={**body, "value": "twice"}, headers={"Idempotency-Key": key})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


def test_an_idempotency_key_needs_a_time_that_repeats(http: httpx.Client, orders: str) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    assert http.post("/v1/messages", json={"target": orders, "delay": "1s"}, headers=key).status_code == 422
    body = {"target": orders, "delay": "1s", "sent_at": rfc3339(0)}
    assert http.post("/v1/messages", json={**body, "id": str(uuid.uuid4())}, headers=key).status_code == 422
    assert http.post("/v1/messages", json=body, headers=key).status_code == 202


def test_a_schedule_begins_and_ends_by_its_name(http: httpx.Client, orders: str) -> None:
    timer = {"key": "feed/3", "name": "poll"}
    body = {"target": orders, "every": "15m", "if": "absent", "wait": "20s", **timer}
    answer = http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["outcome"]["outcome"] == "scheduled"
    found = http.get(answer.json()["status_url"]).json()
    assert (found["state"], found["every"], len(found["then"])) == ("waiting", "15m", 5)
    again = http.put("/v1/timers", params=timer, json={"target": orders, "every": "5m", "if": "absent"})
    assert (again.status_code, again.json()["code"]) == (412, "skipped"), again.text
    ended = http.delete("/v1/timers", params=timer)
    assert (ended.status_code, ended.json()["state"]) == (200, "cancelled"), ended.text
    assert http.delete("/v1/timers", params=timer).status_code == 404
    assert http.get("/v1/timers", params=timer).status_code == 404


def test_a_waiting_message_is_cancelled_moved_and_delivered_now(
    http: httpx.Client, service: LiveService, orders: str
) -> None:
    sent = http.post("/v1/messages", json={"target": orders, "value": "v", "delay": "50s"}).json()
    waiting = http.get(sent["status_url"]).json()
    assert (waiting["state"], waiting["value"], waiting["key"]) == ("waiting", "v", None)
    ended = http.delete(sent["status_url"], params={"wait": "2s"})
    assert ended.status_code in {200, 202}, ended.text
    sent = http.post("/v1/messages", json={"target": orders, "value": "moved", "delay": "50s"}).json()
    moved = http.post(f"{sent['status_url']}:move", json={"delay": "40s"})
    assert moved.status_code in {200, 202}, moved.text
    assert moved.json()["id"] == sent["id"]
    now = http.post(f"{moved.json()['status_url']}:deliver-now", params={"wait": "5s"})
    assert now.status_code in {200, 202}, now.text
    wait_until(lambda: bool(arrived(service, orders, sent["id"])), "the message")
    named = {"key": "k", "name": "moved"}
    sent = http.post("/v1/messages", json={"target": orders, "value": "n", "delay": "50s", **named}).json()
    moved = http.post(f"{sent['status_url']}:deliver-now")
    assert (moved.status_code, moved.json()["twice"]) == (200, "no"), moved.text
    wait_until(lambda: bool(arrived(service, orders, sent["id"])), "the named message")


def test_what_is_not_there_is_not_found(http: httpx.Client, service: LiveService) -> None:
    id_ = uuid.uuid4()
    for handle in ("nonsense", f"1.{service.intake}.0.0.{id_}", f"1.{service.intake}.0.1767225600000.{id_}"):
        answer = http.get(f"/v1/messages/{handle}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), answer.text
    assert http.get(f"/v1/messages/1.other.0.1767225600000.{id_}").status_code == 422
