"""The schedules of an intake: one occurrence of each waits, and is met by reading what waits under a name."""

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from tarry.api.looking.outcomes import LastOutcome, last_outcomes
from tarry.clock import Clock
from tarry.config import Config
from tarry.core.expiry import NO_EXPIRY_MS
from tarry.core.progress.source import PARKED
from tarry.core.request.header_values import expiry_in
from tarry.core.request.reader import RequestReader
from tarry.core.request.schedule_times import next_times, rule_fields
from tarry.headers import NAME
from tarry.kafka.inspector import Inspector, Repeated, Waiting
from tarry.service.app import policy_at

if TYPE_CHECKING:
    from tarry.kafka.types import Place

THEN: Final = 3
"""How many times are shown after the next one."""

LOOK_MS: Final = 700
"""How long a look reads: about 70,000 records."""

MOST: Final = 10_000
"""How many schedules are listed."""


class Plan(NamedTuple):
    """A schedule.

    Attributes:
        found: the occurrence that waits.
        repeated: its schedule.
        then_ms: the times after it.
        state: whether it waits, is overdue, or parked.
        rule: `every`, `cron` and `zone`.
        until_ms: when it ends; None: never.
        last: the outcomes of its last occurrences, the newest first.
    """

    found: Waiting
    repeated: Repeated
    then_ms: tuple[int, ...]
    state: str
    rule: dict[str, str | None]
    until_ms: int | None
    last: tuple[LastOutcome, ...] = ()

    @property
    def name(self) -> bytes | None:
        """Its name."""
        return self.repeated.headers.get(NAME)


class Plans(NamedTuple):
    """The schedules of an intake.

    Attributes:
        plans: by due time.
        searched: how many records were read.
        is_whole: whether all were read.
    """

    plans: list[Plan]
    searched: int
    is_whole: bool


def read_plans(inspector: Inspector, settings: Config, clock: Clock, intake: str) -> Plans:
    """Read the schedules of an intake.

    Raises:
        UsageError: there is no such intake.
        BrokerError: Kafka does not answer.
    """
    now_ms, end_ms = clock.now_ms(), clock.monotonic_ms() + LOOK_MS
    backlogs, states = inspector.look(intake)
    requests = RequestReader(policy_at(settings, intake))
    # A schedule has a name, and the journal knows all names of what waits in the levels.
    named = [one for one in backlogs if states[one.place].names.index.count]
    waiting = chain(
        inspector.in_intake(backlogs, requests, states, to_now=True),
        inspector.in_levels(named, states, to_now=True),
        inspector.in_parked(named, states, to_now=True),
    )
    newest: dict[tuple[Place, bytes], tuple[Waiting, Repeated]] = {}
    searched, is_whole = 0, True
    for found in waiting:
        searched += 1
        if found.repeated is not None and found.kind == "message":
            identity = found.place, found.repeated.schedule
            before = newest.get(identity)
            # While the logs are read, one occurrence may be delivered, and the next one met.
            if before is None or before[1].number <= found.repeated.number:
                newest[identity] = found, found.repeated
        if clock.monotonic_ms() > end_ms or len(newest) >= MOST:
            is_whole = False
            break
    last = last_outcomes(inspector, intake, {(place[1], schedule.decode()) for place, schedule in newest})
    plans = [
        _plan(*one, now_ms, settings.wheel.tick_ms)._replace(last=last.get((place[1], schedule.decode()), ()))
        for (place, schedule), one in newest.items()
    ]
    return Plans(sorted(plans, key=lambda one: (one.found.due_ms or 0, one.found.sequence)), searched, is_whole)


def _plan(found: Waiting, repeated: Repeated, now_ms: int, tick_ms: int) -> Plan:
    due_ms = found.due_ms or 0
    # As the service does: what was missed is not made up for.
    then_ms = next_times(repeated.headers, repeated.schedule, max(now_ms, due_ms), tick_ms, THEN)
    is_parked = found.source.level == PARKED
    expires_ms = expiry_in(list(repeated.headers.items()))
    until_ms = expires_ms if expires_ms < NO_EXPIRY_MS else None
    kept = tuple(at for at in then_ms if until_ms is None or at <= until_ms)
    state = "parked" if is_parked else "overdue" if due_ms < now_ms else "waiting"
    return Plan(found, repeated, kept, state, rule_fields(repeated.headers), until_ms)
