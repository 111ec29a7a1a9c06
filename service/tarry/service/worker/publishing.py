"""Publishing to the topic `I.status` what our partitions accept, after a take-over (`tarry.core.request.status`).

Nothing waits for it or depends on it. If the topic is unavailable, or must not be written to, everything else goes on,
and the service tries again a minute later. It uses a producer without transactions, which is made when there are
records to publish, and closed when they are delivered.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.status import Status
from tarry.kafka.clients import drop
from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS
from tarry.kafka.types import Place
from tarry.service.worker.context import Context

AGAIN_MS = 60_000
"""How long to wait after a failure before the next try."""


class Publishing:
    """Publishes a status record for each partition that was taken over; for one thread.

    Args:
        cluster: the cluster that it writes to.
        owner: the name of this process.
        policies: what each intake accepts.
        context: time and the log.
    """

    def __init__(
        self,
        cluster: Cluster,
        owner: str,
        policies: Mapping[str, IntakePolicy],
        context: Context,
    ) -> None:
        self._cluster = cluster
        self._owner = owner
        self._policies = policies
        self._clock = context.clock
        self._on_event = context.on_event
        self._unpublished: dict[Place, int] = {}
        """The partitions whose status is not published yet, and when each was taken over."""
        self._producer: Producer | None = None
        self._in_flight = 0
        self._failure = ""
        self._not_before_ms = 0

    @property
    def is_done(self) -> bool:
        """Whether every status is published."""
        return not self._unpublished

    def taken_over(self, places: Iterable[Place]) -> None:
        """Publish the status of these partitions in the following turns; they are ours from now on."""
        now_ms = self._clock.now_ms()
        self._unpublished.update(dict.fromkeys(places, now_ms))
        self._not_before_ms = 0

    def turn(self, owned: Collection[Place]) -> None:
        """Begin to publish, or look for the result, without waiting.

        Args:
            owned: the partitions that are ours now; another owner publishes the others.
        """
        if self._producer is None:
            if self._unpublished and self._clock.monotonic_ms() >= self._not_before_ms:
                self._begin(owned)
            return
        try:
            self._producer.poll(0)
        except KafkaException as exception:
            self._failure = error_of(exception).str()
            self._in_flight = 0
        if not self._in_flight:
            self._end()

    def close(self) -> None:
        """Drop the records that are on their way; the next owner publishes the status."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    def _begin(self, owned: Collection[Place]) -> None:
        self._unpublished = {place: at_ms for place, at_ms in self._unpublished.items() if place in owned}
        if not self._unpublished:
            return
        self._failure = ""
        self._producer = producer = self._cluster.clients.producer(self._cluster.publisher())
        for (intake, partition), at_ms in self._unpublished.items():
            status = Status(partition, self._policies[intake], self._owner, at_ms)
            reported = partial(self._reported, (intake, partition), at_ms)
            try:
                producer.produce(intake + STATUS, status.value(), status.key(), 0, on_delivery=reported)
            except KafkaException as exception:
                self._failure = error_of(exception).str()
            else:
                self._in_flight += 1

    def _reported(self, place: Place, at_ms: int, error: KafkaError | None, _record: object) -> None:
        self._in_flight -= 1
        if error is not None:
            self._failure = f"{place[0]}{STATUS}: {error.str()}"
        elif self._unpublished.get(place) == at_ms:  # else it was taken over again meanwhile
            del self._unpublished[place]

    def _end(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            # It has nothing left to send, but closing it may take a moment, and no turn may wait.
            self._cluster.clients.in_background(partial(drop, producer))
        if self._failure:
            self._on_event("status_not_published", reason=self._failure)
            self._not_before_ms = self._clock.monotonic_ms() + AGAIN_MS
