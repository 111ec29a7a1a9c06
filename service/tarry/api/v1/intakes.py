"""The intakes that may be sent to, and what the owners of their partitions accept.

Only configured intakes are served: a request must not choose what topic is written to. What they accept is what the
owners publish in `<intake>.status`; where they publish nothing, it is what this process's configuration says. During
the rollout of a new configuration the partitions differ, and a message must suit all of them.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection

from tarry.api.parts import Parts
from tarry.api.problems import Code, ProblemError
from tarry.config import Intake
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.errors import BrokerError
from tarry.kafka.offsets import Offsets
from tarry.kafka.status import statuses_of
from tarry.kafka.topics import TopicAdmin
from tarry.service.app import policy_of

READ_EVERY_S: Final = 10.0


class Known(NamedTuple):
    """What is known of an intake.

    Attributes:
        partitions: how many it has; 0: not known.
        readers: read a record as the owners do; each has a policy that one of them published.
    """

    partitions: int
    readers: Sequence[RequestReader]


class Intakes:
    """The configured intakes. For the event loop only.

    Args:
        parts: the configuration and the cluster.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._configured = {intake.topic: intake for intake in parts.settings.intakes}
        self._known: dict[str, Known] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._read_ms: dict[str, int] = {}

    def named(self, name: str | None, *, for_sending: bool = True) -> str:
        """Return the intake that a request means.

        Args:
            name: as the request gives it; None: the only one that takes delays from headers.
            for_sending: whether it must take the delay from headers.

        Raises:
            ProblemError: there is none, or it must be named.
        """
        if name is None:
            able = [one.topic for one in self._configured.values() if _takes_headers(one)]
            if len(able) == 1:
                return able[0]
            text = "intake: needed, because there are several" if able else "no intake takes delays from headers"
            raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, text)
        found = self._configured.get(name)
        if found is None:
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "intake: this server has no intake of this name; GET /v1/intakes lists them",
            )
        if for_sending and not _takes_headers(found):
            raise ProblemError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"intake: {name} has a fixed delay or a dialect: send to it with a plain Kafka producer",
            )
        return name

    def only(self) -> str:
        """Return the only intake.

        Raises:
            ProblemError: there are several.
        """
        if len(self._configured) == 1:
            return next(iter(self._configured))
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "intake: needed, because there are several")

    def policy(self, intake: str) -> IntakePolicy:
        """Return what an intake accepts, as far as this is known; else what the configuration says."""
        found = self._known.get(intake)
        return self._own_policy(intake) if found is None else found.readers[0].policy

    def _own_policy(self, intake: str) -> IntakePolicy:
        return policy_of(self._parts.settings, self._configured[intake])

    async def known(self, intake: str) -> Known:
        """Return what is known of an intake; ask for it at the first time, and again every ten seconds."""
        found = self._known.get(intake)
        is_old = self._parts.clock.monotonic_ms() - self._read_ms.get(intake, 0) > READ_EVERY_S * 1_000
        if (found is None or is_old) and intake not in self._reading:
            task = self._reading[intake] = asyncio.create_task(self._read(intake))
            task.add_done_callback(lambda _: self._reading.pop(intake, None))
        if found is None:
            await asyncio.shield(self._reading[intake])
        return self._known[intake]

    async def partitions(self, intake: str) -> int:
        """Return the number of partitions.

        Raises:
            ProblemError: it is not known, because Kafka does not answer.
        """
        count = (await self.known(intake)).partitions
        if not count:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Kafka does not answer: nothing was sent",
                Code.KAFKA_AWAY,
                headers={"Retry-After": "2"},
            )
        return count

    async def _read(self, intake: str) -> None:
        try:
            await self._parts.brokers.demand()
            count, policies = await asyncio.get_running_loop().run_in_executor(None, self._asked, intake)
        except BrokerError as error:
            self._parts.on_event("status_not_read", intake=intake, error=str(error))
            self._known.setdefault(intake, Known(0, self._readers([self._own_policy(intake)], 0)))
            return  # the next request asks again
        self._known[intake] = Known(count, self._readers(policies or [self._own_policy(intake)], count))
        self._read_ms[intake] = self._parts.clock.monotonic_ms()

    @staticmethod
    def _readers(policies: Sequence[IntakePolicy], partitions: int) -> list[RequestReader]:
        readers = [RequestReader(policy) for policy in policies]
        for reader in readers:
            reader.partitions = partitions
        return readers

    def _asked(self, intake: str) -> tuple[int, list[IntakePolicy]]:
        """Ask Kafka; on a thread."""
        parts, warnings = self._parts, list[str]()
        cluster = parts.cluster
        admin = cluster.clients.admin(cluster.admin())
        topics, offsets = TopicAdmin(admin), Offsets(admin, parts.settings.service.group, cluster)
        try:
            count = topics.partitions([intake]).get(intake, 0)
            statuses = statuses_of(intake, cluster, topics, offsets, parts.clock, warnings.append)
        finally:
            offsets.close()
        return count, list(dict.fromkeys(one.policy for one in statuses.values()))


def _takes_headers(intake: Intake) -> bool:
    return not intake.is_fixed and intake.dialect is None


def intakes_of(connection: HTTPConnection) -> Intakes:
    """Return the intakes of the application that handles a request; a FastAPI dependency."""
    found: Intakes = connection.app.state.intakes
    return found
