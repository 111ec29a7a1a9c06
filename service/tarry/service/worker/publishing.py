"""Publishing to the topic `I.status` what our partitions accept, and how they do (`tarry.core.request.status`).

What a partition accepts is published after its take-over. The figures are published again every few seconds while
something happens, and rarely while nothing does.

Nothing waits for it or depends on it. If the topic is unavailable, or must not be written to, everything else goes on,
and the service tries again a minute later. It uses a producer without transactions. Without figures, that is made when
there are records to publish, and closed when they are delivered.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from tarry.core.request.figures import Figures
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.status import Status
from tarry.kafka.clients import drop
from tarry.kafka.errors import error_of
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.gathering import Gathering
from tarry.service.worker.view import View

AGAIN_MS = 60_000
"""How long to wait after a failure before the next try."""

IDLE_TIMES = 6
"""While nothing happens, figures are published once in so many times."""


class Publishing:
    """Publishes a status record for each partition that was taken over, and figures; for one thread.

    Args:
        cluster: the cluster that it writes to.
        owner: the name of this process.
        policies: what each intake accepts.
        gathering: gathers the figures.
        figures_every_ms: how often to publish them while something happens; 0: never.
        context: time and the log.
    """

    def __init__(
        self,
        cluster: Cluster,
        owner: str,
        policies: Mapping[str, IntakePolicy],
        gathering: Gathering,
        figures_every_ms: int,
        context: Context,
    ) -> None:
        self._cluster = cluster
        self._owner = owner
        self._policies = policies
        self._gathering = gathering
        self._figures_every_ms = figures_every_ms
        self._clock = context.clock
        self._on_event = context.on_event
        self._taken_over_ms: dict[Place, int] = {}
        """When each partition of ours was taken over."""
        self._unpublished: dict[Place, int] = {}
        """The partitions whose status is not published yet, and when each was taken over."""
        self._producer: Producer | None = None
        self._in_flight = 0
        self._failure = ""
        self._not_before_ms = 0
        self._figures_at_ms = 0
        """When to look next whether figures are to be published; monotonic."""
        self._last_change: object = None
        self._skipped = 0
        """How often figures were not published, because nothing had happened."""

    @property
    def is_done(self) -> bool:
        """Whether every status is published."""
        return not self._unpublished

    def taken_over(self, places: Iterable[Place]) -> None:
        """Publish the status of these partitions in the following turns; they are ours from now on."""
        taken = dict.fromkeys(places, self._clock.now_ms())
        self._taken_over_ms.update(taken)
        self._unpublished.update(taken)
        self._gathering.taken_over(len(taken))
        self._not_before_ms = 0

    def turn(self, look: Callable[[], View]) -> None:
        """Begin to publish, or look for the result, without waiting.

        Args:
            look: returns the present state of the partitions; another owner publishes those that are not ours.
        """
        now_ms = self._clock.monotonic_ms()
        if self._in_flight:
            self._poll()
        elif now_ms >= self._not_before_ms:
            are_figures_due = bool(self._figures_every_ms) and now_ms >= self._figures_at_ms
            if self._unpublished or are_figures_due:
                self._begin(look(), now_ms, are_figures_due=are_figures_due)

    def close(self) -> None:
        """Drop the records that are on their way; the next owner publishes the status."""
        producer, self._producer = self._producer, None
        if producer is not None:
            drop(producer)

    def _begin(self, view: View, now_ms: int, *, are_figures_due: bool) -> None:
        self._unpublished = {place: at_ms for place, at_ms in self._unpublished.items() if place in view.states}
        figures: dict[Place, Figures] = {}
        if are_figures_due:
            self._figures_at_ms = now_ms + self._figures_every_ms
            if self._has_changed(view):
                figures = self._gathering.gather(view)
        to_publish = {**dict.fromkeys(figures), **dict.fromkeys(self._unpublished)}
        if not to_publish:
            return
        self._failure = ""
        if self._producer is None:
            self._producer = self._cluster.clients.producer(self._cluster.publisher())
        for place in to_publish:
            self._publish(self._producer, place, figures.get(place))
        if not self._in_flight:
            self._end()

    def _has_changed(self, view: View) -> bool:
        """Whether to publish figures: something has happened, or nothing for long."""
        change = self._gathering.change(view)
        if change == self._last_change and self._skipped + 1 < IDLE_TIMES:
            self._skipped += 1
            return False
        self._last_change, self._skipped = change, 0
        return True

    def _publish(self, producer: Producer, place: Place, figures: Figures | None) -> None:
        intake, partition = place
        at_ms = self._taken_over_ms.setdefault(place, self._clock.now_ms())
        status = Status(partition, self._policies[intake], self._owner, at_ms, figures)
        reported = partial(self._reported, place, at_ms)
        try:
            producer.produce(intake + STATUS, status.value(), status.key(), 0, on_delivery=reported)
        except KafkaException as exception:
            self._failure = error_of(exception).str()
        else:
            self._in_flight += 1

    def _poll(self) -> None:
        try:
            if self._producer is not None:
                self._producer.poll(0)
        except KafkaException as exception:
            self._failure = error_of(exception).str()
            self._in_flight = 0
        if not self._in_flight:
            self._end()

    def _reported(self, place: Place, at_ms: int, error: KafkaError | None, _record: object) -> None:
        self._in_flight -= 1
        if error is not None:
            self._failure = f"{place[0]}{STATUS}: {error.str()}"
        elif self._unpublished.get(place) == at_ms:  # else it was taken over again meanwhile
            del self._unpublished[place]

    def _end(self) -> None:
        if self._producer is not None and (self._failure or not self._figures_every_ms):
            producer, self._producer = self._producer, None
            # It has nothing left to send, but closing it may take a moment, and no turn may wait.
            self._cluster.clients.in_background(partial(drop, producer))
        if self._failure:
            self._on_event("status_not_published", reason=self._failure)
            self._not_before_ms = self._clock.monotonic_ms() + AGAIN_MS
