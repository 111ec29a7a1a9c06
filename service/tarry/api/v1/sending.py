"""Sending a message: who may, whether the service would accept it, whether it was sent before, and its outcome.

    1. rights, and what the intake accepts               nothing was sent, if one of them refuses
    2. wait until no other request about this id is on its way here
    3. listen for the result, if its sender waits for it
    4. an id that was given, and a due time that has passed: look for the message; if it is found, it is not sent again
    5. an Idempotency-Key under which this replica has sent the message: it is not sent again
    6. send; all replicas have it, or it is said that this is not known

A request that is repeated under its Idempotency-Key means the same id, due time and partition. While the service knows
the first message, it drops the second; later, step 4 finds its result.
"""

import base64
import json
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import HTTPConnection

from tarry.api.access.identity import demand
from tarry.api.access.principal import Principal, Scope
from tarry.api.parts import Parts
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError, is_open
from tarry.api.producer import ApiProducer
from tarry.api.results import Stream
from tarry.api.v1.answers import receipt_fields, schedule_fields, shown_result
from tarry.api.v1.body import Content, Line
from tarry.api.v1.intakes import Intakes
from tarry.api.v1.remembered import Remembered, Seen, mark_of
from tarry.api.v1.rights import may_change, may_change_any, refuse_to_change
from tarry.api.v1.turns import OneAtATime
from tarry.client import DelayedMessage, Receipt, RepeatedMessage, ScheduleReceipt
from tarry.client.outcome.result import Wanted
from tarry.client.record import IntakeRecord, to_record, to_schedule
from tarry.core.murmur2 import partition_of
from tarry.core.request.request import Rejection, Request
from tarry.errors import BrokerError, HeaderError, UsageError
from tarry.handle import Handle
from tarry.headers import NAMESPACE, ErrorCode, Outcome
from tarry.kafka.whereabouts import find, targets_under
from tarry.units import format_instant

LOOKED_FOR_MS: Final = 24 * 3_600_000
"""How long after its due time a message is looked for that is sent again; later the request is refused."""

_TOO_LARGE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "_QUEUE_FULL"})


@dataclass(frozen=True, slots=True)
class Order:
    """A message that somebody wants to send.

    Attributes:
        body: the request.
        intake: where it goes.
        key: its key.
        name: its name.
        idempotency_key: under which the request may be repeated.
        wait_ms: how long to wait for the outcome.
        way: how it came, for the figures.
        decides: whether to wait for the answer to `if` only, and not for the outcome.
        on_queued: called when what is sent from now on comes after it.
    """

    body: Content
    intake: str
    key: bytes | None
    name: str | None
    idempotency_key: str | None = None
    wait_ms: int = 0
    way: str = "message"
    decides: bool = False
    on_queued: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered."""

    status: HTTPStatus
    fields: dict[str, Any]


class Sending:
    """Sends messages. For the event loop only.

    Args:
        parts: the clients.
        intakes: what is accepted.
        turns: gives turns on messages, by intake and id.
    """

    def __init__(self, parts: Parts, intakes: Intakes, turns: OneAtATime) -> None:
        self._parts = parts
        self._intakes = intakes
        self._turns = turns
        self._remembered = Remembered()

    def order(self, line: Line, idempotency_key: str | None, wait_ms: int, way: str) -> Order:
        """Return the order of a body that has intake, key and name.

        Raises:
            ProblemError: the intake is none.
        """
        intake = self._intakes.named(line.intake)
        return Order(line, intake, line.key_bytes(), line.name, idempotency_key, wait_ms, way)

    async def send(self, principal: Principal, order: Order) -> Answer:
        """Send a message.

        Raises:
            ProblemError: it was not sent, or it is not known whether it was.
        """
        try:
            return await self._send(principal, order)
        except ProblemError as problem:
            self._parts.metrics.refused.labels(str(problem.code)).inc()
            raise

    async def _send(self, principal: Principal, order: Order) -> Answer:
        body = order.body
        demand(principal, Scope.SEND, body.target)
        is_given = order.idempotency_key is not None or body.id is not None
        id_ = self._id(principal, order)
        message = body.message(order.key, order.name, id_)
        if isinstance(message, RepeatedMessage) and order.wait_ms and body.only_if is None:
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY, "wait: a schedule without `if` has no outcome until it ends"
            )
        record = self._record(message)
        request = await self._check(order, record)
        async with self._turns.turn(order.intake, record.id) as end_turn, AsyncExitStack() as listening:
            mark = self._refuse_another(order, record) if is_given else b""
            if order.name is not None and order.key is not None and not may_change_any(principal):
                await self._check_replaced(principal, order.intake, order.key, order.name)
            # First, so that no outcome is missed of a message that is known already.
            stream = await self._listen(order, record.id, listening) if order.wait_ms else None
            partition = None
            if is_given and isinstance(message, DelayedMessage):
                partition = partition_of(
                    record.id.encode() if order.key is None else order.key, await self._intakes.partitions(order.intake)
                )
                known = await self._sent_before(principal, order, record, request, partition)
                if known is not None:
                    return known
            # An id of somebody's own may be used again, for example after a cancel.
            seen = None if order.idempotency_key is None else self._remembered.find(record.id)
            fields: dict[str, Any] = {} if seen is None else {"known": True}
            if seen is None:
                seen = await self._sent(order, message, request, partition, mark)
                if is_given:
                    self._remembered.keep(record.id, seen)
            end_turn()
            if seen.outcome is None and stream is not None:
                outcome = await self._outcome(stream, seen.receipt, order, is_given=partition is not None)
                seen.outcome = seen.outcome if outcome is None else outcome
        if seen.outcome is None:
            return Answer(HTTPStatus.ACCEPTED, {**seen.fields, **fields})
        return Answer(HTTPStatus.OK, {**seen.fields, **fields, "outcome": shown_result(seen.outcome, principal)})

    def _id(self, principal: Principal, order: Order) -> uuid.UUID:
        body, idempotency_key = order.body, order.idempotency_key
        if idempotency_key is None:
            return body.id or uuid.uuid4()
        if body.id is not None:
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "id: the Idempotency-Key is the id: give one of them")
        if not body.repeats_its_time:
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "with an Idempotency-Key the due time must repeat: give `at`, or `delay` with `sent_at`",
            )
        return uuid.uuid5(NAMESPACE, json.dumps([principal.name, order.intake, idempotency_key]))

    def _record(self, message: DelayedMessage | RepeatedMessage) -> IntakeRecord:
        now_ms = self._parts.clock.now_ms()
        try:
            return to_record(message, now_ms) if isinstance(message, DelayedMessage) else to_schedule(message, now_ms)
        except HeaderError as error:
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    async def _check(self, order: Order, record: IntakeRecord) -> Request:
        """Read a record as the owners of the intake would.

        Raises:
            ProblemError: one of them would not deliver it; with the code that its dead letter would have.
        """
        known = await self._intakes.known(order.intake)
        partition = 0 if record.key is None or not known.partitions else partition_of(record.key, known.partitions)
        now_ms = self._parts.clock.now_ms()
        found: Any = None
        for reader in known.readers:
            found = reader.read(partition, 0, now_ms, record.headers, now_ms, key=record.key, value=record.value)
            if isinstance(found, Rejection):
                raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, found.detail, found.code.value)
        assert isinstance(found, Request)  # noqa: S101 - there is a reader, and a body describes no cancel
        return found

    def _refuse_another(self, order: Order, record: IntakeRecord) -> bytes:
        """Refuse another message under a key that was used; return what stands for this one."""
        mark = mark_of(
            f"{order.intake}\n{order.key!r}\n{order.name!r}\n"
            + order.body.model_dump_json(exclude={"wait", "id", "intake", "key", "key_base64", "name"})
        )
        seen = self._remembered.find(record.id)
        if seen is not None and seen.mark != mark:
            raise _another()
        return mark

    async def _check_replaced(self, principal: Principal, intake: str, key: bytes, name: str) -> None:
        """Check the rights on what waits under a name, or will when the service has read it, and would be replaced."""
        policy = self._intakes.policy(intake)
        targets = await self._parts.look(lambda inspector: targets_under(inspector, intake, key, name.encode(), policy))
        if not all(may_change(principal, target) for target in targets):
            raise refuse_to_change(principal)

    async def _sent_before(
        self, principal: Principal, order: Order, record: IntakeRecord, request: Request, partition: int
    ) -> Answer | None:
        """Return what became of a message whose due time has passed; None if it must be sent."""
        late_ms = self._parts.clock.now_ms() - request.due_ms
        if record.deliver_at_ms is None or late_ms < 0:
            return None
        if late_ms > LOOKED_FOR_MS:
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "the due time is more than a day ago, so nobody can say whether this message was sent before: to send "
                "it anyway, leave out id and Idempotency-Key",
                ErrorCode.EXPIRED,
            )
        handle = Handle(order.intake, partition, request.due_ms, record.id)
        found = await self._parts.look(partial(find, handle=handle, policy=self._intakes.policy(order.intake)))
        fields = {
            "id": record.id,
            "handle": str(handle),
            "due": format_instant(handle.due_ms),
            "due_ms": handle.due_ms,
            "intake": handle.topic,
            "partition": handle.partition,
            "status_url": self.message_url(handle),
            "known": True,
        }
        if found.result is not None:
            if (found.result.get("target") or request.target) != request.target:
                raise _another()
            outcome = shown_result(found.result, principal)
            return Answer(HTTPStatus.OK, {**fields, "offset": _offset_of(found.result), "outcome": outcome})
        if found.message is not None:
            if (found.message.target, found.message.key) != (request.target, record.key):
                raise _another()
            return Answer(HTTPStatus.ACCEPTED, {**fields, "offset": found.message.sequence})
        return None

    async def _listen(self, order: Order, id_: str, listening: AsyncExitStack) -> Stream:
        """Listen to the results of an id.

        Raises:
            ProblemError: they cannot be read.
        """
        reader = self._parts.results(order.intake)
        try:
            return await listening.enter_async_context(reader.listen(_any, id_.encode()))
        except UsageError as error:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"cannot wait, so nothing was sent: {error}", Code.KAFKA_AWAY
            ) from error

    async def _sent(
        self,
        order: Order,
        message: DelayedMessage | RepeatedMessage,
        request: Request,
        partition: int | None,
        mark: bytes,
    ) -> Seen:
        """Send; return what may be remembered of it."""
        receipt = await self._accepted(order, message, partition)
        self._parts.metrics.sent.labels(order.way).inc()
        if isinstance(receipt, Receipt):
            fields = receipt_fields(receipt, self.message_url(receipt.handle))
        else:
            url = self.timer_url(order.intake, order.key or b"", order.name or "")
            fields = schedule_fields(receipt, request.due_ms, url)
        return Seen(mark, receipt, fields)

    async def _accepted(
        self, order: Order, message: DelayedMessage | RepeatedMessage, partition: int | None
    ) -> Receipt | ScheduleReceipt:
        """Send, and wait until all replicas have it."""

        def send(producer: ApiProducer) -> Awaitable[Receipt | ScheduleReceipt]:
            if isinstance(message, DelayedMessage):
                return producer.send_message(message, partition, order.on_queued)
            return producer.send_schedule(message, order.on_queued)

        try:
            return await self._parts.sent(order.intake, send)
        except HeaderError as error:
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        except BrokerError as error:
            raise self._not_accepted(order, error) from error

    def _not_accepted(self, order: Order, error: BrokerError) -> ProblemError:
        if error.code in _TOO_LARGE:
            return ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Kafka refuses the message as too large")
        self._parts.on_event("not_sent", intake=order.intake, error=str(error))
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        if not is_open(error):
            return ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Kafka does not take the message: nothing was sent",
                headers=headers,
                accepted=False,
            )
        text = "Kafka has not acknowledged the message in time: it may have been accepted or not"
        if order.body.repeats_its_time and (order.idempotency_key is not None or order.body.id is not None):
            safe = f"{text}; the same request may be sent again safely"
            return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, safe, headers=headers, accepted=None)
        # Programs send again by themselves what is answered 503.
        unsafe = f"{text}; only a request with an Idempotency-Key, or an id, repeats safely"
        return ProblemError(HTTPStatus.GATEWAY_TIMEOUT, unsafe, accepted=None)

    async def _outcome(
        self, stream: Stream, receipt: Receipt | ScheduleReceipt, order: Order, *, is_given: bool
    ) -> dict[str, Any] | None:
        """Wait for the outcome; None if it does not come in time."""
        # A second message under the id is dropped as a duplicate: then the outcome of the first one is meant.
        subject = receipt.handle if is_given and isinstance(receipt, Receipt) else receipt
        wanted = Wanted(subject, interim=isinstance(receipt, ScheduleReceipt))
        decided = Wanted(receipt, interim=True)
        clock = self._parts.clock
        ends_ms = clock.monotonic_ms() + order.wait_ms
        decision = None
        while (left_ms := ends_ms - clock.monotonic_ms()) > 0:
            try:
                event = await stream.next(left_ms / 1_000)
            except BrokerError as error:
                # The message was accepted: that its result cannot be read must not look like a failure.
                self._parts.on_event("outcome_not_read", intake=order.intake, error=str(error))
                return decision
            if event is None:
                break
            if (found := wanted.answer(event.value)) is not None:
                return found
            found = decided.answer(event.value)
            if found is not None and found.get("outcome") == Outcome.SCHEDULED:
                if order.decides and order.body.only_if is not None:
                    return found
                decision = found
        return decision

    def message_url(self, handle: Handle) -> str:
        """Return where the status of a message is."""
        return f"{self._parts.settings.api.prefix}/v1/messages/{handle}"

    def timer_url(self, intake: str, key: bytes, name: str) -> str:
        """Return where the status of a named message is."""
        try:
            shown = {"key": key.decode()}
        except UnicodeDecodeError:
            shown = {"key_base64": base64.b64encode(key).decode()}
        return f"{self._parts.settings.api.prefix}/v1/timers?{urlencode({'intake': intake, **shown, 'name': name})}"


def _any(_result: dict[str, Any]) -> bool:
    return True


def _another() -> ProblemError:
    return ProblemError(
        HTTPStatus.CONFLICT,
        "another message was sent under this id or Idempotency-Key: use a new one for a new message",
        Code.CONFLICT,
    )


def _offset_of(result: dict[str, Any]) -> int | None:
    """Return the offset of the record that a result is about."""
    offset = str(result.get("source", "")).rpartition("/")[2]
    return int(offset) if offset.isdecimal() else None


def sending_of(connection: HTTPConnection) -> Sending:
    """Return what sends, of the application that handles a request; a FastAPI dependency."""
    found: Sending = connection.app.state.sending
    return found
