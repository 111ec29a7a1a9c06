"""Requests that are sent again: replicas are killed, Kafka is away, and each message is delivered once."""

import threading
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tarry.testing import LiveService
from tests.integration.api.test_sending import rfc3339
from tests.support.api import Api, config_beside
from tests.support.brokers import wait_until
from tests.support.topics import read_topic

KILLS = 3
MESSAGES = 60


def send_until_answered(url: list[str], body: dict[str, Any], answers: list[dict[str, Any]]) -> None:
    """Send one message under one key until it is answered, as a client should."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(200):
        try:
            answer = httpx.post(f"{url[0]}/v1/messages", json=body, headers=key, timeout=20, trust_env=False)
        except httpx.TransportError:  # the replica was killed
            continue
        if answer.status_code in {200, 202}:
            answers.append(answer.json())
            return
        assert answer.status_code == 503, answer.text
    raise AssertionError("never answered")


def test_replicas_are_killed_and_each_message_is_delivered_once(service: LiveService, tmp_path: Path) -> None:
    target = service.make_topic("killed")
    config = config_beside(service, 2)
    with Api(config, tmp_path, "one") as one, Api(config, tmp_path, "two") as two:
        url, answers = [one.url], list[dict[str, Any]]()

        def work(number: int) -> None:
            for n in range(MESSAGES // 3):
                body = {"target": target, "value": f"{number}.{n}", "at": rfc3339(1), "key": f"k{n}" if n % 2 else None}
                send_until_answered(url, body, answers)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(KILLS):
            seen = len(answers)

            def is_time(seen: int = seen) -> bool:
                return len(answers) > seen + 3 or not any(thread.is_alive() for thread in threads)

            wait_until(is_time, "some answers", 60)
            killed, other = (one, two) if turn % 2 == 0 else (two, one)
            url[0] = other.url
            killed.process.kill()
            killed.start()
        for thread in threads:
            thread.join()
        assert len({answer["id"] for answer in answers}) == len(answers) == MESSAGES
        wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) >= MESSAGES, "all messages", 60)
        values = sorted(record.value() or b"" for record in read_topic(service.bootstrap_servers, target))
    assert values == sorted(b"%d.%d" % (number, n) for number in range(3) for n in range(MESSAGES // 3))


def test_another_replica_answers_with_the_outcome_that_it_finds(
    service: LiveService, orders: str, tmp_path: Path
) -> None:
    config = config_beside(service, 2)
    for body in ({"key": "k"}, {}):
        key = {"Idempotency-Key": str(uuid.uuid4())}
        message = {"target": orders, "value": "v", "at": rfc3339(0.5), **body}
        with Api(config, tmp_path, "one") as one, one.client() as client:
            first = client.post("/v1/messages", json={**message, "wait": "20s"}, headers=key)
            assert first.json()["outcome"]["outcome"] == "fired", first.text
        with Api(config, tmp_path, "two") as two, two.client() as client:
            second = client.post("/v1/messages", json=message, headers=key)
            assert (second.status_code, second.json()["known"]) == (200, True), second.text
            assert second.json()["outcome"] == first.json()["outcome"]
            assert second.json()["handle"] == first.json()["handle"]
            other = client.post("/v1/messages", json={**message, "target": f"{service.name}.else"}, headers=key)
            assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("address", ["127.0.0.1:1"])
def test_without_kafka_nothing_is_said_to_be_accepted(service: LiveService, tmp_path: Path, address: str) -> None:
    config = config_beside(service)
    nowhere = type(config)(address, service.intake, 1, api={"port": 0})
    with Api(nowhere, tmp_path) as api, api.client() as client:
        answer = client.post("/v1/messages", json={"target": "a", "delay": "1s"})
        assert answer.status_code == 503, answer.text
        assert (answer.json()["code"], answer.json()["accepted"]) == ("kafka-away", False)
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/readyz").status_code == 503
        assert client.get("/livez").status_code == 200
