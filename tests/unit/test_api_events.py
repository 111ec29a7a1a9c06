"""A stream of events that catches up with what was missed, without Kafka."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

import anyio
import pytest
from sse_starlette import ServerSentEvent

from tarry.api.access.principal import ANYBODY
from tarry.api.metrics import ApiMetrics
from tarry.api.results import Stream
from tarry.api.v1 import events
from tarry.api.v1.events import HEARTBEAT_S, Going, Streams, Wish
from tarry.config import Config
from tarry.testing import ManualClock

Chunk = tuple[list[tuple[int, dict[str, Any]]], int, int]
"""Results with their offsets, where the next chunk begins, and the first offset that there is."""

END = 3_000
WISH = Wish(ANYBODY, frozenset({"orders"}), None)


def said_of(
    look: Callable[[ManualClock], Awaitable[Chunk]],
    course: Callable[[AsyncIterator[ServerSentEvent]], Awaitable[None]],
    may_go_on: Callable[[], bool] = lambda: True,
    *,
    since: Mapping[int, int] = MappingProxyType({0: 0}),
    ends: Mapping[int, int] = MappingProxyType({0: END}),
) -> None:
    """Let a stream catch up to the ends of partitions by chunks, and follow what it says after its first event."""

    @asynccontextmanager
    async def listen(_wish: Wish, among: object) -> AsyncIterator[Stream]:
        assert among
        yield Stream(lambda _result: True, ends)

    async def run() -> None:
        clock = ManualClock(0)
        parts: Any = SimpleNamespace(
            clock=clock,
            settings=Config(),
            metrics=ApiMetrics(),
            results=lambda _intake: SimpleNamespace(listen=listen),
            look=lambda _chunk: look(clock),
        )
        streams = Streams(parts)
        streams.open(ANYBODY)
        going = Going(parts, "in", WISH, dict(since), may_go_on, anyio.Event())
        async with aclosing(going.events(streams)) as said:
            await anext(said)
            await course(said)

    asyncio.run(run())


def text(event: ServerSentEvent) -> str:
    return event.encode().decode()


def test_while_it_reads_what_others_want_it_gives_signs_of_life_that_say_how_far_it_is() -> None:
    ends = iter((1_000, 2_000, 3_000))

    async def look(clock: ManualClock) -> Chunk:
        clock.advance(int(HEARTBEAT_S * 1_000))
        end = next(ends)
        return [(end - 1, {"id": "a", "target": "another"})], end, 0

    async def course(said: AsyncIterator[ServerSentEvent]) -> None:
        for done in (1_000, 2_000):
            event = text(await anext(said))
            assert ": still here" in event
            assert f"id: 0:{done}" in event

    said_of(look, course)


def test_while_kafka_does_not_answer_it_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    answers = asyncio.Event()

    async def look(_clock: ManualClock) -> Chunk:
        await answers.wait()
        return [(END - 1, {"id": "a", "target": "orders"})], END, 0

    async def course(said: AsyncIterator[ServerSentEvent]) -> None:
        assert ": still here" in text(await anext(said))
        answers.set()
        event = text(await anext(said))
        while ": still here" in event:
            event = text(await anext(said))
        assert "event: result" in event

    said_of(look, course)


def test_a_listener_whose_token_has_ended_does_not_catch_up_to_the_end() -> None:
    ends = iter((1_000, 2_000, 3_000))

    async def look(clock: ManualClock) -> Chunk:
        clock.advance(int(HEARTBEAT_S * 1_000))
        return [], next(ends), 0

    async def course(said: AsyncIterator[ServerSentEvent]) -> None:
        assert "event: end" in text(await anext(said))
        assert next(ends) == 2_000

    said_of(look, course, lambda: False)


def test_a_partition_that_was_added_meanwhile_is_read_from_its_begin() -> None:
    async def look(_clock: ManualClock) -> Chunk:
        return [(0, {"id": "a", "target": "orders"})], 10, 0

    async def course(said: AsyncIterator[ServerSentEvent]) -> None:
        event = text(await anext(said))
        assert "event: result" in event
        assert f"id: 0:{END},1:1" in event

    said_of(look, course, since={0: END}, ends={0: END, 1: 10})
