"""Requests whose fate Kafka has not told in time: the answer says so, and does not ask programs to repeat them."""

import uuid
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tarry.errors import UsageError
from tarry.testing import PRODUCE, Fault, KafkaProxy, LiveService
from tests.integration.api.test_sending import rfc3339
from tests.support.api import Api, ApiConfig
from tests.support.brokers import no_broker

END_TXN: Final = 26


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[KafkaProxy, EmbeddedBroker]]:
    """A broker with a listener behind the proxy; its plain listener goes past the proxy."""
    port = free_port()
    with KafkaProxy(port) as proxy:
        broker = EmbeddedBroker(
            properties={
                "listeners": f"PROXIED://{HOST}:{port}",
                "advertised.listeners": f"PROXIED://{proxy.address}",
                "listener.security.protocol.map": "PROXIED:PLAINTEXT",
            }
        )
        try:
            broker.start()
        except UsageError as refusal:
            no_broker([str(refusal)])
        yield proxy, broker
        broker.stop()


@pytest.fixture(scope="module")
def proxy(proxied: tuple[KafkaProxy, EmbeddedBroker]) -> KafkaProxy:
    return proxied[0]


@pytest.fixture(scope="module")
def http(
    proxied: tuple[KafkaProxy, EmbeddedBroker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of an API behind the proxy; the service is not."""
    directory, (proxy, broker) = tmp_path_factory.mktemp("open"), proxied
    with LiveService(broker.bootstrap_servers, directory, "open", 2, targets=["open.*"], max_delay="1h") as service:
        config = ApiConfig(proxy.address, service.intake, 2, f"{service.name}.group", api={"port": 0})
        with Api(config, directory) as api, api.client() as client:
            yield client


def waiting(http: httpx.Client) -> dict[str, Any]:
    body = {"target": "open.out", "key": "k", "value": "v", "delay": "50m"}
    answer = http.post("/v1/messages", json=body)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(("fault", "is_done"), [(Fault.LOSE_REQUEST, False), (Fault.LOSE_RESPONSE, True)])
def test_a_move_whose_commit_is_not_answered_may_be_done(
    proxy: KafkaProxy, http: httpx.Client, fault: Fault, *, is_done: bool
) -> None:
    sent = waiting(http)
    proxy.plan(fault, END_TXN)
    answer = http.post(f"{sent['status_url']}:move", json={"delay": "40m"})
    assert (answer.status_code, answer.json()["code"], answer.json()["accepted"]) == (504, "may-be-done", None)
    assert "retry-after" not in answer.headers
    # Whoever asks again does not move it twice: a commit that is not known is aborted by the next one.
    again = http.post(f"{sent['status_url']}:move", json={"delay": "30m"})
    assert again.status_code == (409 if is_done else 202), again.text
    assert http.get(sent["status_url"]).json()["cancel_waits"] is True


@pytest.mark.parametrize("repeats", [False, True])
def test_a_send_that_is_not_acknowledged_asks_to_be_repeated_only_if_it_repeats_safely(
    proxy: KafkaProxy, http: httpx.Client, *, repeats: bool
) -> None:
    waiting(http)  # the producer is known to the broker
    proxy.plan(Fault.LOSE_RESPONSE, PRODUCE)
    headers = {"Idempotency-Key": str(uuid.uuid4())} if repeats else {}
    answer = http.post("/v1/messages", json={"target": "open.out", "key": "k", "at": rfc3339(60)}, headers=headers)
    assert answer.json()["accepted"] is None, answer.text
    assert answer.status_code == (503 if repeats else 504), answer.text
    assert ("retry-after" in answer.headers) == repeats
