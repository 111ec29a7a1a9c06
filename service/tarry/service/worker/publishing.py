"""Tells the topic `I.status` what the partitions accept that were taken over here (`tarry.core.request.status`).

Nobody waits for it, and nothing depends on it: where the topic is away, or may not be written to, all goes on, and it
is tried again a minute later. Its producer is none of those that transact; it is made when there is something to tell,
and closed when that is there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.clock import Clock
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.status import Status
from tarry.kafka.clients import drop
from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS
from tarry.kafka.types import Place

AGAIN_MS = 60_000
"""How long after a failure it is tried again."""


class Publishing:
    """Publishes what was taken over; one thread.

    Args:
        cluster: where.
        owner: the name of this process.
        policies: what is accepted, by intake.
        clock: wall and monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(
        self,
        cluster: Cluster,
        owner: str,
        policies: Mapping[str, IntakePolicy],
        clock: Clock,
        on_event: Callable[..., None],
    ) -> None:
        self._cluster = cluster
        self._owner = owner
        self._policies = policies
        self._clock = clock
        self._on_event = on_event
        self._told: dict[Place, int] = {}
        """What is still to be published, and when it was taken over."""
        self._producer: Producer | None = None
        self._on_their_way = 0
        self._failure = ""
        self._not_before_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether all is told that is to be."""
        return not self._told

    def taken_over(self, places: Iterable[Place]) -> None:
        """These are ours from now on: tell it in the turns that follow."""
        now_ms = self._clock.now_ms()
        self._told.update(dict.fromkeys(places, now_ms))
        self._not_before_ms = 0

    def turn(self, owned: Collection[Place]) -> None:
        """Begin to publish, or see what has come of it; does not wait.

        Args:
            owned: what is ours by now: what is not is told by its owner.
        """
        if self._producer is None:
            if self._told and self._clock.monotonic_ms() >= self._not_before_ms:
                self._begin(owned)
            return
        try:
            self._producer.poll(0)
        except KafkaException as exception:
            self._failure = error_of(exception).str()
            self._on_their_way = 0
        if not self._on_their_way:
            self._end()

    def close(self) -> None:
        """Drop what is on its way: who comes next tells it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    def _begin(self, owned: Collection[Place]) -> None:
        self._told = {place: at_ms for place, at_ms in self._told.items() if place in owned}
        if not self._told:
            return
        self._failure = ""
        self._producer = producer = self._cluster.clients.producer(self._cluster.publisher())
        for (intake, partition), at_ms in self._told.items():
            status = Status(partition, self._policies[intake], self._owner, at_ms)
            reported = partial(self._reported, (intake, partition), at_ms)
            try:
                producer.produce(intake + STATUS, status.value(), status.key(), 0, on_delivery=reported)
            except KafkaException as exception:
                self._failure = error_of(exception).str()
            else:
                self._on_their_way += 1

    def _reported(self, place: Place, at_ms: int, error: KafkaError | None, _record: object) -> None:
        self._on_their_way -= 1
        if error is not None:
            self._failure = f"{place[0]}{STATUS}: {error.str()}"
        elif self._told.get(place) == at_ms:  # else it was taken over anew meanwhile
            del self._told[place]

    def _end(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # It has nothing to send any more; yet its end may take a moment, which no turn has.
            self._cluster.clients.in_background(partial(drop, producer))
        if self._failure:
            self._on_event("status_not_published", reason=self._failure)
            self._not_before_ms = self._clock.monotonic_ms() + AGAIN_MS
