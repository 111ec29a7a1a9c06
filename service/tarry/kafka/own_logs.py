"""Checking the logs of our partitions: a log without a leader, or a missing log, prevents serving its partition.

Partition p of an intake can be served if its partitions of the results, the journal, the dead letters, the parked log
and each level of the overflow wheel can be written to. A log that is unavailable stops only its own partition. So the
service looks at all our logs every other second, without waiting, and before a take-over.

A broker that has lost its controllers answers from old metadata. So the service believes a fault that
only an operator could repair only if a broker, the same or another one, reports it again some seconds later. Until then
the partition waits.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription

from tarry.clock import Clock
from tarry.core.progress.checkpoint import Geometry
from tarry.errors import RetriableError
from tarry.kafka.errors import error_of, translate_group
from tarry.kafka.partition_logs import logs_of
from tarry.kafka.rights import lacking_rights
from tarry.kafka.types import Place

LOOK_EVERY_MS = 2_000
"""How often the logs are looked at."""

SURE_AFTER_MS = 3_000
"""How long the brokers must report a log as missing, or deny us access to it, until that is believed."""

REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class LogStates:
    """The state of the logs; one line for each partition that cannot be served.

    Attributes:
        away: a log has no leader at present, or may be missing.
        missing: a log does not exist, or we lack the right to ask about it; an operator must create it or grant the
            right.
        unreadable: the intake itself has no leader: messages that were read already can fire, but the partition cannot
            be taken over.
    """

    away: dict[Place, str] = field(default_factory=dict)
    missing: dict[Place, str] = field(default_factory=dict)
    unreadable: dict[Place, str] = field(default_factory=dict)


class OwnLogs:
    """Looks at the logs of partitions.

    Args:
        admin: an admin client.
        geometry: the shape of the overflow wheel, by intake.
        clock: monotonic time.
    """

    def __init__(self, admin: AdminClient, geometry: Mapping[str, Geometry], clock: Clock) -> None:
        self._admin = admin
        self._geometry = geometry
        self._clock = clock
        self._asked: dict[str, Future[TopicDescription]] = {}
        self._look_at_ms = 0
        self._missing_since_ms: dict[Place, int] = {}

    def turn(self, places: Iterable[Place]) -> LogStates | None:
        """Ask about the logs, or take the answers, without waiting.

        Args:
            places: partitions of intakes.

        Returns:
            The state of their logs; None while there is no new answer.
        """
        now_ms = self._clock.monotonic_ms()
        if self._asked:
            if not all(future.done() for future in self._asked.values()):
                return None
            asked, self._asked = self._asked, {}
            ours = list(places)
            self._missing_since_ms = {at: ms for at, ms in self._missing_since_ms.items() if at in ours}
            try:
                return self._confirmed(ours, _state_of(ours, self._geometry, asked))
            except RetriableError:  # asked again soon
                return None
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            self._asked = self._ask(places)
        return None

    def look(self, places: Iterable[Place]) -> LogStates:
        """Ask now, and wait for the answers.

        Raises:
            RetriableError: no answer.
        """
        wanted = list(places)
        return self._confirmed(wanted, _state_of(wanted, self._geometry, self._ask(wanted)))

    def _confirmed(self, places: Iterable[Place], seen: LogStates) -> LogStates:
        """Return the state, with a log counted as away until it was missing for `SURE_AFTER_MS`."""
        now_ms = self._clock.monotonic_ms()
        sure: dict[Place, str] = {}
        doubtful: dict[Place, str] = {}
        for place in places:
            if place not in seen.missing:
                self._missing_since_ms.pop(place, None)
                continue
            since_ms = self._missing_since_ms.setdefault(place, now_ms)
            (sure if now_ms - since_ms >= SURE_AFTER_MS else doubtful)[place] = seen.missing[place]
        return LogStates({**seen.away, **doubtful}, sure, seen.unreadable)

    def _ask(self, places: Iterable[Place]) -> dict[str, Future[TopicDescription]]:
        intakes = {intake for intake, _ in places}  # all partitions of an intake use the same topics
        topics = sorted({topic for one in intakes for topic, _ in logs_of((one, 0), self._geometry[one])})
        if not topics:
            return {}
        futures: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(topics), request_timeout=REQUEST_TIMEOUT_S
        )
        return futures


def _state_of(
    places: Iterable[Place], geometry: Mapping[str, Geometry], asked: Mapping[str, "Future[TopicDescription]"]
) -> LogStates:
    """Return the state of the logs from the answers.

    Raises:
        RetriableError: there are none.
    """
    # By topic: whether each partition has a leader, or why that may not be known. A topic of an intake that was
    # assigned after the question has no answer.
    answers = {topic: _answer(topic, future) for topic, future in asked.items()}
    seen = LogStates()
    for place in places:
        for log in logs_of(place, geometry[place[0]]):
            leaders = answers.get(log[0])
            if isinstance(leaders, str):
                seen.missing.setdefault(place, leaders)
            elif leaders is not None and log[1] >= len(leaders):
                seen.missing.setdefault(place, _missing(place, log, len(leaders)))
            elif leaders is not None and not leaders[log[1]]:
                (seen.unreadable if log == place else seen.away).setdefault(place, f"{log[0]}/{log[1]} has no leader")
    return seen


def _answer(topic: str, future: "Future[TopicDescription]") -> list[bool] | str:
    """Return whether each partition of a topic has a leader; or a line that says why this cannot be known."""
    try:
        return [bool(partition.leader and partition.isr) for partition in future.result().partitions]
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return lacking_rights([f"DESCRIBE on topic {topic}"])
        failure = translate_group(error, f"ask about {topic}")
        if isinstance(failure, RetriableError):
            raise failure from exception
        return str(failure)


def _missing(place: Place, log: Place, partitions: int) -> str:
    if not partitions:
        return (
            f"{log[0]} does not exist, which {place[0]}/{place[1]} needs: was it deleted? "
            "(docs/operations.md, Partitions set aside)"
        )
    return (
        f"{log[0]} has {partitions} partitions and no partition {log[1]}, which {place[0]}/{place[1]} needs: were"
        " partitions added to the intake? Keys have moved to other partitions"
        " (docs/operations.md, Partitions set aside)"
    )
