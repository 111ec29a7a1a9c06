"""Bulk acts as requests and pages ask for them: dry run, token, operation, stop; and who did what.

The token of a dry run holds the list of the records that it saw, signed. So what is executed is exactly that, and
nothing is kept between the two requests.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import uuid4

from starlette.requests import HTTPConnection

from tarry.api.access.gate import Gate
from tarry.api.access.principal import Principal, Scope
from tarry.api.looking.letters import Letter
from tarry.api.looking.paging import Wanted
from tarry.api.looking.rows import letter_row, message_row
from tarry.api.looking.shown import Sight
from tarry.api.operations.board import MOST_UNFINISHED, Board
from tarry.api.operations.letters import WantedLetters, pick_letters
from tarry.api.operations.models import Audit, AuditRow, DryRun, OperationRow, Operations
from tarry.api.operations.pick import Pick
from tarry.api.operations.records import Act, Asked, Single, Stop, read_asked
from tarry.api.operations.table import Row
from tarry.api.operations.waiting import pick_waiting
from tarry.api.parts import Parts
from tarry.api.problems import Code, ProblemError
from tarry.errors import UsageError
from tarry.kafka.inspector import Inspector, Waiting
from tarry.kafka.origins import topic_id_of
from tarry.kafka.topics import DEAD

TOKEN_MS: Final = 600_000
"""How long the token of a dry run can be used."""

_T = TypeVar("_T")


class Bulk:
    """Bulk acts. For the event loop only.

    Args:
        parts: the clients.
        gate: signs tokens.
        board: the operations.
    """

    def __init__(self, parts: Parts, gate: Gate, board: Board) -> None:
        self._parts = parts
        self._gate = gate
        self.board = board

    # -- dry runs ------------------------------------------------------------------------------------------------------

    async def plan_letters(self, principal: Principal, intake: str, act: Act, wanted: WantedLetters) -> DryRun:
        """Return what an act on dead letters would do.

        Raises:
            UsageError: there is no such intake.
            BrokerError: Kafka does not answer.
        """
        clock = self._parts.clock

        def read(inspector: Inspector) -> Pick[Letter]:
            topic_id = topic_id_of(inspector.admin, intake + DEAD)
            return pick_letters(inspector, intake, topic_id, wanted, partial(_may_act, principal), clock)

        pick, sight = await self._parts.look(read), Sight(principal)
        letters = [letter_row(intake, one, sight) for one in pick.sample]
        return self._planned(principal, intake, act, pick, 0).model_copy(update={"letters": letters})

    async def plan_waiting(self, principal: Principal, intake: str, act: Act, wanted: Wanted, by_ms: int = 0) -> DryRun:
        """Return what an act on messages that wait would do.

        Raises:
            UsageError: there is no such intake.
            BrokerError: Kafka does not answer.
        """
        settings, clock, sight = self._parts.settings, self._parts.clock, Sight(principal)

        def may(target: str | None) -> bool:
            # Whoever may not see keys must not find out by asking for one.
            return _may_act(principal, target) and (wanted.key is None or sight.sees_keys(target))

        def read(inspector: Inspector) -> Pick[Waiting]:
            topic_id = topic_id_of(inspector.admin, intake)
            return pick_waiting(inspector, settings, clock, intake, topic_id, act, wanted, may)

        pick = await self._parts.look(read)
        messages = [message_row(one, sight) for one in pick.sample]
        return self._planned(principal, intake, act, pick, by_ms).model_copy(update={"messages": messages})

    def _planned(self, principal: Principal, intake: str, act: Act, pick: Pick[Any], by_ms: int) -> DryRun:
        picked, now_ms = pick.picked(), self._parts.clock.now_ms()
        asked = Asked(
            str(uuid4()),
            act,
            intake,
            pick.topic_id,
            picked,
            pick.targets,
            pick.codes,
            by_ms,
            pick.first_ms,
            pick.last_ms + 1,
        )
        token = None
        if len(picked):
            content = [principal.name, _rights_of(principal), asked.fields()]
            token = self._gate.sessions.seal(_purpose(act), content)
        return DryRun(
            act=act,
            intake=intake,
            count=len(picked),
            complete=pick.is_whole,
            by_target=dict(pick.targets.most_common()),
            by_code=dict(pick.codes.most_common()),
            left_out=dict(pick.left_out),
            token=token,
            token_until=None if token is None else now_ms + TOKEN_MS,
        )

    # -- operations ----------------------------------------------------------------------------------------------------

    def read_token(self, principal: Principal, act: Act, token: str) -> Asked:
        """Return what the token of a dry run is about.

        Raises:
            ProblemError: it is none, not of this principal and act, or too old; or what they may do has changed.
        """
        match self._gate.sessions.unseal(_purpose(act), token, TOKEN_MS):
            case [str(who), str(rights), dict(fields)] if who == principal.name:
                if rights != _rights_of(principal):
                    raise ProblemError(
                        HTTPStatus.FORBIDDEN, "what you may do has changed since the dry run: ask for another one"
                    )
                return read_asked(fields)
        raise ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"token: must be of your own dry run of {act}, and not older than {TOKEN_MS // 60_000} min: "
            "ask for another dry run",
            Code.DRY_RUN_EXPIRED,
        )

    def planned_by(self, principal: Principal, act: Act, token: str) -> DryRun:
        """Return the dry run of a token again, without its sample.

        Raises:
            ProblemError: as `read_token`.
        """
        asked = self.read_token(principal, act, token)
        return DryRun(
            act=act,
            intake=asked.intake,
            count=len(asked.picked),
            complete=True,
            by_target=dict(asked.targets),
            by_code=dict(asked.codes),
            token=token,
            token_until=None,
        )

    async def begin(self, principal: Principal, act: Act, token: str, reason: str) -> OperationRow:
        """Begin the operation of a dry run; if it has begun, return it.

        Raises:
            ProblemError: as `read_token`; or too many operations wait.
            BrokerError: Kafka does not answer: it is not known whether the operation begins.
        """
        found = self.read_token(principal, act, token)
        asked = replace(found, who=principal.name, reason=reason, at_ms=self._parts.clock.now_ms())
        known = self.board.find(asked.intake, asked.id)
        if known is None and self.board.unfinished(asked.intake) >= MOST_UNFINISHED:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{MOST_UNFINISHED} operations of {asked.intake} wait or run: wait, or stop one",
                headers={"Retry-After": "10"},
            )
        return operation_row(await self._off_loop(self.board.ask, asked))

    async def operation(self, principal: Principal, id_: str) -> OperationRow:
        """Return an operation.

        Raises:
            ProblemError: it is not known, or the principal may not see it.
            BrokerError: Kafka does not answer.
        """
        return operation_row(await self._row(principal, id_))

    async def stop(self, principal: Principal, id_: str, reason: str) -> OperationRow:
        """Stop an operation: what is handled stays so, and nothing more is.

        Raises:
            ProblemError: it is not known, or the principal may not stop it.
            BrokerError: Kafka does not answer.
        """
        row = await self._row(principal, id_)
        if not all(principal.may(Scope.ACT, target) for target in row.asked.targets):
            raise ProblemError(HTTPStatus.FORBIDDEN, f"{principal.name} has no scope act for all of its targets")
        if not row.state.is_over:
            await self._off_loop(self.board.stop, row, Stop(principal.name, reason, self._parts.clock.now_ms()))
        return operation_row(row if (found := self.board.find(row.asked.intake, id_)) is None else found)

    def operations(self, principal: Principal, intake: str | None, most: int) -> Operations:
        """Return the operations that a principal may see, the newest first."""
        rows = sorted(self._seen(principal, intake), key=lambda row: -row.asked.at_ms)
        return Operations(as_of=self._parts.clock.now_ms(), operations=[operation_row(row) for row in rows[:most]])

    def audit(self, principal: Principal, intake: str | None, most: int) -> Audit:
        """Return who did what, as far as the principal may see it, the newest first."""
        found = [
            _single_row(of, act)
            for of, _, act in self.board.acts()
            if intake in {None, of} and principal.may(Scope.LOOK, act.target or "")
        ]
        for row in self._seen(principal, intake):
            found += _operation_acts(row)
        acts = sorted(found, key=lambda one: -one.at)[:most]
        return Audit(as_of=self._parts.clock.now_ms(), acts=acts)

    def _seen(self, principal: Principal, intake: str | None) -> Sequence[Row]:
        return [row for row in self.board.rows() if intake in {None, row.asked.intake} and _sees(principal, row)]

    async def _row(self, principal: Principal, id_: str) -> Row:
        row = self.board.by_id(id_) or await self._off_loop(self.board.by_id_anew, id_)
        if row is None or not _sees(principal, row):
            raise ProblemError(HTTPStatus.NOT_FOUND, "no such operation; they are kept for 90 days")
        return row

    async def _off_loop(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Call something that waits for Kafka, on a thread.

        Raises:
            BrokerError: no broker answers now: nothing waits for one.
        """
        await self._parts.brokers.demand()
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
        except UsageError as error:
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": "10"}) from error


def _may_act(principal: Principal, target: str | None) -> bool:
    return principal.may(Scope.ACT, target or "")


def _sees(principal: Principal, row: Row) -> bool:
    return row.asked.who == principal.name or all(principal.may(Scope.LOOK, target) for target in row.asked.targets)


def _rights_of(principal: Principal) -> str:
    """Return what stands for the targets on which a principal may act, and for whose messages they may see the keys."""
    text = repr([sorted(principal.grants.get(scope, ())) for scope in (Scope.ACT, Scope.LOOK_KEYS)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _purpose(act: Act) -> str:
    return f"operation.{act}"


def operation_row(row: Row) -> OperationRow:
    """Return an operation as answers show it."""
    asked, progress, stop = row.asked, row.progress, row.stop
    return OperationRow(
        id=asked.id,
        act=asked.act,
        intake=asked.intake,
        state=row.state,
        total=row.total,
        done=progress.done if progress else 0,
        failed=dict(progress.failed) if progress else {},
        by_target=dict(asked.targets),
        by_code=dict(asked.codes),
        by_ms=asked.by_ms,
        who=asked.who,
        reason=asked.reason,
        at=asked.at_ms,
        changed=progress.at_ms if progress else None,
        replica=(progress.replica or None) if progress else None,
        stopped_by=stop.who if stop else None,
        stop_reason=stop.reason if stop else None,
        error=(progress.error or None) if progress else None,
    )


def _single_row(intake: str, act: Single) -> AuditRow:
    return AuditRow(
        at=act.at_ms,
        who=act.who,
        act=act.act,
        intake=intake,
        target=act.target,
        handle=act.handle,
        reason=act.reason or None,
    )


def _operation_acts(row: Row) -> list[AuditRow]:
    asked, targets = row.asked, list(row.asked.targets)
    begun = AuditRow(
        at=asked.at_ms,
        who=asked.who,
        act=str(asked.act),
        intake=asked.intake,
        target=targets[0] or None if len(targets) == 1 else None,
        operation=asked.id,
        records=row.total,
        reason=asked.reason,
    )
    if row.stop is None:
        return [begun]
    stopped = {"at": row.stop.at_ms, "who": row.stop.who, "act": "stop", "reason": row.stop.reason}
    return [begun, begun.model_copy(update=stopped)]


def bulk_of(connection: HTTPConnection) -> Bulk:
    """Return the bulk acts of the application that handles a request; a FastAPI dependency."""
    found: Bulk = connection.app.state.bulk
    return found
