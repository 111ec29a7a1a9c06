"""The lookout: answers what viewers ask, reads Kafka for that on threads, and shares answers for a moment.

Memory is bounded: of each intake it keeps one look, some minutes of owners' figures, and what is known of its last
dead letters. Pages of messages are not kept.
"""

import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from fastapi import FastAPI
from starlette.requests import HTTPConnection

from tarry.api.looking.cursor import MessageCursor
from tarry.api.looking.health import DEAD_WITHIN_MS, clock_problems, problems_of
from tarry.api.looking.letters import Letters
from tarry.api.looking.message import Content, MessageLook, handle_at, look_at_message, read_content, results_of_id
from tarry.api.looking.models import PartitionRow, Problem
from tarry.api.looking.owners import partition_rows
from tarry.api.looking.paging import SEARCH_MS, Page, Wanted, read_page
from tarry.api.looking.plans import Plans, read_plans
from tarry.api.looking.published import Follower, Published, last_of_hosts
from tarry.api.looking.reading import IntakeLook, look_at
from tarry.api.looking.shared import Seen, Shared
from tarry.api.looking.trouble import GroupLook, look_at_groups
from tarry.api.parts import Parts, parts_of
from tarry.config import Intake
from tarry.core.request.pause import Pause
from tarry.errors import UsageError
from tarry.handle import Handle
from tarry.kafka.broker_time import ComparedClock
from tarry.kafka.control import decided_in
from tarry.kafka.control_log import control_log_of
from tarry.kafka.errors import group_errors
from tarry.kafka.group import Owner, owners_of
from tarry.kafka.inspector import ANSWER_WITHIN_S, Inspector
from tarry.kafka.standing import Standings
from tarry.kafka.topics import DEAD
from tarry.kafka.types import Place
from tarry.kafka.whereabouts import Spot
from tarry.service.app import geometry_of

FRESH_MS: Final = 1_500
"""How old an answer may be that changes with each message."""

CALM_MS: Final = 5_000
"""How old an answer may be about processes, statuses and schedules."""

SLOW_MS: Final = 20_000
"""How old an answer may be about what hardly changes."""

_T = TypeVar("_T")


class Lookout:
    """Answers what viewers ask. For one event loop.

    Args:
        parts: what the handlers of requests share.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._shared = Shared(parts.clock)
        warn = lambda text: parts.on_event("status_not_read", reason=text)  # noqa: E731
        self._followers = {one.topic: Follower(one.topic, warn) for one in parts.settings.intakes}
        self._letters = {one.topic: Letters(one.topic + DEAD) for one in parts.settings.intakes}
        self._locks = {one.topic: threading.Lock() for one in parts.settings.intakes}

    @property
    def intakes(self) -> tuple[Intake, ...]:
        """The configured intakes."""
        return self._parts.settings.intakes

    def intake(self, topic: str | None) -> Intake:
        """Return a configured intake; None: the only one, or the first.

        Raises:
            UsageError: there is no such intake.
        """
        if topic is None:
            return self.intakes[0]
        for one in self.intakes:
            if one.topic == topic:
                return one
        raise UsageError(f"intake {topic} is not configured")

    async def _ask(self, asked: object, fresh_ms: int, call: Callable[[Inspector], _T]) -> Seen[_T]:
        def read() -> Awaitable[_T]:
            return self._parts.look(call)

        return await self._shared.get(asked, fresh_ms, read)

    # -- the cluster ---------------------------------------------------------------------------------------------------

    async def cluster_id(self) -> Seen[str]:
        """Return the id of the cluster."""

        def read(inspector: Inspector) -> str:
            with group_errors("ask for the cluster's id"):
                found = inspector.admin.describe_cluster(request_timeout=ANSWER_WITHIN_S).result().cluster_id
            return str(found or "")

        return await self._ask("cluster", SLOW_MS * 3, read)

    async def owners(self) -> Seen[tuple[str, list[Owner]]]:
        """Return the state of the service's group, and its members."""
        group = self._parts.settings.service.group
        return await self._ask("owners", CALM_MS, lambda inspector: owners_of(inspector.admin, group))

    async def clocks(self) -> Seen[list[ComparedClock]]:
        """Return the clocks of the services' machines."""
        seen = [await self.published(one.topic) for one in self.intakes]
        found = last_of_hosts(clock for each in seen for clock in each.value.clocks(self._clock.now_ms()))
        away = next((one.away for one in seen if one.away), None)
        return Seen(found, min(one.as_of_ms for one in seen), away)

    # -- intakes -------------------------------------------------------------------------------------------------------

    async def look(self, topic: str) -> Seen[IntakeLook | None]:
        """Return a look at an intake; None if its topics do not exist yet."""
        settings, clock = self._parts.settings, self._clock

        def read(inspector: Inspector) -> IntakeLook | None:
            if not inspector.offsets.existing([(topic, 0)]):
                return None
            return look_at(inspector, settings, topic, clock.now_ms())

        return await self._ask(("intake", topic), FRESH_MS, read)

    async def published(self, topic: str) -> Seen[Published]:
        """Return what the owners of an intake's partitions published."""
        follower, lock, clock = self._followers[topic], self._locks[topic], self._clock

        def read(inspector: Inspector) -> Published:
            with lock:
                there = inspector.offsets.existing([(topic, 0)])
                return follower.look(inspector, inspector.partitions(topic) if there else 0, clock.now_ms())

        return await self._ask(("published", topic), FRESH_MS, read)

    async def pauses(self, topic: str) -> Seen[list[Pause]]:
        """Return the pauses of an intake's targets that hold now."""
        cluster, clock = self._parts.cluster, self._clock
        warn = lambda text: self._parts.on_event("pauses_not_read", reason=text)  # noqa: E731
        log = control_log_of(topic)

        def read(inspector: Inspector) -> list[Pause]:
            if not inspector.offsets.existing([log]):
                return []
            start, end = inspector.offsets.starts([log])[log], inspector.offsets.ends([log], committed=True)[log]
            decided, now_ms = decided_in(cluster, topic, start, end, clock, warn), clock.now_ms()
            return [one for one in decided.values() if one.holds_at(now_ms)]

        return await self._ask(("pauses", topic), FRESH_MS, read)

    async def partitions(self, topic: str) -> Seen[list[PartitionRow]]:
        """Return the partitions of an intake."""
        look = await self.look(topic)
        if look.value is None:
            return Seen([], look.as_of_ms, look.away)
        owners, published, now_ms = await self.owners(), await self.published(topic), self._clock.now_ms()
        _, members = owners.value
        rows = partition_rows(look.value, members, published.value, {}, now_ms)
        if idle := [row.partition for row in rows if row.state != "served"]:
            refusals = await self._refusals(topic, idle)
            rows = partition_rows(look.value, members, published.value, refusals.value, now_ms)
        return Seen(rows, look.as_of_ms, look.away or owners.away or published.away)

    async def _refusals(self, topic: str, partitions: list[int]) -> Seen[dict[Place, str]]:
        settings, cluster, clock = self._parts.settings, self._parts.cluster, self._clock
        geometry = geometry_of(settings, self.intake(topic))

        def read(_inspector: Inspector) -> dict[Place, str]:
            standings = Standings(cluster, settings.service.group, clock)
            try:
                found = standings.of(topic, partitions, geometry)
            finally:
                standings.close()
            return {one.place: one.refusal for one in found if one.refusal is not None}

        return await self._ask(("refusals", topic, tuple(partitions)), SLOW_MS, read)

    async def problems(self, topic: str, sees: Callable[[str | None], bool]) -> Seen[list[Problem]]:
        """Return what is not well with an intake, as far as it is about targets that may be seen."""
        look, rows, now_ms = await self.look(topic), await self.partitions(topic), self._clock.now_ms()
        if look.value is None:
            text = "its topics do not exist yet: start `tarry serve`"
            missing = Problem(
                kind="not-served", intake=topic, count=1, text=text, runbook="tarrynobodyserves", since=None
            )
            return Seen([missing], look.as_of_ms, look.away)
        dead = await self.letters(topic)
        today = [one for one in dead.value.seen(sees) if not one.is_sent_again and one.at_ms > now_ms - DEAD_WITHIN_MS]
        pauses = await self.pauses(topic)
        found = list(problems_of(topic, look.value, rows.value, pauses.value, len(today), now_ms, sees))
        return Seen(found, look.as_of_ms, look.away or rows.away or dead.away or pauses.away)

    async def health(self, sees: Callable[[str | None], bool]) -> Seen[list[Problem]]:
        """Return what is not well, as far as it is about targets that may be seen."""
        of_intakes = [await self.problems(one.topic, sees) for one in self.intakes]
        clocks = await self.clocks()
        found = [problem for seen in of_intakes for problem in seen.value] + list(clock_problems(clocks.value))
        away = next((seen.away for seen in of_intakes if seen.away), clocks.away)
        return Seen(found, min(seen.as_of_ms for seen in of_intakes), away)

    # -- deliveries, dead letters, retries, schedules ------------------------------------------------------------------

    async def letters(self, topic: str) -> Seen[Letters]:
        """Return the dead letters of an intake."""
        letters, lock, clock = self._letters[topic], self._locks[topic], self._clock

        def read(inspector: Inspector) -> Letters:
            with lock:
                there = inspector.offsets.existing([(topic, 0)])
                letters.look(inspector, inspector.partitions(topic) if there else 0, clock)
                return letters

        return await self._ask(("letters", topic), FRESH_MS, read)

    async def retries(self) -> Seen[list[GroupLook]]:
        """Return the groups of consumers that retry."""
        return await self._ask("retries", CALM_MS, look_at_groups)

    async def plans(self, topic: str) -> Seen[Plans]:
        """Return the schedules of an intake."""
        settings, clock = self._parts.settings, self._clock
        empty = Plans([], 0, is_whole=True)

        def read(inspector: Inspector) -> Plans:
            there = inspector.offsets.existing([(topic, 0)])
            return read_plans(inspector, settings, clock, topic) if there else empty

        return await self._ask(("plans", topic), CALM_MS, read)

    # -- messages ------------------------------------------------------------------------------------------------------

    async def page(
        self,
        topic: str,
        wanted: Wanted,
        cursor: MessageCursor | None,
        most: int,
        sees: Callable[[str | None], bool],
        within_ms: int = SEARCH_MS,
    ) -> Page:
        """Return a page of messages that wait."""
        settings, clock = self._parts.settings, self._clock
        return await self._parts.look(
            lambda inspector: read_page(
                inspector, settings, clock, topic, wanted, cursor, most, within_ms=within_ms, sees=sees
            )
        )

    async def message(self, handle: Handle, spot: Spot | None = None) -> MessageLook:
        """Return what is known of a message, which a list has met at a spot of a level's log."""
        settings, now_ms = self._parts.settings, self._clock.now_ms()
        self.intake(handle.topic)
        return await self._parts.look(lambda inspector: look_at_message(inspector, settings, handle, now_ms, spot))

    async def handle_at(self, place: tuple[str, int, int]) -> Handle | None:
        """Return the handle of the message at a place of a log."""
        settings, now_ms = self._parts.settings, self._clock.now_ms()
        return await self._parts.look(lambda inspector: handle_at(inspector, settings, place, now_ms))

    async def done(self, topic: str, id_: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the last results of an id, each with its handle, and whether all results were read."""
        clock = self._clock

        def read(inspector: Inspector) -> tuple[list[dict[str, Any]], bool]:
            return results_of_id(inspector, clock, topic, id_)

        return await self._parts.look(read)

    async def content(self, log: Place, offset: int) -> Content | None:
        """Return a record."""
        return await self._parts.look(lambda inspector: read_content(inspector, log, offset))


def install(app: FastAPI, parts: Parts) -> None:
    """Give an application its lookout."""
    app.state.lookout = Lookout(parts)


def lookout_of(connection: HTTPConnection) -> Lookout:
    """Return the lookout of the application that handles a request; a FastAPI dependency."""
    found: Lookout | None = getattr(connection.app.state, "lookout", None)
    if found is None:
        found = connection.app.state.lookout = Lookout(parts_of(connection))
    return found
