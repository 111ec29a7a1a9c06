"""`GET /v1/events`: the results of an intake as they are written, as server-sent events.

The id of an event is the offsets of the results that come next, so a stream that breaks off resumes without a gap
(`Last-Event-ID`) while Kafka keeps the results. What was missed is read first, then what came meanwhile. A listener
that is too slow is ended with an event `lagging`: it may resume.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import HTTPConnection

from tarry.api.access.gate import Credential, Gate, credential_of, gate_of
from tarry.api.access.identity import Asker
from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import Parts, given, parts_of
from tarry.api.problems import ProblemError
from tarry.api.results import Event, Stream
from tarry.api.v1.answers import problems, shown_result
from tarry.api.v1.body import Topic
from tarry.api.v1.intakes import Intakes, intakes_of
from tarry.api.v1.rights import may_see
from tarry.client.outcome import parsed_result
from tarry.errors import TarryError
from tarry.kafka.inspector import Inspector

router = APIRouter(tags=["events"])

HEARTBEAT_S: Final = 15.0
"""How long a stream is silent at most; as often it is looked at whether it may go on."""

MISSED_AT_ONCE: Final = 1_000
"""How many results are read at once that were missed."""

STOPS_WITHIN_S: Final = 2.0
"""How long a stream has to say that its server stops."""

MOST_TARGETS: Final = 100
RETRY_MS: Final = 3_000
_POSITIONS: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(,[0-9]{1,10}:[0-9]{1,19}){0,9999}")


class Chosen(BaseModel):
    """Which results are asked for."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    intake: Topic | None = Field(default=None, description="Needed where there are several.")
    target: list[Topic] = Field(
        default_factory=list, max_length=MOST_TARGETS, description="Only of messages for these targets."
    )
    id: str | None = Field(default=None, max_length=36, description="Only of this message, or of this schedule.")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a listener wants.

    Attributes:
        principal: who it is.
        targets: only results of messages for these; none: of all that the principal may see.
        id: only results of this id, or of this schedule; None: of all.
    """

    principal: Principal
    targets: frozenset[str]
    id: str | None

    @property
    def among(self) -> Collection[str]:
        """The ids or targets of which each wanted result has one; none: it may have any."""
        return self.targets if self.id is None else (self.id,)

    def __call__(self, result: Mapping[str, Any]) -> bool:
        """Return whether a result is wanted, and may be seen."""
        target = result.get("target")
        if self.targets and target not in self.targets:
            return False
        if self.id is not None and self.id not in (result.get("id"), result.get("schedule")):
            return False
        return may_see(self.principal, target if isinstance(target, str) else None)


class Streams:
    """How many streams there are. For the event loop only.

    Args:
        parts: the limits, and the figures.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._of: dict[str, int] = {}

    def open(self, principal: Principal) -> None:
        """Count a stream.

        Raises:
            ProblemError: there are too many.
        """
        api, count = self._parts.settings.api, self._of.get(principal.name, 0)
        if count >= api.streams or sum(self._of.values()) >= api.all_streams:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many streams of events at this replica: see api.streams and api.all_streams",
                headers={"Retry-After": "15"},
            )
        self._of[principal.name] = count + 1
        self._parts.metrics.streams.inc()

    def close(self, principal: Principal, why: str) -> None:
        """Count the end of a stream."""
        self._of[principal.name] -= 1
        if not self._of[principal.name]:
            del self._of[principal.name]
        self._parts.metrics.streams.dec()
        self._parts.metrics.streams_ended.labels(why).inc()


def streams_of(connection: HTTPConnection) -> Streams:
    """Return the streams of the application that handles a request; a FastAPI dependency."""
    found: Streams = connection.app.state.streams
    return found


@router.get(
    "/events",
    response_class=EventSourceResponse,
    response_model=None,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **problems()},
    summary="Results as they come",
)
async def events(
    request: Request,
    asker: Asker,
    parts: Annotated[Parts, given(parts_of)],
    gate: Annotated[Gate, given(gate_of)],
    intakes: Annotated[Intakes, given(intakes_of)],
    streams: Annotated[Streams, given(streams_of)],
    chosen: Annotated[Chosen, Query()],
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=16_384)] = None,
) -> EventSourceResponse:
    """Stream the results of messages that the asker may see; events `result`, `lagging`, `gap` and `end`."""
    topic = intakes.named(chosen.intake, for_sending=False)
    wish = Wish(asker, frozenset(chosen.target), None if chosen.id is None else chosen.id.lower())
    _check_wish(wish)
    since = _positions(last_event_id)
    if since is not None and max(since) >= await intakes.partitions(topic):
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "Last-Event-ID: it is of another intake")
    streams.open(asker)
    stops = anyio.Event()
    going = Going(parts, topic, wish, since, partial(_holds, gate, credential_of(request)), stops)
    found = going.events(streams)
    # Before the answer begins: whoever has its head misses nothing from then on.
    first = await anext(found)
    # A listener that reads nothing must not hold its stream.
    return EventSourceResponse(
        _after(first, found),
        ping=0,
        send_timeout=2 * HEARTBEAT_S,
        headers={"Cache-Control": "no-store"},
        shutdown_event=stops,
        shutdown_grace_period=STOPS_WITHIN_S,
    )


async def _after(
    first: ServerSentEvent, others: AsyncGenerator[ServerSentEvent, None]
) -> AsyncGenerator[ServerSentEvent, None]:
    async with aclosing(others):
        yield first
        async for event in others:
            yield event


def _check_wish(wish: Wish) -> None:
    principal = wish.principal
    for one in wish.targets:
        if not may_see(principal, one):
            raise ProblemError(HTTPStatus.FORBIDDEN, f"{principal.name} has neither look nor send for {one}")
    if not (principal.has(Scope.LOOK) or principal.has(Scope.SEND)):
        raise ProblemError(HTTPStatus.FORBIDDEN, f"{principal.name} has neither look nor send")


def _holds(gate: Gate, credential: Credential | None) -> bool:
    return credential is None or gate.holds(credential)


class Going:
    """One stream.

    Args:
        parts: the results, the clock and the figures.
        intake: whose results.
        wish: which of them.
        since: from which offsets on, by partition; None: from now on.
        may_go_on: whether the listener may still listen.
        stops: is set when the server stops.
    """

    def __init__(
        self,
        parts: Parts,
        intake: str,
        wish: Wish,
        since: dict[int, int] | None,
        may_go_on: Callable[[], bool],
        stops: anyio.Event,
    ) -> None:
        self._stops = stops
        self._parts = parts
        self._intake = intake
        self._wish = wish
        self._since = since
        self._may_go_on = may_go_on
        self._looked_ms = self._said_ms = parts.clock.monotonic_ms()

    async def events(self, streams: Streams) -> AsyncGenerator[ServerSentEvent, None]:
        """Yield the events; the first one says that this listens now.

        Raises:
            TarryError: the results cannot be read, before the first event.
        """
        why, has_begun = "gone", False
        try:
            async with self._parts.results(self._intake).listen(self._wish, among=self._wish.among) as stream:
                has_begun = True
                yield ServerSentEvent(
                    comment="results", id=None if self._since else _id(stream.positions), retry=RETRY_MS
                )
                watching = asyncio.create_task(self._end_with_the_server(stream))
                try:
                    async for event in self._all(stream):
                        if not self._goes_on():
                            why = "ended"
                            yield _end("the token or session has ended")
                            return
                        yield event
                finally:
                    watching.cancel()
                if stream.is_over:
                    why = "stopping"
                    yield _end("this replica stops")
                else:
                    why = "lagging"
                    yield ServerSentEvent(event="lagging", data='{"reason":"this stream was read too slowly"}')
        except TarryError as error:
            why = "kafka"
            if not has_begun:
                raise
            self._parts.on_event("stream_failed", intake=self._intake, error=str(error))
            yield _end("the results cannot be read now")
        finally:
            streams.close(self._wish.principal, why)

    async def _end_with_the_server(self, stream: Stream) -> None:
        await self._stops.wait()
        stream.end()

    async def _all(self, stream: Stream) -> AsyncIterator[ServerSentEvent]:
        """Yield what was missed, then what comes, and a sign of life; end when the listener is too slow."""
        if self._since is not None:
            async for event in self._missed(stream, self._since):
                yield event
            if stream.is_over:  # what came meanwhile lies behind what is still missed
                return
        while True:
            found = await stream.next(HEARTBEAT_S)
            if found is not None:
                yield self._event(stream, found)
            elif stream.is_lagging or stream.is_over:
                return
            else:
                yield _sign_of_life(stream.positions)

    def _goes_on(self) -> bool:
        """Note that something is said; look from time to time whether the listener may still listen."""
        self._said_ms = now_ms = self._parts.clock.monotonic_ms()
        if now_ms - self._looked_ms < HEARTBEAT_S * 1_000:
            return True
        self._looked_ms = now_ms
        return self._may_go_on()

    def _event(self, stream: Stream, found: Event) -> ServerSentEvent:
        self._parts.metrics.events.inc()
        return _sse(self._wish.principal, found.result, stream.positions)

    async def _missed(self, stream: Stream, since: dict[int, int]) -> AsyncIterator[ServerSentEvent]:
        """Yield what was written between two positions, and a sign of life while that is nothing for this listener."""
        # A partition that an id does not name was added since: all of it was missed.
        positions = {partition: since.get(partition, 0) for partition in stream.joined}
        for partition, end in stream.joined.items():
            while positions[partition] < end and not stream.is_over:
                begin = positions[partition]
                chunk = partial(_chunk, place=(self._intake, partition), begin=begin, end=end)
                reading = asyncio.ensure_future(self._parts.look(chunk))
                try:
                    while (
                        not (rest_s := self._may_be_silent_s())
                        or not (await asyncio.wait([reading], timeout=rest_s))[0]
                    ):
                        yield _sign_of_life(positions)
                    found, after, first = reading.result()
                finally:
                    reading.cancel()
                if first > begin:
                    yield ServerSentEvent(
                        event="gap", data=json.dumps({"partition": partition, "from": begin, "to": first})
                    )
                for offset, result in found:
                    positions[partition] = offset + 1
                    if self._wish(result):
                        self._parts.metrics.events.inc()
                        yield _sse(self._wish.principal, result, positions)
                positions[partition] = max(after, positions[partition])

    def _may_be_silent_s(self) -> float:
        """Return for how long nothing need be said."""
        return max(0.0, HEARTBEAT_S - (self._parts.clock.monotonic_ms() - self._said_ms) / 1_000)


def _chunk(
    inspector: Inspector, place: tuple[str, int], begin: int, end: int
) -> tuple[list[tuple[int, dict[str, Any]]], int, int]:
    """Read some results; on a thread.

    Returns:
        The results with their offsets; the offset to go on at; and the first offset that Kafka still has.
    """
    first = inspector.first_result(place)
    found: list[tuple[int, dict[str, Any]]] = []
    at = max(begin, first)
    for offset, value in inspector.results_from(place, at, end):
        if result := parsed_result(value):
            found.append((offset, result))
        if len(found) >= MISSED_AT_ONCE:
            return found, offset + 1, min(first, end)
    return found, end, min(first, end)


def _sign_of_life(positions: Mapping[int, int]) -> ServerSentEvent:
    return ServerSentEvent(comment="still here", id=_id(positions))


def _end(reason: str) -> ServerSentEvent:
    return ServerSentEvent(event="end", data=json.dumps({"reason": reason}))


def _sse(principal: Principal, result: dict[str, Any], positions: Mapping[int, int]) -> ServerSentEvent:
    data = json.dumps(shown_result(result, principal), separators=(",", ":"))
    return ServerSentEvent(event="result", data=data, id=_id(positions))


def _id(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _positions(text: str | None) -> dict[int, int] | None:
    """Read an event's id.

    Raises:
        ProblemError: it is none.
    """
    if text is None or not text.strip():
        return None
    if not _POSITIONS.fullmatch(text):
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "Last-Event-ID: not the id of an event of this stream")
    return {int(one): int(offset) for one, _, offset in (part.partition(":") for part in text.split(","))}
