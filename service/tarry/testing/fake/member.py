"""A client's side of membership: what the group has to say, served one thing a poll."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError

from tarry.kafka.types import Place
from tarry.testing.fake.membership import Application, GroupMetadata
from tarry.testing.fake.process import Process
from tarry.testing.fake.refusals import AnswerLost, Refused, Unanswered
from tarry.testing.fake.wire import Wire

Tell = Callable[[Literal["assign", "revoke", "lost"], Sequence[Place]], None]
"""Calls the application back."""

_POLL_CHECKS_MS = 1_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants.

    Attributes:
        group: its id.
        application: to the group.
        max_poll_ms: after so long without a poll the member leaves.
        tell: calls the application back.
    """

    group: str
    application: Application
    max_poll_ms: int
    tell: Tell


class Member(ABC):
    """One membership, from subscribing to closing.

    What both kinds have in common: errors that wait, sessions that end here, polls that do not come.

    Args:
        wire: to the cluster.
        subscription: what it wants.
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
    def process(self) -> Process:
        """Whose it is."""
        return self._wire.process

    @property
    def is_lost_for_good(self) -> bool:
        """Whether a fatal error has ended it."""
        return self._fatal

    @property
    def id(self) -> str:
        """Its member id."""
        return self._id

    def forget(self, group: str, code: int) -> bool:
        """Its next heartbeat is refused for good, if it is of that group; whether it is."""
        if self._closed or self._fatal or self._wants.group != group:
            return False
        self._die(code, "ConsumerGroupHeartbeat fatal error")
        return True

    def wedge(self, group: str) -> bool:
        """Do nothing more until it is closed, if it is of that group; whether it is."""
        if self._closed or self._fatal or self._wants.group != group:
            return False
        self._wedged = True
        return True

    def still_is(self, group: str, instance: str) -> bool:
        """Whether it sends heartbeats for an instance, as a client does until it is closed, fatal error or not."""
        open_ = self._wire.process.responds and not self._closed
        return open_ and (self._wants.group, self._wants.application.instance) == (group, instance)

    def poll(self) -> KafkaError | None:
        """Serve one thing that the group has to say; an error is for the application."""
        self._polled_ms = self._wire.clock.monotonic_ms()
        if not self._errors:
            self._serve()
        return self._errors.popleft() if self._errors else None

    @abstractmethod
    def metadata(self) -> GroupMetadata:
        """What proves it."""

    @abstractmethod
    def be_refused(self, code: int) -> None:
        """A commit of this member was refused."""

    @abstractmethod
    def close(self) -> None:
        """Give up all partitions, and leave."""

    @abstractmethod
    def _serve(self) -> None:
        """Look what the group has to say, and do one thing about it."""

    def _die(self, code: int, reason: str) -> None:
        """An error that nobody gets over: this member never joins again."""
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
        """The cluster has stopped: where it does not answer within a session, the group has given us up."""

        def end() -> None:
            server = self._wire.server
            if not server.running and server.stops == stops and self._wire.process.responds and self._id:
                self._end_session()

        self._wire.clock.call_at(self._wire.clock.monotonic_ms() + self._wants.application.session_ms, end)

    @abstractmethod
    def _leave_for_now(self) -> None:
        """No poll came for too long."""

    @abstractmethod
    def _end_session(self) -> None:
        """No answer came for too long."""

    @property
    def _is_static(self) -> bool:
        return self._wants.application.instance is not None

    def _quietly(self, call: str, do: Callable[[], None]) -> None:
        """Make a request whose outcome the client does not wait for."""
        with suppress(Unanswered, AnswerLost, Refused):
            self._wire.try_in_background(call, do)
