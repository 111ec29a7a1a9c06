"""`POST /v1/messages:batch`: many messages, one in each line; the answer has a line for each, in their order.

Lines are read as they come, and at most some hundred are on their way to Kafka at the same time: whoever sends faster
waits. Lines of one key take turns until the client library has them, so Kafka gets them in their order. Answers are
held for a sender that reads them only when it has sent all; after some ten thousand it must read.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.api.access.authentication import rates_of
from tarry.api.access.gate import Credential, Gate, credential_of, gate_of
from tarry.api.access.identity import Asker, demand
from tarry.api.access.load import BODY_WITHIN_S
from tarry.api.access.principal import Principal
from tarry.api.access.principal import Scope as Needed
from tarry.api.access.protection import BATCH
from tarry.api.parts import Parts, given, parts_of
from tarry.api.problems import Code, ProblemError, faults_text, problem_of, unexpected
from tarry.api.protocol import READ_LATE
from tarry.api.v1.answers import problems
from tarry.api.v1.body import Line
from tarry.api.v1.sending import Answer, Order, Sending, sending_of
from tarry.api.v1.turns import OneAtATime
from tarry.errors import TarryError

router = APIRouter(tags=["messages"])

UNDER_WAY: Final = 256
"""How many lines of a request are on their way to Kafka at the same time."""

HELD: Final = 10_000
"""How many answers are held for a sender that does not read them yet."""

HELD_BYTES: Final = 8 * 2**20
"""How many bytes of lines are under way at the same time."""

_TYPE: Final = "application/x-ndjson"


@router.post(
    BATCH.removeprefix("/v1"),
    response_class=Response,
    response_model=None,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {_TYPE: {"schema": {"type": "string", "description": "A message in each line, as JSON."}}},
        }
    },
    responses={200: {"content": {_TYPE: {"schema": {"type": "string"}}}}, **problems()},
    summary="Send many messages",
)
async def batch(
    request: Request,
    asker: Asker,
    sending: Annotated[Sending, given(sending_of)],
    parts: Annotated[Parts, given(parts_of)],
    gate: Annotated[Gate, given(gate_of)],
) -> Response:
    """Send the messages of the lines; answer each line with its number and its receipt, or with its problem.

    The last line of the answer has `lines` and `accepted`: without it, the request was broken off.
    """
    demand(asker, Needed.SEND)
    one = _Batch(request, asker, sending, parts, gate, credential_of(request))
    return _Lines(one)


class _Batch:
    """One request."""

    def __init__(
        self,
        request: Request,
        principal: Principal,
        sending: Sending,
        parts: Parts,
        gate: Gate,
        credential: Credential | None,
    ) -> None:
        self._request = request
        self._principal = principal
        self._sending = sending
        self._parts = parts
        self._gate = gate
        self._credential = credential
        self._rates = rates_of(request)
        self._keys = OneAtATime()
        self._under_way = asyncio.Semaphore(UNDER_WAY)
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._answers: asyncio.Queue[asyncio.Task[dict[str, Any]] | None] = asyncio.Queue(HELD)
        self._fault: ProblemError | None = None
        self._lines = self._accepted = 0

    async def answers(self) -> AsyncGenerator[bytes, None]:
        """Read the lines, and yield the answers."""
        reading = asyncio.create_task(self._read())
        try:
            while (task := await self._answers.get()) is not None:
                fields = await task
                self._accepted += "id" in fields
                yield _line(fields)
            await reading
            if self._fault is not None:
                yield _line({"line": self._lines + 1, **self._fault.body()})
            yield _line({"lines": self._lines, "accepted": self._accepted, "complete": self._fault is None})
        finally:
            # If the sender has gone: what is on its way to Kafka goes on; nothing more is read.
            reading.cancel()

    async def _read(self) -> None:
        try:
            async for line in self._split():
                self._lines += 1
                await self._room(len(line))
                task = asyncio.create_task(self._one(self._lines, line))
                task.add_done_callback(partial(self._done, len(line)))
                await self._answers.put(task)
        except ProblemError as problem:
            self._fault = problem
        except ClientDisconnect:
            self._fault = ProblemError(HTTPStatus.BAD_REQUEST, "the sender has gone")
        finally:
            await self._answers.put(None)

    async def _room(self, size: int) -> None:
        """Wait until another line may be on its way."""
        await self._under_way.acquire()
        while self._bytes and self._bytes + size > HELD_BYTES:
            self._has_room.clear()
            await self._has_room.wait()
        self._bytes += size
        await self._rates.taken(self._principal.name)
        if self._credential is not None and not self._gate.holds(self._credential):
            self._done(size)
            raise ProblemError(HTTPStatus.UNAUTHORIZED, "the token has ended")

    def _done(self, size: int, _task: object = None) -> None:
        self._under_way.release()
        self._bytes -= size
        self._has_room.set()

    async def _split(self) -> AsyncIterator[bytes]:
        """Yield the lines that are not empty; refuse one that is too long."""
        most, rest = self._parts.settings.api.max_body_bytes, b""
        chunks = self._request.stream()
        while True:
            try:
                async with asyncio.timeout(BODY_WITHIN_S):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise ProblemError(HTTPStatus.REQUEST_TIMEOUT, "no line came for long", Code.TOO_SLOW) from None
            if chunk is None:
                break
            *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
            for line in lines:
                if line.strip():
                    yield _bounded(line, most)
            _bounded(rest, most)
        if rest.strip():
            yield rest

    async def _one(self, number: int, line: bytes) -> dict[str, Any]:
        """Send one line; return its answer."""
        try:
            try:
                body = Line.model_validate_json(line)
            except ValidationError as error:
                raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, _fault_text(error)) from None
            answer = await self._sent(self._sending.order(body, None, 0, "batch"))
        except ProblemError as problem:
            return {"line": number, **problem.body()}
        except TarryError as error:
            return {"line": number, **problem_of(error).body()}
        except Exception:  # noqa: BLE001 - the program is wrong: the other lines go on, and the log has it
            self._parts.on_event("request_failed", line=number, exc_info=True)
            return {"line": number, **unexpected().body()}
        return {"line": number, "status": int(answer.status), **answer.fields}

    async def _sent(self, order: Order) -> Answer:
        """Send a message, after those of its key in the lines before it."""
        if order.key is None:
            return await self._sending.send(self._principal, order)
        async with self._keys.turn(order.intake, order.key) as end_turn:
            return await self._sending.send(self._principal, replace(order, on_queued=end_turn))


class _Lines(Response):
    """An answer that is written while the request is read: Starlette's own would read the request away."""

    def __init__(self, one: _Batch) -> None:
        super().__init__(media_type=_TYPE)
        del self.headers["content-length"]
        self._one = one

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Write the lines as they are known."""
        scope["state"][READ_LATE] = True
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._one.answers()) as lines:
            async for line in lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _bounded(line: bytes, most: int) -> bytes:
    if len(line) > most:
        raise ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the line has more than {most} bytes")
    return line


def _fault_text(error: ValidationError) -> str:
    return faults_text((one["loc"] or ("line",), one) for one in error.errors(include_input=False))


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
