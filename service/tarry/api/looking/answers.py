"""The answers of the lists: what the lookout found, as rows for one principal. Both `/v1` and the console give them."""

from tarry.api.access.principal import Principal
from tarry.api.looking.cursor import letter_cursor, message_cursor
from tarry.api.looking.due import bounds, rows
from tarry.api.looking.lookout import Lookout
from tarry.api.looking.models import (
    Dead,
    Health,
    Intakes,
    Messages,
    Partitions,
    Pending,
    Retries,
    Schedules,
    Targets,
)
from tarry.api.looking.paging import SEARCH_MS, Wanted
from tarry.api.looking.rows import (
    dead_page,
    due_rows,
    intake_row,
    message_row,
    retry_group,
    schedule_row,
    target_rows,
)
from tarry.api.looking.shown import Sight
from tarry.clock import Clock

MOST_IN_A_PAGE = 500


class Answers:
    """The answers for one principal.

    Args:
        lookout: asks Kafka.
        principal: who asks.
        clock: wall time.
        group: the service's consumer group.
    """

    def __init__(self, lookout: Lookout, principal: Principal, clock: Clock, group: str) -> None:
        self._lookout = lookout
        self.sight = Sight(principal)
        self._clock = clock
        self._group = group

    def _topics(self, intake: str | None) -> list[str]:
        """Return the intakes that are asked for."""
        if intake is not None:
            return [self._lookout.intake(intake).topic]
        return [one.topic for one in self._lookout.intakes]

    async def health(self) -> Health:
        """Return whether all is well."""
        seen = await self._lookout.health(self.sight.sees)
        figures = [(await self._lookout.published(topic)).value.as_of_ms for topic in self._topics(None)]
        as_of = None if None in figures else min(one for one in figures if one is not None)
        return Health(
            as_of=seen.as_of_ms, away=seen.away, is_well=not seen.value, problems=seen.value, figures_as_of=as_of
        )

    async def intakes(self) -> Intakes:
        """Return all configured intakes."""
        found, as_of, away = [], self._clock.now_ms(), None
        for intake in self._lookout.intakes:
            look, partitions = await self._lookout.look(intake.topic), await self._lookout.partitions(intake.topic)
            letters = await self._lookout.letters(intake.topic)
            dead = sum(not one.is_sent_again for one in letters.value.seen(self.sight.sees))
            found.append(intake_row(intake, look.value, partitions.value, dead))
            as_of, away = min(as_of, look.as_of_ms), away or look.away or partitions.away
        return Intakes(as_of=as_of, away=away, intakes=found)

    async def partitions(self, intake: str | None = None) -> Partitions:
        """Return the partitions of all intakes, or of one."""
        owners = await self._lookout.owners()
        found, as_of, away = [], owners.as_of_ms, owners.away
        for topic in self._topics(intake):
            seen = await self._lookout.partitions(topic)
            found += seen.value
            as_of, away = min(as_of, seen.as_of_ms), away or seen.away
        state, _ = owners.value
        return Partitions(as_of=as_of, away=away, group=self._group, group_state=state.lower(), partitions=found)

    async def targets(self, intake: str | None = None) -> Targets:
        """Return the targets of all intakes, or of one."""
        found, as_of, away = [], self._clock.now_ms(), None
        for topic in self._topics(intake):
            look, published = await self._lookout.look(topic), await self._lookout.published(topic)
            letters = await self._lookout.letters(topic)
            pauses = await self._lookout.pauses(topic)
            found += target_rows(
                topic, look.value, published.value, letters.value, pauses.value, self.sight, self._clock.now_ms()
            )
            as_of, away = min(as_of, look.as_of_ms), away or look.away or published.away or pauses.away
        return Targets(as_of=as_of, away=away, targets=found)

    async def pending(self, intake: str | None, from_ms: int | None = None, until_ms: int | None = None) -> Pending:
        """Return what waits in an intake, by due time."""
        topic = self._lookout.intake(intake).topic
        seen, now_ms = await self._lookout.look(topic), self._clock.now_ms()
        look = seen.value
        if look is None:
            return Pending(as_of=seen.as_of_ms, away=seen.away, intake=topic, at_most=0, rows=[], parked_at_most=0)
        counted = rows(look.counts, look.in_memory, look.hot_until_ms, now_ms, bounds(now_ms, from_ms, until_ms))
        return Pending(
            as_of=seen.as_of_ms,
            away=seen.away,
            intake=topic,
            at_most=look.at_most,
            rows=due_rows(counted),
            parked_at_most=look.parked_at_most,
        )

    async def messages(
        self, intake: str | None, wanted: Wanted, cursor: str | None, most: int, within_ms: int = SEARCH_MS
    ) -> Messages:
        """Return a page of messages that wait."""
        topic, as_of = self._lookout.intake(intake).topic, self._clock.now_ms()
        after = message_cursor(cursor) if cursor else None
        sight = self.sight

        def sees(target: str | None) -> bool:
            # Whoever may not see keys must not find out by asking for one.
            return sight.sees(target) and (wanted.key is None or sight.sees_keys(target))

        page = await self._lookout.page(topic, wanted, after, most, sees, within_ms)
        return Messages(
            as_of=as_of,
            intake=topic,
            messages=[message_row(one, sight) for one in page.found],
            next=page.next.text() if page.next else None,
            searched=page.searched,
            complete=page.complete,
            is_sorted=page.is_sorted,
        )

    async def dead(
        self,
        intake: str | None,
        most: int,
        cursor: str | None = None,
        code: str | None = None,
        target: str | None = None,
        *,
        sent_again_too: bool = False,
    ) -> Dead:
        """Return the dead letters of an intake."""
        topic = self._lookout.intake(intake).topic
        seen = await self._lookout.letters(topic)
        after = letter_cursor(cursor) if cursor else None
        found = dead_page(topic, seen.value, self.sight, most, after, code, target, sent_again_too=sent_again_too)
        return found.model_copy(update={"as_of": seen.as_of_ms, "away": seen.away})

    async def retries(self) -> Retries:
        """Return all groups of consumers that retry."""
        seen = await self._lookout.retries()
        groups = [retry_group(one, self.sight) for one in seen.value if self.sight.sees(one.group.topic)]
        return Retries(as_of=seen.as_of_ms, away=seen.away, groups=groups)

    async def schedules(self, intake: str | None) -> Schedules:
        """Return the schedules of an intake."""
        topic = self._lookout.intake(intake).topic
        seen = await self._lookout.plans(topic)
        plans = [schedule_row(one, self.sight) for one in seen.value.plans if self.sight.sees(one.found.target)]
        return Schedules(
            as_of=seen.as_of_ms,
            away=seen.away,
            intake=topic,
            schedules=plans,
            searched=seen.value.searched,
            complete=seen.value.is_whole,
        )
