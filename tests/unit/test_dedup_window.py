"""The window of ids against a naive one, and what stands on it."""

from datetime import timedelta
from importlib import util
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.dedup import Deduplicator, DedupWindow, DeliveredMessage, PostgresSink
from tarry.errors import ConfigError
from tarry.testing import ManualClock

ID = "0b9f6b0e-7e55-4c1c-9d4c-1f0f5e0a4a77"
KEEP_MS = 10


def record(topic: str = "orders", /, **headers: bytes) -> DeliveredMessage:
    pairs: Any = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return DeliveredMessage.of(Message(topic, 3, 5, b"k", b"v", pairs, None, (1, 17)))


@given(
    most=st.integers(1, 5),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(-2, 6)), max_size=60),
)
def test_a_window_knows_what_a_list_of_all_that_was_added_knows(most: int, steps: list[tuple[bool, int, int]]) -> None:
    window: DedupWindow[int] = DedupWindow(most, KEEP_MS)
    added: list[tuple[int, int]] = []
    now_ms = latest_ms = 0
    for is_addition, key, step_ms in steps:
        now_ms += step_ms
        latest_ms = max(now_ms, latest_ms)
        added = [one for one in added if latest_ms - one[1] < KEEP_MS]
        is_known = key in {known for known, _ in added}
        if is_addition:
            assert window.add(key, now_ms) is not is_known
            added = added if is_known else [*added, (key, latest_ms)][-most:]
        else:
            assert window.knows(key, now_ms) is is_known
        assert len(window) == len(added) <= most


@pytest.mark.parametrize(("most", "keep_ms"), [(0, 1), (1, 0)])
def test_a_window_without_room_is_refused(most: int, keep_ms: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DedupWindow(most, keep_ms)
    with pytest.raises(ValueError, match="at least 1"):
        Deduplicator(most, timedelta(milliseconds=keep_ms))


def test_a_message_counts_as_new_until_it_is_done_and_again_when_its_time_is_over() -> None:
    clock = ManualClock()
    deduplicator = Deduplicator(keep=timedelta(milliseconds=KEEP_MS), clock=clock)
    message = record(tarry_id=ID.encode())
    assert deduplicator.is_new(message)
    assert deduplicator.is_new(message)
    deduplicator.done(message)
    assert not deduplicator.is_new(message)
    assert deduplicator.is_new(record("bills", tarry_id=ID.encode())), "each topic has ids of its own"
    clock.sleep(KEEP_MS / 1000)
    assert deduplicator.is_new(message)


def test_a_message_without_an_id_is_always_new() -> None:
    deduplicator = Deduplicator()
    message = record()
    deduplicator.done(message)
    assert deduplicator.is_new(message)


def test_a_delivered_message_says_what_the_service_has_written() -> None:
    headers = {"tarry_id": ID.upper().encode(), "tarry_due_ms": b"1700", "tarry_source": b"in/0/9"}
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    assert record(**headers) == ("orders", 3, 5, 17, b"k", b"v", pairs, ID, 1700, "in/0/9")
    assert record(tarry_id=b"no", tarry_due_ms=b"soon")[-3:] == (None, None, None)


def test_a_sink_without_psycopg_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.dedup.sink.find_spec", lambda name: None if name == "psycopg" else util.find_spec)
    with pytest.raises(ConfigError, match=r"^PostgresSink needs psycopg: pip install 'tarry\[postgres\]'$"):
        PostgresSink("localhost:1", ["orders"], "billing", "", print)


@pytest.mark.parametrize(
    ("what", "value"), [("topics", "orders"), ("batch", 0), ("begin", "middle"), ("group_protocol", "own")]
)
def test_a_setting_that_makes_no_sense_is_named(what: str, value: Any) -> None:
    settings: Any = {"topics": ["orders"], what: value}
    with pytest.raises(ConfigError, match=f"^{what}: "):
        PostgresSink("localhost:1", group="billing", conninfo="", write=print, **settings)
