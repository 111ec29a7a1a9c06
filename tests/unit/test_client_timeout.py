"""A call of a producer ends in time, whatever becomes of the client library: `timeout_s` holds always."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.client import AsyncDelayedProducer, DelayedMessage, DelayedProducer
from tarry.clock import SystemClock
from tarry.errors import BrokerError, FatalError, RetriableError

INTAKE = "tarry.delayed"
SECOND = timedelta(seconds=1)
HANDLE = f"1.{INTAKE}.0.1767225600000.8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
FOR_EVER_MS = 5_000
NO_REPORT = "no delivery report in time; it may or may not have been written"


class Silent:
    """A producer that takes records, and never says what became of them."""

    is_full = False
    has_topics = True

    def __init__(self, _properties: dict[str, Any]) -> None:
        self._clock = SystemClock()
        self._ends_ms = self._clock.monotonic_ms() + FOR_EVER_MS

    def __len__(self) -> int:
        return 1

    def list_topics(self, topic: str = "", **_more: Any) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)} if self.has_topics else {})

    def produce(self, *_record: Any, **_more: Any) -> None:
        assert self.has_topics, "sent to a topic that is not there"
        if self.is_full:
            raise BufferError

    def poll(self, _timeout_s: float) -> int:
        assert self._clock.monotonic_ms() < self._ends_ms, "who calls waits for ever"
        return 0

    def flush(self, _timeout_s: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.connection.Producer", Silent)
    for module in ("producer", "aio"):
        monkeypatch.setattr(f"tarry.client.{module}.REPORTS_WITHIN_S", 0)


def _send(producer: DelayedProducer) -> None:
    producer.send("orders", b"v", delay=SECOND)


def _cancel(producer: DelayedProducer) -> None:
    producer.cancel(HANDLE)


@pytest.mark.parametrize("call", [_send, _cancel])
@pytest.mark.parametrize(("is_full", "says"), [(False, NO_REPORT), (True, "no room in the producer's queue in time")])
def test_a_call_ends_without_a_report_and_without_room(
    call: Callable[[DelayedProducer], None], is_full: bool, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silent, "is_full", is_full)
    with DelayedProducer("nobody:1", INTAKE, timeout_s=0.05) as producer, pytest.raises(RetriableError, match=says):
        call(producer)


def test_a_coroutine_ends_without_a_report() -> None:
    async def run() -> None:
        async with AsyncDelayedProducer("nobody:1", INTAKE, timeout_s=0.05) as producer:
            await producer.send("orders", b"v", delay=SECOND)

    with pytest.raises(RetriableError, match=NO_REPORT):
        asyncio.run(run())


@pytest.mark.parametrize("call", [_send, _cancel])
def test_an_intake_that_is_not_there_is_told_in_time_and_nothing_is_sent(
    call: Callable[[DelayedProducer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silent, "has_topics", False)
    with (
        DelayedProducer("nobody:1", INTAKE, timeout_s=0.05) as producer,
        pytest.raises(BrokerError, match=f"^there is no topic {INTAKE}: check the name of the intake"),
    ):
        call(producer)


class Acknowledging(Silent):
    """A producer that tells what became of its records when it is flushed."""

    def __init__(self, properties: dict[str, Any]) -> None:
        super().__init__(properties)
        self._reports: list[Callable[[Any, Any], None]] = []

    def produce(self, *_record: Any, on_delivery: Callable[[Any, Any], None], **_more: Any) -> None:
        self._reports.append(on_delivery)

    def flush(self, _timeout_s: float) -> int:
        for offset, report in enumerate(self._reports):
            record = SimpleNamespace(timestamp=lambda: (1, 0), partition=lambda: 0, offset=lambda offset=offset: offset)
            report(None, record)
        return 0


def test_receipts_that_are_there_come_before_it_is_said_that_the_producer_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.client.connection.Producer", Acknowledging)
    producer = DelayedProducer("nobody:1", INTAKE)

    def messages() -> Iterator[DelayedMessage]:
        for value in (b"1", b"2"):
            yield DelayedMessage("orders", value, delay=SECOND)
        producer.close()
        yield DelayedMessage("orders", b"3", delay=SECOND)

    receipts = producer.send_many(messages())
    assert [next(receipts).offset, next(receipts).offset] == [0, 1]
    with pytest.raises(FatalError, match="closed"):
        next(receipts)
