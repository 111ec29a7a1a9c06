"""What has happened of late, in the lists: what owners publish of themselves, and the last outcomes of schedules."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tarry.testing import LiveService
from tests.support.brokers import wait_until

MESSAGES = 30


@pytest.fixture
def target(service: LiveService, http: httpx.Client, unique_name: Callable[[str], str]) -> str:
    """A target to which something was delivered."""
    name = service.make_topic(unique_name("figures"))
    for number in range(MESSAGES):
        sent = http.post("/v1/messages", json={"target": name, "key": str(number), "delay": "100ms"})
        assert sent.status_code == 202, sent.text
    return name


def rows(http: httpx.Client, path: str, of: str) -> list[dict[str, Any]]:
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()[of]
    return found


def row_of(http: httpx.Client, target: str) -> dict[str, Any]:
    """Return what is known of a target; nothing if it is not listed yet."""
    return next((one for one in rows(http, "/v1/targets", "targets") if one["target"] == target), {})


def test_targets_have_the_rates_and_the_lateness_that_their_owners_publish(http: httpx.Client, target: str) -> None:
    all_of_them = MESSAGES / 60 * 0.99
    wait_until(lambda: row_of(http, target).get("delivered_per_s", 0) >= all_of_them, "all are counted", 30)
    found = row_of(http, target)
    assert 0 <= found["p50_ms"] <= found["p99_ms"] <= found["worst_ms"]
    assert found["last_delivery"] <= found["figures_as_of"]
    assert not found["figures_are_stale"]
    assert http.get("/v1/health").json()["figures_as_of"] >= found["figures_as_of"]


def test_partitions_say_how_their_owners_do(http: httpx.Client, target: str) -> None:
    def published() -> list[dict[str, Any]]:
        found = rows(http, "/v1/partitions", "partitions")
        return found if all(one["figures_as_of"] and one["obeyed"] is not None for one in found) else []

    wait_until(lambda: bool(published()), "all have figures", 30)
    for one in published():
        assert (one["figures_are_stale"], one["process_takeovers"], one["kept_by"]) == (False, 2, [])
        assert one["process_bytes"] > 1 << 24
        assert one["memory_bytes"] >= 0
        assert abs(one["clock_skew_ms"]) < 60_000


def test_what_waits_for_a_paused_target_is_counted_while_it_is_in_memory(
    http: httpx.Client, service: LiveService, unique_name: Callable[[str], str]
) -> None:
    target = service.make_topic(unique_name("paused"))
    paused = http.put(f"/v1/targets/{target}/pause", json={"reason": "r", "wait": "20s"})
    assert paused.json()["confirmed"], paused.text
    http.post("/v1/messages", json={"target": target, "delay": "100ms"})
    wait_until(lambda: row_of(http, target).get("parked") == 1, "it is counted", 30)
    found = row_of(http, target)
    assert found["parked_since"]
    assert found["paused_reason"] == "r"
    http.put(f"/v1/targets/{target}/resume", json={"wait": "20s", "reason": "r"})
    wait_until(lambda: row_of(http, target).get("last_delivery") is not None, "it is delivered", 30)
    assert row_of(http, target)["parked"] == 0


def test_a_schedule_has_its_last_outcomes(
    http: httpx.Client, service: LiveService, unique_name: Callable[[str], str]
) -> None:
    timer, target = {"key": "k", "name": unique_name("poll")}, service.make_topic(unique_name("polls"))
    begun = http.post("/v1/messages", json={"target": target, "every": "1s", **timer})
    assert begun.status_code == 202, begun.text

    def last() -> list[dict[str, Any]]:
        found = rows(http, "/v1/schedules", "schedules")
        return next((one["last"] for one in found if one["target"] == target), [])

    wait_until(lambda: len(last()) == 3, "three are delivered", 60)
    found = last()
    assert {one["outcome"] for one in found} == {"fired"}
    assert [one["occurrence"] for one in found] == sorted((one["occurrence"] for one in found), reverse=True)
    assert http.delete("/v1/timers", params=timer).status_code == 200
