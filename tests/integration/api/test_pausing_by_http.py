"""`PUT /v1/targets/{topic}/pause` and `/resume`, on a real service."""

from pathlib import Path

import httpx

from tarry.testing import LiveService
from tests.support.api import Api, config_beside, make_token
from tests.support.brokers import wait_until
from tests.support.topics import read_topic


def test_a_target_is_paused_once_all_owners_say_so_and_resumed(http: httpx.Client, service: LiveService) -> None:
    target = service.make_topic("paused")
    why = {"reason": "the warehouse is down", "wait": "20s"}
    paused = http.put(f"/v1/targets/{target}/pause", json=why)
    assert (paused.status_code, paused.json()["confirmed"]) == (200, True), paused.text
    sent = http.post("/v1/messages", json={"target": target, "delay": "100ms", "wait": "2s"})
    assert sent.status_code == 202
    assert read_topic(service.bootstrap_servers, target) == []
    resumed = http.put(f"/v1/targets/{target}/resume", json=why)
    assert (resumed.status_code, resumed.json()["paused"]) == (200, False), resumed.text
    wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) == 1, "the message")


def test_what_cannot_be_paused_is_refused(
    http: httpx.Client, service: LiveService, orders: str, tmp_path: Path
) -> None:
    assert http.put("/v1/targets/nowhere/pause", json={"reason": "r"}).status_code == 404
    assert http.put(f"/v1/targets/{orders}/pause", json={}).status_code == 422
    over = {"reason": "r", "until": "2001-01-01T00:00:00Z"}
    assert http.put(f"/v1/targets/{orders}/pause", json=over).status_code == 422
    path = tmp_path / "tokens.json"
    token = make_token(path, "a", f"act:{service.name}.other", "send")
    with Api(config_beside(service, 2, tokens=str(path)), tmp_path) as api, api.client(token) as client:
        answer = client.put(f"/v1/targets/{orders}/pause", json={"reason": "r"})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
