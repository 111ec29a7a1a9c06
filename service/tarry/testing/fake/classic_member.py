"""The client's side of a member of a classic group."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from tarry.testing.fake.classic_group import ClassicGroup, RebalancePhase
from tarry.testing.fake.member import Member, Subscription
from tarry.testing.fake.membership import GroupMetadata
from tarry.testing.fake.refusals import AnswerLost, RefusedRequest, Unanswered
from tarry.testing.fake.wire import Wire

if TYPE_CHECKING:
    from tarry.kafka.types import Place


class ClassicMember(Member):
    """A member by the classic protocol.

    Args:
        wire: the connection to the cluster.
        subscription: the group, the topics and the callbacks.
    """

    def __init__(self, wire: Wire, subscription: Subscription) -> None:
        super().__init__(wire, subscription)
        self._generation = -1
        self._assigned: tuple[Place, ...] | None = None
        self._waiting = False
        """Whether it has joined a generation and has not received its assignment yet."""

    def metadata(self) -> GroupMetadata:
        """Return the member id and the last generation that the client has received."""
        self._hear_of_generation()
        return GroupMetadata(self._wants.group, self._id, self._generation, self._wants.application.instance)

    def be_refused(self, code: int) -> None:
        """Rejoin as a new member if the group does not know the member id; rejoin if the generation is old."""
        if code == KafkaError.UNKNOWN_MEMBER_ID:
            self._id, self._generation, self._lost = "", -1, True
        elif code == KafkaError.ILLEGAL_GENERATION and self._assigned is not None:
            self._generation, self._lost = -1, True

    def close(self) -> None:
        """Give up all partitions. A dynamic member also leaves the group."""
        self._closed = True
        if not self._wire.process.alive:
            return
        if self._wire.server.running and not self._fatal:
            self._beat()
        assigned, self._assigned = self._assigned, None
        if self._fatal:  # after a fatal error the application gets no more callbacks
            return
        if assigned is not None:
            self._wants.tell("lost" if self._lost else "revoke", assigned)
        if not self._id:
            return
        if self._is_static:
            self._wire.server.groups.expire(self._wants.group, self._id, self._wants.application.session_ms)
        else:
            self._quietly("leave", partial(self._group().remove, self._id))

    def _end_session(self) -> None:
        self._wire.server.groups.expire(self._wants.group, self._id, self._wants.application.session_ms)
        self._id, self._generation, self._lost = "", -1, True

    def _leave_for_now(self) -> None:
        if not self._is_static:
            self._group().remove(self._id)
        self._id, self._generation, self._lost = "", -1, True

    def _group(self) -> ClassicGroup:
        return self._wire.server.groups.of_kind(self._wants.group, ClassicGroup)

    def _beat(self) -> bool:
        """Send a heartbeat; return whether the member must rejoin."""
        if not self._id or self._fatal:
            return False
        try:
            rejoin = self._group().beat(self._id, self._wants.application.instance)
        except RefusedRequest as refusal:
            if refusal.code == KafkaError.FENCED_INSTANCE_ID:
                self._die(refusal.code, "Fatal consumer error")
            else:
                self.be_refused(refusal.code)
            return False
        self._hear_of_generation()
        if not rejoin and not self._waiting and self._generation not in {-1, self._group().generation}:
            self._generation, self._lost = -1, True
        return rejoin

    def _hear_of_generation(self) -> None:
        group = self._group()
        if (
            self._waiting
            and group.phase in {RebalancePhase.COMPLETING, RebalancePhase.STABLE}
            and (seat := group.find(self._id))
        ):
            self._generation = group.generation if seat.joined else self._generation

    def _serve(self) -> None:
        running = self._wire.server.running
        rejoin = running and self._beat()
        if self._errors:
            return
        if self._lost:
            self._lost = self._waiting = False
            assigned, self._assigned = self._assigned, None
            if assigned is not None and not self._fatal:
                self._wants.tell("lost", assigned)
        if self._fatal or not running:
            return
        if rejoin:
            self._waiting = False
            assigned, self._assigned = self._assigned, None
            if assigned is not None:
                self._wants.tell("revoke", assigned)
        if self._waiting:
            self._take_assignment()
        elif self._assigned is None and not self._closed:
            self._join()

    def _take_assignment(self) -> None:
        group = self._group()
        seat = group.find(self._id)
        if seat is not None and group.phase is RebalancePhase.STABLE:
            self._waiting = False
            self._assigned = seat.assignment
            self._wants.tell("assign", seat.assignment)

    def _join(self) -> None:
        def join() -> None:
            self._id = self._group().join(replace(self._wants.application, member=self._id))
            self._waiting = True

        try:
            self._wire.try_in_background("join", join)
        except (Unanswered, AnswerLost):
            return
        except RefusedRequest as refusal:
            if refusal.code == KafkaError.FENCED_INSTANCE_ID:
                self._die(refusal.code, "Fatal consumer error")
            else:
                self._id, self._generation = "", -1
