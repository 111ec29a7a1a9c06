"""The client's side of a member of a KIP-848 group."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tarry.testing.fake.consumer_group import ConsumerGroup
from tarry.testing.fake.member import Member, Subscription
from tarry.testing.fake.membership import GroupMetadata
from tarry.testing.fake.refusals import AnswerLost, RefusedRequest, Unanswered
from tarry.testing.fake.wire import Wire

if TYPE_CHECKING:
    from tarry.kafka.types import Place


class ConsumerMember(Member):
    """A member by the protocol of KIP-848.

    Args:
        wire: the connection to the cluster.
        subscription: the group, the topics and the callbacks.
    """

    def __init__(self, wire: Wire, subscription: Subscription) -> None:
        super().__init__(wire, subscription)
        self._mine: set[Place] = set()

    def metadata(self) -> GroupMetadata:
        """Return the member id and its epoch. The epoch can change without a callback."""
        seat = self._group().find(self._id) if self._id else None
        if self._fatal or seat is None:
            return GroupMetadata(self._wants.group, self._id, -1, self._wants.application.instance)
        return GroupMetadata(self._wants.group, self._id, seat.epoch, self._wants.application.instance)

    def be_refused(self, code: int) -> None:
        """Do nothing: the member learns its state from its next heartbeat."""

    def close(self) -> None:
        """Give up all partitions, and leave. The group keeps a static member until its session expires."""
        self._closed = True
        if not self._wire.process.alive:
            return
        mine, self._mine = self._mine, set()
        out = self._lost or self._group().find(self._id) is None
        if mine:
            self._wants.tell("lost" if out else "revoke", sorted(mine))
        if self._id and not self._fatal and not out:
            self._quietly("leave", partial(self._group().leave, self._id))

    def _end_session(self) -> None:
        """Do nothing: only the group ends sessions; a member without an answer continues."""

    def _leave_for_now(self) -> None:
        self._group().remove(self._id)
        self._id = ""

    def _group(self) -> ConsumerGroup:
        return self._wire.server.groups.of_kind(self._wants.group, ConsumerGroup)

    def _serve(self) -> None:
        if not self._wire.server.running:
            return
        seat = self._group().find(self._id) if self._id else None
        if self._mine and (self._lost or seat is None):
            mine, self._mine = self._mine, set()
            self._wants.tell("lost", sorted(mine))
        if self._fatal or self._wedged:
            return
        if seat is None:
            self._join()
        elif given_up := (self._mine | seat.owned) - seat.target:
            # Partitions that the application has not received yet are returned without a callback.
            if told := given_up & self._mine:
                self._wants.tell("revoke", sorted(told))
            self._mine -= given_up
            self._group().release(self._id, given_up)
        elif gained := (seat.owned & seat.target) - self._mine:
            self._mine |= gained
            self._wants.tell("assign", sorted(gained))

    def _join(self) -> None:
        def join() -> None:
            self._id = self._group().join(replace(self._wants.application, member=self._id))

        try:
            self._wire.try_in_background("join", join)
        except (Unanswered, AnswerLost):
            return
        except RefusedRequest as refusal:
            self._die(refusal.code, "ConsumerGroupHeartbeat fatal error")
