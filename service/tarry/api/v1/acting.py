"""Cancelling and moving messages: by handle, or by key and name."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from tarry.api.access.principal import Principal
from tarry.api.operations.moving import EPOCH, moved_message
from tarry.api.parts import Parts
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError, is_open
from tarry.api.results import Stream
from tarry.api.v1.answers import receipt_fields
from tarry.api.v1.finding import Finding
from tarry.api.v1.intakes import Intakes
from tarry.api.v1.rights import may_change, may_change_any, refuse_to_change
from tarry.api.v1.turns import OneAtATime
from tarry.client import CancelReceipt, DelayedMessage, NameCancelReceipt, Receipt
from tarry.client.outcome.result import Wanted
from tarry.errors import BrokerError, HeaderError, UsageError
from tarry.handle import Handle
from tarry.headers import Outcome
from tarry.kafka.whereabouts import is_replaced

if TYPE_CHECKING:
    from tarry.api.producer import ApiProducer

_DECIDED_WITHIN_MS: Final = 10_000
"""How long to wait for the decision about a named message that is moved: it comes at once."""


class Acting:
    """Cancels and moves messages. For the event loop only.

    Args:
        parts: the clients.
        intakes: the configured intakes.
        finding: finds messages.
        turns: gives turns on messages, by intake and id.
    """

    def __init__(self, parts: Parts, intakes: Intakes, finding: Finding, turns: OneAtATime) -> None:
        self._parts = parts
        self._intakes = intakes
        self._finding = finding
        self._turns = turns

    async def check(self, principal: Principal, handle: Handle) -> None:
        """Check the rights on a message.

        Raises:
            ProblemError: the principal may not change it, or it is not known.
        """
        if may_change_any(principal):
            return
        found, _ = await self._finding.find(handle)
        if found.message is None and found.result is None:
            raise ProblemError(HTTPStatus.NOT_FOUND, "the message is not waiting and has no result")
        target = found.message.target if found.message is not None else (found.result or {}).get("target")
        if not may_change(principal, target):
            raise refuse_to_change(principal)

    async def cancel(self, principal: Principal, handle: Handle, wait_ms: int) -> JSONResponse:
        """Cancel a message; the rights were checked.

        Raises:
            ProblemError: it was too late, or Kafka does not take the cancel.
        """
        del principal
        intake = self._sendable(handle.topic)
        async with (
            self._turns.turn(intake, handle.id) as end_turn,
            self._listening(intake, handle.id.encode() if wait_ms else None) as stream,
        ):
            receipt = await self._sent(intake, lambda producer: producer.cancel(handle))
            end_turn()
            result = None if stream is None else await self._answer(stream, receipt, wait_ms)
        fields = {"handle": str(handle), "state": "accepted", "cancel_source": receipt.source}
        return _cancelled(fields, result)

    async def cancel_named(self, intake: str, key: bytes, name: str, wait_ms: int) -> JSONResponse:
        """Cancel the message that waits under a name; the rights were checked.

        Raises:
            ProblemError: none waits, or Kafka does not take the cancel.
        """
        reader = self._parts.results(intake)
        wants = {Outcome.CANCELLED, Outcome.CANCEL_TOO_LATE, Outcome.DEAD}
        try:
            # Its id follows from the place that it will have, so it is not known before.
            async with reader.listen(lambda result: result.get("outcome") in wants) as stream:
                receipt = await self._sent(intake, lambda producer: producer.cancel_named(key, name))
                result = await self._answer(stream, receipt, wait_ms) if wait_ms else None
        except UsageError as error:
            raise _cannot_wait(error) from error
        fields = {"id": receipt.id, "state": "accepted", "source": receipt.source}
        return _cancelled(fields, result, too_late=HTTPStatus.NOT_FOUND)

    async def move(
        self, principal: Principal, handle: Handle, at_ms: int, wait_ms: int, on_act: Callable[..., None]
    ) -> JSONResponse:
        """Let a waiting message be due at another time.

        Args:
            principal: who asks.
            handle: of the message.
            at_ms: when it shall be due.
            wait_ms: how long to wait for the answer to the cancel.
            on_act: called when it is allowed, for the audit log.

        Raises:
            ProblemError: it does not wait, it cannot be moved, or the principal may not.
        """
        intake = self._sendable(handle.topic)
        async with self._turns.turn(intake, handle.id) as end_turn:
            message = await self._movable(principal, intake, handle, at_ms)
            on_act(handle=str(handle), to_ms=at_ms)
            if message.name is not None:
                return await self._replace(intake, handle, message, end_turn)
            async with self._listening(intake, handle.id.encode() if wait_ms else None) as stream:
                moved = await self._sent(intake, lambda producer: producer.reschedule(handle, message))
                end_turn()
                result = None if stream is None else await self._answer(stream, moved.cancel, wait_ms)
        outcome = None if result is None else result.get("outcome")
        # Only a definite answer to the cancel excludes that the old one is delivered, too.
        twice = {Outcome.CANCELLED: "no", Outcome.CANCEL_TOO_LATE: "yes"}.get(Outcome(outcome or "scheduled"), "maybe")
        fields = {**self._receipt(moved.sent), "moved_from": str(handle), "cancel": outcome, "twice": twice}
        return JSONResponse(fields, HTTPStatus.OK if twice == "no" else HTTPStatus.ACCEPTED)

    async def _movable(self, principal: Principal, intake: str, handle: Handle, at_ms: int) -> DelayedMessage:
        """Return the message that takes the place of one that waits.

        Raises:
            ProblemError: as `move`.
        """
        found, content = await self._finding.find(handle, with_content=True)
        waiting = found.message
        if waiting is None:
            outcome = None if found.result is None else found.result.get("outcome")
            status = HTTPStatus.NOT_FOUND if outcome is None else HTTPStatus.CONFLICT
            raise ProblemError(status, f"the message does not wait: {outcome or 'unknown'}")
        if not may_change(principal, waiting.target):
            raise refuse_to_change(principal)
        if waiting.repeated is not None:
            raise ProblemError(
                HTTPStatus.CONFLICT, "an occurrence of a schedule: replace the schedule instead, by its key and name"
            )
        if found.cancel_waits and waiting.name is None:
            raise ProblemError(
                HTTPStatus.CONFLICT, "a cancel of this message waits: to move it now would send it once more"
            )
        if waiting.name is None and handle.due_ms <= self.now_ms():
            raise ProblemError(HTTPStatus.CONFLICT, "the message is due: to move it now would deliver it twice")
        if content is None or waiting.kind != "message" or waiting.target is None:
            raise ProblemError(
                HTTPStatus.CONFLICT, "the service is moving this message, or it becomes a dead letter: ask for it again"
            )
        policy = self._intakes.policy(intake)
        if await self._parts.look(lambda inspector: is_replaced(inspector, waiting, policy)):
            raise ProblemError(
                HTTPStatus.CONFLICT, "a newer message with its key and name replaces it: nothing was changed"
            )
        message = moved_message(waiting, content, at_ms)
        await self._check_time(intake, message, at_ms)
        return message

    async def _replace(
        self, intake: str, handle: Handle, message: DelayedMessage, end_turn: Callable[[], None]
    ) -> JSONResponse:
        """Move a named message: another takes its place, if it still waits."""
        async with self._listening(intake, str(message.id).encode()) as stream:
            receipt = await self._sent(intake, lambda producer: producer.send_message(message))
            end_turn()
            result = None
            if stream is not None:
                result = await self._answer(stream, receipt, _DECIDED_WITHIN_MS)
        fields = {**self._receipt(receipt), "moved_from": str(handle), "twice": "no"}
        outcome = None if result is None else result.get("outcome")
        if outcome == Outcome.SKIPPED:
            raise ProblemError(HTTPStatus.CONFLICT, "the message does not wait any more: nothing was changed")
        return JSONResponse(fields, HTTPStatus.ACCEPTED if outcome is None else HTTPStatus.OK)

    async def _check_time(self, intake: str, message: DelayedMessage, at_ms: int) -> None:
        """Refuse a time that would make the message a dead letter."""
        now_ms = self._parts.clock.now_ms()
        for reader in (await self._intakes.known(intake)).readers:
            if at_ms - now_ms > reader.policy.max_delay_ms:
                raise ProblemError(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "later than the intake's max_delay", "beyond-max-delay"
                )
        if message.expires_at is not None and message.expires_at < EPOCH + timedelta(milliseconds=at_ms):
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "the message expires before that time", "expired")

    def _sendable(self, intake: str) -> str:
        return self._intakes.named(intake)

    def _receipt(self, receipt: Receipt) -> dict[str, Any]:
        return receipt_fields(receipt, f"{self._parts.settings.api.prefix}/v1/messages/{receipt.handle}")

    @asynccontextmanager
    async def _listening(self, intake: str, key: bytes | None) -> AsyncIterator[Stream | None]:
        """Listen to the results of an id; None: not at all."""
        if key is None:
            yield None
            return
        try:
            async with self._parts.results(intake).listen(lambda _result: True, key) as stream:
                yield stream
        except UsageError as error:
            raise _cannot_wait(error) from error

    def now_ms(self) -> int:
        """Return the wall time."""
        return self._parts.clock.now_ms()

    async def _sent(self, intake: str, call: "Callable[[ApiProducer], Any]") -> Any:
        try:
            return await self._parts.sent(intake, call)
        except HeaderError as error:
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except BrokerError as error:
            self._parts.on_event("not_sent", intake=intake, error=str(error))
            if is_open(error):
                raise ProblemError(
                    HTTPStatus.GATEWAY_TIMEOUT,
                    "Kafka has not acknowledged it in time: it may be done or not; ask for the status",
                    accepted=None,
                ) from error
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Kafka does not take it: nothing was done",
                headers={"Retry-After": str(RETRY_AFTER_S)},
                accepted=False,
            ) from error

    async def _answer(
        self, stream: Stream, receipt: CancelReceipt | NameCancelReceipt | Receipt, wait_ms: int
    ) -> dict[str, Any] | None:
        """Wait for the service's answer; of a cancel by handle, the definite one if it comes in time."""
        wanted, clock = Wanted(receipt, interim=True), self._parts.clock
        ends_ms = clock.monotonic_ms() + wait_ms
        last = None
        while (left_ms := ends_ms - clock.monotonic_ms()) > 0:
            try:
                event = await stream.next(left_ms / 1_000)
            except BrokerError as error:
                # It was accepted: that the answer cannot be read must not look like a failure.
                self._parts.on_event("outcome_not_read", error=str(error))
                return last
            if event is None:
                return last
            found = wanted.answer(event.value)
            if found is not None:
                last = found
                if found.get("outcome") != Outcome.CANCEL_FILED:
                    return found
        return last


def _cancelled(
    fields: dict[str, Any], result: dict[str, Any] | None, too_late: HTTPStatus = HTTPStatus.CONFLICT
) -> JSONResponse:
    outcome = None if result is None else str(result.get("outcome"))
    if outcome is None:
        return JSONResponse(fields, HTTPStatus.ACCEPTED)
    if outcome == Outcome.CANCELLED:
        return JSONResponse({**fields, "state": outcome}, HTTPStatus.OK)
    if outcome == Outcome.CANCEL_FILED:
        return JSONResponse({**fields, "state": outcome}, HTTPStatus.ACCEPTED)
    raise ProblemError(too_late, "there was nothing to cancel", outcome, **fields)


def _cannot_wait(error: UsageError) -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE, f"cannot wait for the answer, so nothing was done: {error}", Code.KAFKA_AWAY
    )


def acting_of(connection: HTTPConnection) -> Acting:
    """Return what acts, of the application that handles a request; a FastAPI dependency."""
    found: Acting = connection.app.state.acting
    return found
