"""What stands between partitions of an intake and being served: logs of theirs without a leader, or that do not exist.

Partition p of an intake is served where its part of the results, the journal, the dead letters and each level of the
overflow wheel can be written to. One of them that is away stops its own partition alone: so all that is ours is looked
at every other second, without waiting, and before a take-over.

A broker that has lost touch with its controllers answers from what it knew before. So what only a person could mend is
believed when it is said again some seconds later, by whichever broker is asked then; until then the partition waits.
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

SURE_AFTER_MS = 3_000
"""How long a log must be missing, or be refused to us, until that is believed."""

REQUEST_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """How the logs of partitions stand; one line for each partition that can't be served.

    Attributes:
        away: a log has no leader at present, or may be missing.
        missing: a log does not exist, or may not be asked about: somebody has to make it, or to grant that.
        unreadable: the intake itself has no leader: what was read of it can fire, and it can't be taken over.
    """

    away: dict[Place, str] = field(default_factory=dict)
    missing: dict[Place, str] = field(default_factory=dict)
    unreadable: dict[Place, str] = field(default_factory=dict)


class OwnLogs:
    """Looks at the logs of partitions.

    Args:
        admin: an admin client.
        geometry: of the overflow wheel, by intake.
        clock: monotonic time.
    """

    def __init__(self, admin: AdminClient, geometry: Mapping[str, Geometry], clock: Clock) -> None:
        self._admin = admin
        self._geometry = geometry
        self._clock = clock
        self._asked: dict[str, Future[TopicDescription]] = {}
        self._look_at_ms = 0
        self._missing_since_ms: dict[Place, int] = {}

    def turn(self, places: Iterable[Place]) -> Seen | None:
        """Ask, or look in on what was asked; never waits.

        Args:
            places: partitions of intakes.

        Returns:
            What was found; None most of the time.
        """
        now_ms = self._clock.monotonic_ms()
        if self._asked:
            if not all(future.done() for future in self._asked.values()):
                return None
            asked, self._asked = self._asked, {}
            ours = list(places)
            self._missing_since_ms = {at: ms for at, ms in self._missing_since_ms.items() if at in ours}
            try:
                return self._sure(ours, _judged(ours, self._geometry, asked))
            except RetriableError:  # asked again soon
                return None
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            self._asked = self._ask(places)
        return None

    def look(self, places: Iterable[Place]) -> Seen:
        """Look now.

        Raises:
            RetriableError: no answer.
        """
        wanted = list(places)
        return self._sure(wanted, _judged(wanted, self._geometry, self._ask(wanted)))

    def _sure(self, places: Iterable[Place], seen: Seen) -> Seen:
        """What was seen, but that logs which may be missing for a moment only are away."""
        now_ms = self._clock.monotonic_ms()
        sure: dict[Place, str] = {}
        doubtful: dict[Place, str] = {}
        for place in places:
            if place not in seen.missing:
                self._missing_since_ms.pop(place, None)
                continue
            since_ms = self._missing_since_ms.setdefault(place, now_ms)
            (sure if now_ms - since_ms >= SURE_AFTER_MS else doubtful)[place] = seen.missing[place]
        return Seen({**seen.away, **doubtful}, sure, seen.unreadable)

    def _ask(self, places: Iterable[Place]) -> dict[str, Future[TopicDescription]]:
        intakes = {intake for intake, _ in places}  # of one as many topics as of all its partitions
        topics = sorted({topic for one in intakes for topic, _ in logs_of((one, 0), self._geometry[one])})
        if not topics:
            return {}
        futures: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(topics), request_timeout=REQUEST_TIMEOUT_S
        )
        return futures


def _judged(
    places: Iterable[Place], geometry: Mapping[str, Geometry], asked: Mapping[str, "Future[TopicDescription]"]
) -> Seen:
    """What the answers mean.

    Raises:
        RetriableError: there are none.
    """
    # Whether each partition of a topic has a leader; or why that may not be known. Or it came later, and was not asked.
    answers = {topic: _answer(topic, future) for topic, future in asked.items()}
    seen = Seen()
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
    """Whether each partition of a topic has a leader; or why nobody may tell us."""
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
        f"{log[0]} has {partitions} partitions and no {log[1]}, which {place[0]}/{place[1]} needs: was the intake"
        " grown? Keys have moved to other partitions (docs/operations.md, Partitions set aside)"
    )
