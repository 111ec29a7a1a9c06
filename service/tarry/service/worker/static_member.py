"""Finds out which member holds our `group.instance.id` after the group has fenced us.

It is a member of another process, a ghost that has no process, or our own old member.

The client library forgets its member id when the brokers were away for a session, and may send its next heartbeat
without one. The group fences it for that, but still knows us by the old member id (librdkafka #3437).

A join request that is delayed on its way may arrive after the request that was sent in its place. Then the group
replaces our member with a ghost that never heartbeats. The ghost expires after one session timeout, and then the
instance is ours again.
"""

from tarry.errors import BrokerError, MembershipLostError
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS
from tarry.service.worker.connections import Connections
from tarry.service.worker.context import Context

ASK_EVERY_MS = 300
"""How often to ask which member holds the instance."""

TWIN_AFTER_MS = MAX_POLL_INTERVAL_MS + 2 * SESSION_TIMEOUT_MS
"""A member that holds our instance for longer than this belongs to a running process: a ghost would have expired.

A ghost's session ends sooner. But no session ends while the group rebalances, which may take up to the first of these
times. A new coordinator restarts all sessions, so the time counts only over answers without a gap.
"""


class StaticMember:
    """Tells whether the group has fenced this process's static member, and which member holds the instance now.

    Args:
        connections: its clients.
        context: monotonic time and the log.
    """

    def __init__(self, connections: Connections, context: Context) -> None:
        self._connections = connections
        self._clock = context.clock
        self._on_event = context.on_event
        self._error: MembershipLostError | None = None
        self._held_since_ms: int | None = None
        self._ask_at_ms = 0

    def begin(self, error: MembershipLostError) -> None:
        """Begin to ask, after the membership has ended; all our partitions are given up already."""
        try:
            # After a fatal error the client may go on sending heartbeats as the member that holds the instance.
            self._connections.membership.close()
        except BrokerError as refusal:
            self._on_event("not_left", reason=str(refusal))
        self._error, self._held_since_ms = error, None
        self._on_event("shut_out", reason=str(error))

    def turn(self) -> bool:
        """Find out which member holds the instance; return whether it is no member, or our own: then we may join again.

        Raises:
            MembershipLostError: another member holds it for so long that its process is running; or this process has no
                instance to ask about.
            RetriableError: a broker does not answer.
        """
        error, instance = self._error, self._connections.membership.static_instance
        if error is None:
            raise AssertionError("nothing has ended the membership")
        if instance is None:
            raise error
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._ask_at_ms:
            return False
        self._ask_at_ms = now_ms + ASK_EVERY_MS
        held_since_ms, self._held_since_ms = self._held_since_ms, None
        if self._connections.group.member_of(instance) in {None, self._connections.membership.member_id}:
            self._on_event("shut_out_by_itself")
            self._error = None
            return True
        self._held_since_ms = now_ms if held_since_ms is None else held_since_ms
        if now_ms > self._held_since_ms + TWIN_AFTER_MS:
            raise error
        return False
