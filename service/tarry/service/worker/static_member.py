"""A static member that its group has shut out: whether another process has its instance, or nobody, or it itself.

The client library forgets its member id when brokers were away for a session, and may show none with its next
heartbeat, for which it is shut out: the group still knows us by the old one (librdkafka #3437).

A request to join that was held up on its way, and arrives after the one that was sent in its place, makes the group
shut out the member that we are for one that nobody is. Nobody sends no heartbeats: it is gone when its session ends,
and then the instance is ours again.
"""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.errors import BrokerError, MembershipLostError
from tarry.kafka.settings import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS
from tarry.service.worker.connections import Connections

ASK_EVERY_MS = 300
"""How often it is asked who has the instance."""

TWIN_AFTER_MS = MAX_POLL_INTERVAL_MS + 2 * SESSION_TIMEOUT_MS
"""Who has our instance for so long lives.

Nobody's session ends sooner, but while the group rebalances, which may take the first of these times, none does. A new
coordinator begins all of them anew, so it is counted in answers without a gap.
"""


class StaticMember:
    """Whether one process is shut out, and by whom.

    Args:
        connections: its clients.
        clock: monotonic time.
        on_event: takes an event's name and fields, for the log.
    """

    def __init__(self, connections: Connections, clock: Clock, on_event: Callable[..., None]) -> None:
        self._connections = connections
        self._clock = clock
        self._on_event = on_event
        self._error: MembershipLostError | None = None
        self._held_since_ms: int | None = None
        self._ask_at_ms = 0

    def __bool__(self) -> bool:
        """Whether this member is out, as far as it knows."""
        return self._error is not None

    def begin(self, error: MembershipLostError) -> None:
        """The membership has ended; all that was ours is given up already."""
        try:
            # After a fatal error the client may go on to send heartbeats, as the very member that is in.
            self._connections.membership.close()
        except BrokerError as refusal:
            self._on_event("not_left", reason=str(refusal))
        self._error, self._held_since_ms = error, None
        self._on_event("shut_out", reason=str(error))

    def turn(self) -> None:
        """Find out who is in: nobody, or we, and it joins anew.

        Raises:
            MembershipLostError: another process, for so long that it lives; or there is no instance to ask for.
            RetriableError: a broker does not answer.
        """
        error, instance = self._error, self._connections.membership.static_instance
        if error is None:
            return
        if instance is None:
            raise error
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._ask_at_ms:
            return
        self._ask_at_ms = now_ms + ASK_EVERY_MS
        held_since_ms, self._held_since_ms = self._held_since_ms, None
        if self._connections.group.member_of(instance) in {None, self._connections.membership.member_id}:
            self._on_event("shut_out_by_itself")
            self._error = None
            self._connections.membership.rejoin()
            return
        self._held_since_ms = now_ms if held_since_ms is None else held_since_ms
        if now_ms > self._held_since_ms + TWIN_AFTER_MS:
            raise error
