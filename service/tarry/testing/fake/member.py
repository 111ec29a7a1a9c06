"""The client's side of group membership. Each poll handles at most one piece of news from the group."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError

from tarry.kafka.types import Place
from tarry.testing.fake.membership import Application, GroupMetadata
from tarry.testing.fake.process import ClientProcess
from tarry.testing.fake.refusals import AnswerLost, RefusedRequest, Unanswered
from tarry.testing.fake.wire import Wire

Tell = Callable[[Literal["assign", "revoke", "lost"], Sequence[Place]], None]
"""Calls the application's rebalance callback."""

_POLL_CHECKS_MS = 1_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """The settings of a member.

    Attributes:
        group: the group's id.
        application: the request to join.
        max_poll_ms: the time without a poll after which the member leaves the group.
        tell: calls the application's rebalance callback.
    """

    group: str
    application: Application
    max_poll_ms: int
    tell: Tell


class Member(ABC):
    """One membership, from `subscribe` to `close`.

    This class has the parts that both protocols share: errors for the next poll, sessions that expire in the client,
    and the maximum poll interval.

    Args:
        wire: the connection to the cluster.
        subscription: the group, the topics and the callbacks.
    """

    def __init__(self, wire: Wire, subscription: Subscription) -> None:
        self._wire = wire
        self._wants = subscription
        self._errors: deque[KafkaError] = deque()
        self._id = ""
        self._fatal = False
        self._lost = False
        self._closed = False
        self._wedged = False
        self._polled_ms = wire.clock.monotonic_ms()
        self._watch_polls()

    @property
    def process(self) -> ClientProcess:
        """The process of the client."""
        return self._wire.process

    @property
    def is_lost_for_good(self) -> bool:
        """Whether a fatal error has ended this membership."""
        return self._fatal

    @property
    def id(self) -> str:
        """The member id."""
        return self._id

    def forget(self, group: str, code: int) -> bool:
        """If this is a member of the group, have its next heartbeat fail fatally; return whether it is one."""
        if self._closed or self._fatal or self._wants.group != group:
            return False
        self._die(code, "ConsumerGroupHeartbeat fatal error")
        return True

    def wedge(self, group: str) -> bool:
        """If this is a member of the group, have it do nothing until it is closed; return whether it is one."""
        if self._closed or self._fatal or self._wants.group != group:
            return False
        self._wedged = True
        return True

    def still_is(self, group: str, instance: str) -> bool:
        """Return whether it sends heartbeats for an instance. It does until it is closed, even after a fatal error."""
        open_ = self._wire.process.responds and not self._closed
        return open_ and (self._wants.group, self._wants.application.instance) == (group, instance)

    def poll(self) -> KafkaError | None:
        """Handle one piece of news from the group; return an error for the application, or None."""
        self._polled_ms = self._wire.clock.monotonic_ms()
        if not self._errors:
            self._serve()
        return self._errors.popleft() if self._errors else None

    @abstractmethod
    def metadata(self) -> GroupMetadata:
        """Return the metadata that proves membership."""

    @abstractmethod
    def be_refused(self, code: int) -> None:
        """React to the refusal of a commit of this member."""

    @abstractmethod
    def close(self) -> None:
        """Give up all partitions, and leave the group."""

    @abstractmethod
    def _serve(self) -> None:
        """Check the group for news, and handle one piece of it."""

    def _die(self, code: int, reason: str) -> None:
        """Fail fatally: this member never joins again."""
        text = KafkaError(code).str()
        self._errors.append(KafkaError(KafkaError._FATAL, f"Fatal error: {text}: {reason}: {text}"))
        self._fatal = self._lost = True

    def _watch_polls(self) -> None:
        self._wire.clock.call_at(self._wire.clock.monotonic_ms() + _POLL_CHECKS_MS, self._check_polls)

    def _check_polls(self) -> None:
        process, clock = self._wire.process, self._wire.clock
        if self._closed or not process.alive:
            return
        late_ms = clock.monotonic_ms() - self._polled_ms - self._wants.max_poll_ms
        if process.responds and late_ms >= 0 and self._id and not self._fatal and self._wire.server.running:
            text = f"Application maximum poll interval ({self._wants.max_poll_ms}ms) exceeded by {late_ms}ms"
            self._errors.append(KafkaError(KafkaError._MAX_POLL_EXCEEDED, text))
            self._leave_for_now()
        self._watch_polls()

    def end_session_after(self, stops: int) -> None:
        """Called when the cluster stops. If it does not answer within a session, the member's session has expired."""

        def end() -> None:
            server = self._wire.server
            if not server.running and server.stops == stops and self._wire.process.responds and self._id:
                self._end_session()

        self._wire.clock.call_at(self._wire.clock.monotonic_ms() + self._wants.application.session_ms, end)

    @abstractmethod
    def _leave_for_now(self) -> None:
        """Leave the group, because the maximum poll interval is exceeded."""

    @abstractmethod
    def _end_session(self) -> None:
        """End the session, because the cluster has not answered for the session timeout."""

    @property
    def _is_static(self) -> bool:
        return self._wants.application.instance is not None

    def _quietly(self, call: str, do: Callable[[], None]) -> None:
        """Make a request, and ignore its outcome."""
        with suppress(Unanswered, AnswerLost, RefusedRequest):
            self._wire.try_in_background(call, do)
