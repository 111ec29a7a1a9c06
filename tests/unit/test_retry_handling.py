"""What a handler of a retrying consumer may return: its message is done only when all of its code has run."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from tarry.client.retry.core.journey import Journey
from tarry.client.retry.core.key_queue import Ticket
from tarry.client.retry.core.message import RetryMessage
from tarry.client.retry.handling import HandlerTransaction, Handling, Running
from tarry.errors import UsageError

JOURNEY = Journey("8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21", "tasks/0/7", Ticket(7, 0))
MESSAGE = RetryMessage("tasks", 0, 7, 0, b"k", b"v", [], JOURNEY.id, 1, JOURNEY, returned=False)


def handled_by(handler: Callable[..., Any]) -> Running:
    """Run a handler for a message to its end."""
    handling = Handling(handler)
    running = handling.start(MESSAGE)
    assert running.wait(30)
    handling.close()
    return running


async def coroutine_function(message: RetryMessage, transaction: HandlerTransaction, topic: str = "out") -> None:
    await asyncio.sleep(0)
    transaction.produce(topic, message.value)


class Callee:
    """An object whose call returns a coroutine."""

    async def __call__(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        await coroutine_function(message, transaction)


def decorated(message: RetryMessage, transaction: HandlerTransaction) -> Any:
    """A plain function that hides a coroutine function, as a decorator leaves it."""
    return coroutine_function(message, transaction)


class Work:
    """An awaitable that is no coroutine."""

    def __init__(self, message: RetryMessage, transaction: HandlerTransaction) -> None:
        self._coroutine = coroutine_function(message, transaction)

    def __await__(self) -> Generator[Any, None, None]:
        return self._coroutine.__await__()


@pytest.mark.parametrize(
    "handler",
    [coroutine_function, functools.partial(coroutine_function, topic="out"), Callee(), decorated, Work],
    ids=["coroutine function", "partial", "object", "decorated", "awaitable"],
)
def test_whatever_awaitable_a_handler_returns_is_awaited(handler: Callable[..., Awaitable[None]]) -> None:
    running = handled_by(handler)
    assert running.error is None
    assert [(record.topic, record.value) for record in running.produced] == [("out", b"v")]


def test_an_error_of_an_awaitable_is_the_handlers() -> None:
    async def fail(*_: object) -> None:
        raise OSError("away")

    running = handled_by(functools.partial(fail))
    assert isinstance(running.error, OSError)


@pytest.mark.parametrize("error", [None, OSError("away")])
def test_a_future_that_a_handler_returns_is_waited_for(error: OSError | None) -> None:
    future: Future[None] = Future()
    handling = Handling(lambda _message, _transaction: future)
    running = handling.start(MESSAGE)
    assert not running.wait(0)
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    assert running.wait(30)
    assert running.error is error
    handling.close()


def generator(message: RetryMessage, transaction: HandlerTransaction) -> Iterator[None]:
    transaction.produce("out", message.value)
    yield


async def async_generator(message: RetryMessage, transaction: HandlerTransaction) -> AsyncIterator[None]:
    transaction.produce("out", message.value)
    yield


@pytest.mark.parametrize("handler", [generator, async_generator, functools.partial(generator)])
def test_a_generator_counts_as_a_failure_because_its_code_has_not_run(handler: Callable[..., Any]) -> None:
    running = handled_by(handler)
    assert isinstance(running.error, UsageError)
    assert str(running.error) == ("the handler returned a generator, so its code has not run: it must not use `yield`")
    assert running.produced == []


def test_a_record_that_is_sent_after_the_handler_has_returned_is_refused_and_not_lost_silently() -> None:
    kept: list[HandlerTransaction] = []
    running = handled_by(lambda _message, transaction: kept.append(transaction))
    with pytest.raises(UsageError, match="the handler has returned"):
        kept[0].produce("out", b"v")
    assert running.produced == []
