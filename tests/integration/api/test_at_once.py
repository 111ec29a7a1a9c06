"""Requests about one message at the same time, and lines of one key: one goes after the other."""

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx

from tarry.testing import LiveService
from tests.integration.api.test_sending import arrived, rfc3339
from tests.support.api import NDJSON, Api
from tests.support.topics import read_topic

AT_ONCE: Final = 4


def all_at_once(url: str, ask: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
    """Send so many requests at the same time, each over its own connection."""

    def one(number: int) -> httpx.Response:
        with httpx.Client(base_url=url, timeout=40, trust_env=False) as client:
            return ask(client, number)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, range(AT_ONCE)))


def test_of_moves_of_one_message_at_once_one_is_done(
    http: httpx.Client, api: Api, service: LiveService, orders: str
) -> None:
    sent = http.post("/v1/messages", json={"target": orders, "key": "k", "value": "v", "delay": "50s"}).json()

    def move(client: httpx.Client, number: int) -> httpx.Response:
        return client.post(f"{sent['status_url']}:move", json={"at": rfc3339(3 + number / 10)})

    answers = all_at_once(api.url, move)
    assert sorted(one.status_code // 100 for one in answers) == [2, 4, 4, 4], [one.text for one in answers]
    assert {one.json()["code"] for one in answers if one.status_code >= 400} == {"conflict"}
    # What comes after all of these times shows that nothing more comes.
    last = http.post("/v1/messages", json={"target": orders, "key": "k", "delay": "5s", "wait": "30s"})
    assert last.json()["outcome"]["outcome"] == "fired", last.text
    assert len(arrived(service, orders, sent["id"])) == 1


def test_of_a_cancel_and_a_move_at_once_no_message_is_both_cancelled_and_moved(
    http: httpx.Client, api: Api, orders: str
) -> None:
    for _ in range(5):
        sent = http.post("/v1/messages", json={"target": orders, "key": "k", "value": "v", "delay": "15s"}).json()

        def ask(client: httpx.Client, number: int, url: str = sent["status_url"]) -> httpx.Response:
            if number % 2:
                return client.post(f"{url}:move", json={"delay": "50s"})
            return client.delete(url, params={"wait": "10s"})

        answers = all_at_once(api.url, ask)
        cancelled = [one for one in answers[::2] if one.status_code == 200]
        moved = [one for one in answers[1::2] if one.status_code in {200, 202}]
        assert len(cancelled) + len(moved) == 1, [one.text for one in answers]


def test_requests_under_one_key_at_once_are_one_message_with_one_answer(
    http: httpx.Client, api: Api, service: LiveService, orders: str
) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"target": orders, "key": "k", "value": "once", "at": rfc3339(50)}
    answers = all_at_once(api.url, lambda client, _: client.post("/v1/messages", json=body, headers=key))
    assert {one.status_code for one in answers} == {202}, [one.text for one in answers]
    assert len({(one.json()["handle"], one.json()["offset"]) for one in answers}) == 1
    assert sum(one.json().get("known", False) for one in answers) == AT_ONCE - 1
    id_ = answers[0].json()["id"].encode()
    records = read_topic(service.bootstrap_servers, service.intake)
    assert sum(dict(one.headers() or []).get("tarry-id") == id_ for one in records) == 1
    other = http.post("/v1/messages", json={**body, "value": "twice"}, headers=key)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    # An outcome that comes later is the same for all, too.
    body = {"target": orders, "key": "k", "value": "once", "at": rfc3339(2), "wait": "20s"}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    answers = all_at_once(api.url, lambda client, _: client.post("/v1/messages", json=body, headers=key))
    assert [one.json()["outcome"]["outcome"] for one in answers] == ["fired"] * AT_ONCE
    assert len(arrived(service, orders, answers[0].json()["id"])) == 1


def test_a_timer_that_is_set_if_there_is_none_is_not_in_the_way_of_its_own_repetition(api: Api, orders: str) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"target": orders, "value": "once", "at": rfc3339(50), "if": "absent"}
    timer = {"key": "k", "name": str(uuid.uuid4())}
    answers = all_at_once(api.url, lambda client, _: client.put("/v1/timers", params=timer, json=body, headers=key))
    assert [(one.status_code, one.json()["outcome"]["outcome"]) for one in answers] == [(200, "scheduled")] * AT_ONCE


def test_the_lines_of_a_key_are_accepted_in_their_order(http: httpx.Client, orders: str) -> None:
    def line(key: str, number: int) -> dict[str, object]:
        fields: dict[str, object] = {"target": orders, "key": key, "value": str(number)}
        if number % 3:
            return {**fields, "delay": "1s"}
        return {**fields, "id": str(uuid.uuid4()), "at": rfc3339(-1)}  # it is looked for first

    lines = [line(key, number) for number in range(9) for key in ("a", "b")]
    content = "".join(json.dumps(one) + "\n" for one in lines)
    answers = [json.loads(one) for one in http.post("/v1/messages:batch", content=content, headers=NDJSON).text.split()]
    assert answers.pop() == {"lines": len(lines), "accepted": len(lines), "complete": True}
    for first in (0, 1):
        offsets = [one["offset"] for one in answers[first::2]]
        assert offsets == sorted(offsets)
