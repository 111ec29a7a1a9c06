"""A message goes through, on time, once, unchanged; what cannot is dead; what waited comes in order."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.conftest import Lab, verdict
from tests.support.brokers import wait_until
from tests.support.checker import ALL_WITH_A_KEY
from tests.support.topics import read_topic
from tests.support.workload import SentHeaders

# What the machine of a test run, busy with other tests, must manage; the benches measure in earnest.
PROMPT_MS = 5_000
AN_ID = "0190a5b2-7c1d-4e8f-9a3b-5c6d7e8f9a0b"


def produce_one(lab: Lab, value: bytes | None, key: bytes | None, headers: SentHeaders) -> tuple[int, str]:
    """Send one message; return its timestamp in milliseconds and its `topic/partition/offset`."""
    done: list[tuple[int, str]] = []
    producer = Producer({"bootstrap.servers": lab.bootstrap, "partitioner": "murmur2_random"})

    def acknowledged(error: object, message: Any) -> None:
        assert error is None
        done.append((message.timestamp()[1], f"{message.topic()}/{message.partition()}/{message.offset()}"))

    producer.produce(lab.intake, value, key, headers=headers, on_delivery=acknowledged)
    producer.flush()
    return done[0]


def test_a_message_with_a_delay_of_a_second_arrives_once_on_time_and_unchanged(lab: Lab) -> None:
    serve = lab.serve().start()
    serve.wait_serving()
    reader = lab.read()
    target = lab.targets[0].topic
    sent_ms, source = produce_one(
        lab,
        b'{"order": 7}',
        b"customer-1",
        [
            ("trace", b"1"),
            ("tarry-target", target),
            ("trace", None),
            ("tarry-delay-ms", "1000"),
            ("tarry-id", AN_ID),
        ],
    )
    reader.wait_for(1, 20)
    assert serve.stop() == 0

    (message,) = read_topic(lab.bootstrap, target)
    assert (message.key(), message.value()) == (b"customer-1", b'{"order": 7}')
    headers: Any = message.headers()
    assert [pair for pair in headers if not pair[0].startswith("tarry-")] == [
        ("trace", b"1"),
        ("trace", None),
    ]
    assert sorted(pair for pair in headers if pair[0].startswith("tarry-")) == [
        ("tarry-due-ms", str(sent_ms + 1_000).encode()),
        ("tarry-id", AN_ID.encode()),
        ("tarry-source", source.encode()),
    ]
    (arrival,) = reader.finish()
    assert sent_ms + 1_000 <= arrival.timestamp_ms <= arrival.seen_ms <= sent_ms + 1_000 + PROMPT_MS


def test_a_result_says_that_a_message_has_fired(lab: Lab) -> None:
    serve = lab.serve().start()
    serve.wait_serving()
    target = lab.targets[0].topic
    reader = lab.read()
    sent_ms, source = produce_one(
        lab, b"v", b"k", [("tarry-target", target), ("tarry-delay-ms", "50"), ("tarry-id", AN_ID)]
    )
    reader.wait_for(1, 20)
    assert serve.stop() == 0

    (result,) = read_topic(lab.bootstrap, f"{lab.intake}.results")
    assert result.key() == AN_ID.encode()
    assert result.partition() == int(source.split("/")[1])
    fields = json.loads(result.value() or b"")
    fired_ms = fields.pop("at_ms")
    assert fields == {
        "v": 1,
        "outcome": "fired",
        "id": AN_ID,
        "source": source,
        "due_ms": sent_ms + 50,
        "target": target,
    }
    assert sent_ms + 50 <= fired_ms <= sent_ms + 50 + PROMPT_MS


def test_every_kind_of_message_arrives_as_it_was_sent(lab: Lab) -> None:
    serve = lab.serve().start()
    serve.wait_serving()
    reader = lab.read()
    workload = lab.workload(delays_ms=(0, 2_000))
    workload.send(2_000, 3.0)
    report = verdict(workload, reader, [serve])
    report.assert_kept(0.25)  # delays begin at 0: what is due before it can be read has no place
    assert report.lateness.p50_ms is not None
    assert report.lateness.p50_ms <= PROMPT_MS, report


BAD: dict[str, SentHeaders] = {
    "no-delay": [],
    "two-delays": [("tarry-delay-ms", "1"), ("tarry-deliver-at", "1900000000000")],
    "bad-delay": [("tarry-delay-ms", "soon")],
    "negative-delay": [("tarry-delay-ms", "-1")],
    "looks-like-seconds": [("tarry-deliver-at", "1900000000")],
    "bad-time": [("tarry-deliver-at", "2030-01-01T00:00:00")],
    "bad-id": [("tarry-delay-ms", "1"), ("tarry-id", "seven")],
    "bad-partition": [("tarry-delay-ms", "1"), ("tarry-partition", "4")],
    "beyond-max-delay": [("tarry-delay-ms", "86400000")],
    "repeated-header": [("tarry-delay-ms", "1"), ("tarry-delay-ms", "1")],
    "bad-handle": [("tarry-cancel", "no handle")],
}
BAD_TARGETS: dict[str, SentHeaders] = {
    "no-target": [],
    "bad-target": [("tarry-target", "no/such name")],
    "unknown-target": [("tarry-target", "e2e.of-nobody")],
}


def test_an_undeliverable_message_is_a_complete_dead_letter_and_stops_no_other(lab: Lab) -> None:
    lab.allow("e2e.of-nobody")  # without a right to it nobody is told that it is not there
    serve = lab.serve().start()
    serve.wait_serving()
    reader = lab.read()
    target: SentHeaders = [("tarry-target", lab.targets[0].topic)]
    bad = {code: [*target, *headers] for code, headers in BAD.items()}
    bad |= {code: [*headers, ("tarry-delay-ms", "1")] for code, headers in BAD_TARGETS.items()}
    originals: dict[str, tuple[str, SentHeaders]] = {}
    for code, request in bad.items():
        headers: SentHeaders = [("trace", b"1"), ("trace", None), *request]
        _, source = produce_one(lab, code.encode(), b"k", headers)
        originals[code] = source, headers
        produce_one(lab, b"good", b"k", [*target, ("tarry-delay-ms", "10")])
    reader.wait_for(len(bad), 30)
    # A topic that a broker does not know does not exist where it is said again some seconds later.
    letters = f"{lab.intake}.dead"
    wait_until(lambda: len(read_topic(lab.bootstrap, letters)) >= len(bad), "each is a dead letter", 60)
    assert serve.stop() == 0

    assert {arrival.headers for arrival in reader.finish()} == {()}
    dead = {(record.value() or b"").decode(): record for record in read_topic(lab.bootstrap, letters)}
    assert dead.keys() == bad.keys()
    for code, record in dead.items():
        headers_of_dead: Any = record.headers()
        original = [(name, value.encode() if isinstance(value, str) else value) for name, value in originals[code][1]]
        assert headers_of_dead[: len(original)] == original, code
        added = dict(headers_of_dead[len(original) :])
        assert added["tarry-error"].decode() == code
        assert added["tarry-error-detail"]
        assert record.key() == b"k"
    results = [json.loads(record.value() or b"") for record in read_topic(lab.bootstrap, f"{lab.intake}.results")]
    reasons = {result["source"]: result["reason"] for result in results if result["outcome"] == "dead"}
    assert reasons == {source: code for code, (source, _) in originals.items()}
    assert sum(result["outcome"] == "fired" for result in results) == len(bad)


@pytest.mark.exhaustive
@pytest.mark.some_of("instance")
@pytest.mark.parametrize("instance", ["", "only"], ids=["dynamic", "static"])
def test_a_backlog_that_became_due_while_no_service_ran_arrives_in_due_order(lab: Lab, instance: str) -> None:
    serve = lab.serve(instance=instance).start()
    serve.wait_serving()
    assert serve.stop() == 0
    reader = lab.read()
    workload = lab.workload(keys=5, delays_ms=(0, 1_000))
    workload.send(3_000, 1.0)
    last_due_ms = max(record.due_ms for record in workload.produced())
    while time.time_ns() // 1_000_000 <= last_due_ms:
        time.sleep(0.01)
    assert not reader.poll()

    serve.start().wait_serving()
    report = verdict(workload, reader, [serve], all_read_before=True)
    report.assert_kept(ALL_WITH_A_KEY)
    stamps = sorted(arrival.seen_ms for arrival in reader.arrived)
    assert stamps[0] > last_due_ms
    assert stamps[-1] - stamps[0] <= 10_000, report
