"""Who is offered a result, and what runs on the event loop, without Kafka."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from tarry.api import health
from tarry.api.access.principal import ANYBODY
from tarry.api.console import login, pages
from tarry.api.results import Event, Listeners, Stream
from tarry.api.v1 import batch, events, lists, messages, targets, timers, waiting
from tarry.api.v1.events import Wish

TARGETS = ("orders", "invoices", "mails")
IDS = ("a", "b", "c")

WISHES = st.builds(Wish, st.just(ANYBODY), st.frozensets(st.sampled_from(TARGETS)), st.sampled_from((None, *IDS)))
RESULTS = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS)},
    optional={"target": st.sampled_from((*TARGETS, None, 7)), "schedule": st.sampled_from(IDS)},
)


@given(st.lists(WISHES, max_size=8), RESULTS)
def test_a_result_is_offered_to_whoever_wants_it(wishes: list[Wish], result: dict[str, Any]) -> None:
    listeners, streams = Listeners(), [(Stream(wish, {0: 5}), wish) for wish in wishes]
    for stream, wish in streams:
        listeners.add(stream, wish.among)
    assert {stream for stream, wish in streams if wish(result)} <= listeners.of(result)
    for stream, wish in streams:
        listeners.discard(stream, wish.among)
    assert not listeners
    assert not listeners.of(result)


def test_a_result_is_not_offered_to_those_who_ask_for_another_target() -> None:
    listeners = Listeners()
    streams = {target: Stream(lambda _result: True, {}) for target in TARGETS}
    everything = Stream(lambda _result: True, {})
    for target, stream in streams.items():
        listeners.add(stream, (target,))
    listeners.add(everything, ())
    assert listeners.of({"id": "a", "target": "orders"}) == {streams["orders"], everything}
    assert set(listeners) == {*streams.values(), everything}


def test_a_stream_goes_on_behind_what_it_was_not_offered() -> None:
    async def course() -> None:
        read = {0: 5, 1: 7}
        stream = Stream(lambda _result: True, read)
        read[0] = 9  # four results of others
        assert await stream.next(0.0) is None
        assert stream.positions == {0: 9, 1: 7}
        read[0] = 11
        stream.offer(Event(0, 10, {}, b""))
        assert await stream.next(0.0) == Event(0, 10, {}, b"")
        assert stream.joined == {0: 5, 1: 7}

    asyncio.run(course())


def calls(dependant: Dependant) -> Iterator[Callable[..., Any] | None]:
    """What a handler depends on, and the handler."""
    yield dependant.call
    for one in dependant.dependencies:
        yield from calls(one)


@pytest.mark.parametrize(
    "router",
    [
        pytest.param(one.router, id=one.__name__.rpartition(".")[2])
        for one in (batch, events, health, lists, login, messages, pages, targets, timers, waiting)
    ],
)
def test_nothing_of_a_request_runs_on_a_thread_of_the_framework(router: APIRouter) -> None:
    routes = [route for route in router.routes if isinstance(route, APIRoute)]
    assert routes
    on_threads = {call for route in routes for call in calls(route.dependant) if not inspect.iscoroutinefunction(call)}
    assert not on_threads
