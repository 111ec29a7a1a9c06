"""Lines of the log: one write each, and no flood of the client library's."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from tarry import logs
from tarry.kafka.settings import Cluster


class Pipe(io.StringIO):
    """Notes each write: what several processes write to one pipe is mixed between writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging is global: leave it as it was."""
    library = logging.getLogger("librdkafka")
    before = (library.handlers, library.level, library.propagate)
    filters, library.filters = library.filters, []
    yield
    library.filters = filters
    library.handlers, library.propagate = before[0], before[2]
    library.setLevel(before[1])
    structlog.reset_defaults()


def stderr(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Take the place of stderr; within the test, for pytest puts its own there after the fixtures."""
    pipe = Pipe()
    monkeypatch.setattr(sys, "stderr", pipe)
    return pipe


def lines(pipe: Pipe) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pipe.getvalue().splitlines()]


def say(text: str, at_s: float) -> None:
    """A line of the client library's, at a time."""
    logger = logging.getLogger("librdkafka")
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, text, (), None)
    record.created = at_s
    logger.handle(record)


def test_each_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = stderr(monkeypatch)
    logger = logs.configure(process=3)
    logger.info("serving", partitions=["in/0"])
    logger.info("revoked")
    assert [write.count("\n") for write in pipe.writes] == [1, 1]
    assert [(line["event"], line["process"]) for line in lines(pipe)] == [("serving", 3), ("revoked", 3)]


def test_a_line_that_comes_again_and_again_is_thinned_out_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = stderr(monkeypatch)
    logs.configure()
    for number in range(500):
        say(f"consumer-{number % 3}: Connect to 127.0.0.1:{number} failed", 1_000 + number / 10)
    say("something else", 1_001)
    found = [(line["text"].partition(":")[0], line.get("left_out", 0)) for line in lines(pipe)]
    assert found == [
        ("consumer-0", 0),
        ("consumer-1", 99),
        ("consumer-2", 99),
        ("consumer-0", 99),
        ("consumer-1", 99),
        ("something else", 0),
    ]


def test_the_lines_of_an_applications_clients_are_thinned_out_as_well(caplog: pytest.LogCaptureFixture) -> None:
    Cluster("127.0.0.1:1").client()
    for number in range(500):
        say(f"consumer-1: Connect to 127.0.0.1:{number} failed", 1_000 + number / 10)
    assert len(caplog.records) == 5


def test_events_that_need_an_operator_are_not_logged_as_info(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = stderr(monkeypatch)
    speak = logs.speaker(logs.configure())
    for event in ("clock_ahead", "dead_letter_refused", "buckets_closed"):
        speak(event)
    assert [line["level"] for line in lines(pipe)] == ["error", "warning", "info"]


def test_an_event_that_comes_with_each_try_is_thinned_out_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = stderr(monkeypatch)
    now_s = [100.0]
    speak = logs.speaker(logs.configure(), lambda: now_s[0])
    for number in range(41):
        speak("take_over_refused", reason=f"no answer from broker {number}")
        speak("fencing", topic="in", partition=number % 2)
        now_s[0] += 0.5
    speak("take_over_refused", reason="another reason")
    refused = [line for line in lines(pipe) if line["event"] == "take_over_refused"]
    assert [line.get("left_out", 0) for line in refused] == [0, 19, 19, 0]
    assert [line["event"] for line in lines(pipe)].count("fencing") == 41


def test_each_event_that_has_a_level_is_documented() -> None:
    table = (Path(__file__).parents[2] / "docs/operations.md").read_text(encoding="utf-8")
    named = {name for row in table.splitlines() if row.startswith("| `") for name in re.findall(r"`([a-z_]+)`", row)}
    assert {*logs.ERRORS, *logs.WARNINGS} <= named
    assert not logs.ERRORS & logs.WARNINGS
    assert logs.REPEATED <= logs.WARNINGS
