"""Batches and streams of events, on a real broker and a real service."""

import json
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tarry.kafka.topics import RESULTS
from tarry.testing import LiveService
from tests.support.api import NDJSON, Api, config_beside, make_token
from tests.support.brokers import wait_until
from tests.support.topics import read_topic

Said = dict[str, str]


def said(answer: httpx.Response) -> Iterator[Said]:
    """The events of a stream; comments are left out, and so are ids alone."""
    event: Said = {}
    for line in answer.iter_lines():
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            if "event" in event:
                yield event
            event = {}


def lines_of(count: int, target: str, **more: Any) -> bytes:
    return b"".join(
        json.dumps({"target": target, "key": f"k{n}", "delay": "1s", **more}).encode() + b"\n" for n in range(count)
    )


def answers_of(answer: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_each_line_of_a_batch_has_its_own_answer(http: httpx.Client, orders: str) -> None:
    good = {"target": orders, "delay": "1s", "value": "v"}
    texts = [
        json.dumps(good),
        "{not json",
        json.dumps({**good, "delay": "forever"}),
        "",
        json.dumps({**good, "target": "elsewhere"}),
        "[]",
        json.dumps({**good, "value": "\ud800"}),
        json.dumps(good),
    ]
    answer = http.post("/v1/messages:batch", content="\n".join(texts).encode(), headers=NDJSON)
    assert answer.status_code == 200
    found = answers_of(answer)
    assert found[-1] == {"lines": 7, "accepted": 2, "complete": True}
    assert [one["line"] for one in found[:-1]] == list(range(1, 8))
    assert [one["status"] for one in found[:-1]] == [202, 422, 422, 422, 422, 422, 202]
    assert found[3]["code"] == "target-not-allowed"


def test_a_large_batch_keeps_the_order_of_its_lines_and_all_arrive(http: httpx.Client, service: LiveService) -> None:
    target = service.make_topic("many")
    answer = http.post("/v1/messages:batch", content=lines_of(3_000, target), headers=NDJSON)
    found = answers_of(answer)
    assert found[-1] == {"lines": 3_000, "accepted": 3_000, "complete": True}
    ids = {one["id"] for one in found[:-1]}
    assert len(ids) == 3_000
    wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) == 3_000, "all messages", 60)


def test_a_line_that_is_too_long_ends_its_batch_alone(http: httpx.Client, orders: str) -> None:
    texts = [json.dumps({"target": orders, "delay": "1s"}).encode(), b'{"value": "' + b"x" * (5 << 20) + b'"}']
    found = answers_of(http.post("/v1/messages:batch", content=b"\n".join(texts), headers=NDJSON))
    assert [one.get("status") for one in found] == [202, 413, None]
    assert found[-1] == {"lines": 1, "accepted": 1, "complete": False}


def test_a_batch_whose_connection_breaks_is_sent_again_without_a_second_delivery(
    api: Api, http: httpx.Client, service: LiveService
) -> None:
    target = service.make_topic("broken")
    texts = [
        json.dumps(
            {"target": target, "key": str(n), "id": str(uuid.uuid4()), "delay": "5s", "sent_at": "2000-01-01T00:00:00Z"}
        )
        for n in range(20)
    ]
    # Due in the future, at a time that repeats.
    state = http.post("/v1/messages", json={"target": target, "delay": "5s"}).json()
    lines = [json.dumps({**json.loads(text), "at": state["due"], "delay": None, "sent_at": None}) for text in texts]
    url = urlsplit(api.url)
    with socket.create_connection((url.hostname, url.port)) as connection:
        head = "POST /v1/messages:batch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
        body = "\n".join(lines[:10]) + "\n" + lines[10][:15]
        connection.sendall(f"{head}Content-Length: 100000\r\n\r\n{body}".encode())
        connection.settimeout(20)
        received = b""
        while received.count(b'"status":202') < 10:
            part = connection.recv(65_536)
            assert part, received
            received += part
            assert b'"status":4' not in received, received
    answer = http.post("/v1/messages:batch", content="\n".join(lines).encode(), headers=NDJSON)
    assert answers_of(answer)[-1]["accepted"] == 20
    wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) >= 21, "the messages", 30)
    assert len(read_topic(service.bootstrap_servers, target)) == 21


def test_a_stream_has_the_results_of_its_target_and_resumes_where_it_broke_off(
    http: httpx.Client, orders: str, service: LiveService
) -> None:
    other = service.make_topic("other")
    with http.stream("GET", "/v1/events", params={"target": orders}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = said(answer)
        sent = [http.post("/v1/messages", json={"target": topic, "delay": "0s"}).json() for topic in (other, orders)]
        first = next(events)
        assert (first["event"], json.loads(first["data"])["id"]) == ("result", sent[1]["id"])
    missed = [http.post("/v1/messages", json={"target": orders, "delay": "0s", "wait": "20s"}).json() for _ in range(3)]
    with http.stream("GET", "/v1/events", params={"target": orders}, headers={"Last-Event-ID": first["id"]}) as answer:
        events = said(answer)
        found = [json.loads(next(events)["data"])["id"] for _ in missed]
        live = http.post("/v1/messages", json={"target": orders, "delay": "0s"}).json()
        assert json.loads(next(events)["data"])["id"] == live["id"]
    assert sorted(found) == sorted(one["id"] for one in missed)
    assert http.get("/v1/events", headers={"Last-Event-ID": "999:1"}).status_code == 422
    assert http.get("/v1/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_stream_cannot_be_chosen_by_a_name(http: httpx.Client) -> None:
    with http.stream("GET", "/v1/events", params={"name": "payment"}) as answer:
        assert answer.status_code == 422
        assert json.loads(answer.read())["detail"] == "name: there is no such field"


def test_a_stream_that_resumes_where_results_were_deleted_says_which_are_missing(
    http: httpx.Client, orders: str, service: LiveService
) -> None:
    for _ in range(4):
        http.post("/v1/messages", json={"target": orders, "delay": "0s", "wait": "20s"})
    admin = AdminClient({"bootstrap.servers": service.bootstrap_servers})
    results = service.intake + RESULTS
    logs = [TopicPartition(results, partition, -1) for partition in range(2)]  # -1: all that there is
    deleted = {one.partition: future.result().low_watermark for one, future in admin.delete_records(logs).items()}
    assert sum(deleted.values()) >= 4
    http.post("/v1/messages", json={"target": orders, "delay": "0s", "value": "after"})
    with http.stream("GET", "/v1/events", params={"target": orders}, headers={"Last-Event-ID": "0:0,1:0"}) as answer:
        events = said(answer)
        found = [next(events) for _ in range(1 + sum(low > 0 for low in deleted.values()))]
    gaps = [json.loads(one["data"]) for one in found if one["event"] == "gap"]
    assert {one["partition"] for one in gaps} == {partition for partition, low in deleted.items() if low}
    for one in gaps:
        # Deleted up to behind the marker of a transaction; a gap may end before it, at the end of the last result.
        assert one["from"] == 0
        assert deleted[one["partition"]] - 1 <= one["to"] <= deleted[one["partition"]]
    assert sum(one["event"] == "result" for one in found) == 1


def test_a_stream_that_is_read_too_slowly_ends_and_says_so(http: httpx.Client, api: Api, service: LiveService) -> None:
    target, url = service.make_topic("slow"), urlsplit(api.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect((url.hostname, url.port))
        connection.settimeout(60)
        connection.sendall(f"GET /v1/events?target={target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        # More than the stream, the server and the two sockets hold.
        for _ in range(3):
            http.post("/v1/messages:batch", content=lines_of(9_000, target), headers=NDJSON)
        wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) == 27_000, "all messages", 120)
        received = b""
        while b"event: lagging" not in received:
            part = connection.recv(65_536)
            assert part, received[-500:]
            received = received[-100:] + part


def test_streams_are_limited_and_end_with_their_token_and_with_the_server(
    service: LiveService, orders: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    token = make_token(path, "watcher", "look")
    with Api(config_beside(service, 2, tokens=str(path), streams=2), tmp_path) as api:
        with (
            api.client(token) as client,
            client.stream("GET", "/v1/events") as one,
            client.stream("GET", "/v1/events") as two,
        ):
            third = client.get("/v1/events")
            assert (third.status_code, third.json()["code"]) == (429, "too-many-requests")
            assert int(third.headers["retry-after"]) > 0
            assert (one.status_code, two.status_code) == (200, 200)
        short = make_token(path, "short", "look", expires_in_ms=6_000)
        with api.client(short) as client:
            wait_until(lambda: client.get("/v1/health").status_code == 200, "the new token")
            with client.stream("GET", "/v1/events") as stream:
                last = list(said(stream))
        assert last[-1]["event"] == "end"
        with api.client(token) as client, client.stream("GET", "/v1/events") as stream:
            api.process.signal(signal.SIGTERM)
            assert json.loads(list(said(stream))[-1]["data"]) == {"reason": "this replica stops"}
            assert api.process.wait_ended(10) == 0


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_need_no_token(service: LiveService, tmp_path: Path, path: str) -> None:
    tokens = tmp_path / "tokens.json"
    make_token(tokens, "a", "look")
    with Api(config_beside(service, 2, tokens=str(tokens)), tmp_path) as api, api.client() as client:
        wait_until(lambda: client.get(path, headers={"Host": "10.0.0.7"}).status_code == 200, path)
