"""A transactional producer beside the firing producer; its transaction stays open while the loop goes on.

    not there ──is_ready──▶ being built ──▶ ready ──begin──▶ open ──commit──▶ ready
                                 ▲                            │ │
                                 └────────── renew ───────────┘ └────stop───▶ ready

The next producer is built in the background, so that no turn waits for brokers. An open transaction can be aborted at
any time, because the group may revoke partitions at any time.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tarry.clock import Clock
from tarry.errors import FatalError, RetriableError
from tarry.kafka.clients import Clients
from tarry.kafka.membership import Membership
from tarry.kafka.partition_logs import proof_of
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.transaction import Transactor
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from concurrent.futures import Future

ABORT_S = 2.0
"""How long an abort may take; if it takes longer, the next registration of the same id aborts the transaction too."""

RENEWAL_ABORT_S = 0.25
"""How long an abort before a renewal may take.

It mostly takes some milliseconds. But it may wait for records that were sent after a refused one, and that the client
library sends again until they time out. Leaving the abort to the registration costs as much time as this.
"""

SETTLE_S = 3.0
"""How long a take-over or a release waits for a producer that is being built."""

RENEWAL_MS = 60_000
"""How long building a producer may take; it takes half that when no broker answers.

Calls of the client library may hang permanently, whatever their time-out (librdkafka #5456), and no watchdog observes
the background thread that makes them here. If that thread hangs for this long, the process must end: its next step
waits for the thread, the loop stops reporting, and the supervisor kills the process.
"""


class SideProducer:
    """Keeps a producer ready, and knows whether it has an open transaction.

    Args:
        transactor: the producer; no other code renews it while it is being built here.
        clients: waits for brokers in the background.
        clock: monotonic time.
        fitting_bytes: returns the largest batch that the next producer may send, in bytes.
    """

    def __init__(
        self,
        transactor: Transactor,
        clients: Clients,
        clock: Clock,
        fitting_bytes: Callable[[], int] = lambda: BATCH_BYTES,
    ) -> None:
        self.transactor = transactor
        """For writing, pushing and sending offsets; only this object begins, commits, aborts and renews it."""
        self._clients = clients
        self._clock = clock
        self._fitting_bytes = fitting_bytes
        self._is_open = False
        self._renewal: Future[None] | None = None
        self._renewing_since_ms = 0

    # -- turns ------------------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Return whether the producer is ready; if it was given up, build the next one in the background.

        Raises:
            RetriableError: building it failed; the next call begins again.
            FatalError: the producer is lost, or building it hangs.
        """
        if self._renewal is not None and not self._renewal.done():
            self._check_renewal_time()
            return False
        self._end_renewal()
        if not self.transactor.started:
            self.renew()
        return self._renewal is None

    def fits(self) -> bool:
        """Return whether its batch size is the one that the next producer would have."""
        return self.transactor.batch_bytes == self._fitting_bytes()

    def begin(self) -> None:
        """Open a transaction; call this only when `is_ready`.

        Raises:
            FatalError: the producer is lost.
        """
        self.transactor.begin()
        self._is_open = True

    def prove_and_commit(self, places: Iterable[Place], membership: Membership) -> None:
        """Commit the open transaction if these partitions are still ours; raises like `commit`."""
        self.transactor.send_offsets(proof_of(places), membership.metadata())
        self.commit()

    def commit(self) -> None:
        """Commit the open transaction, however long it takes.

        Raises:
            AbortableError: nothing of it is committed; call `renew` or `stop` next.
            FatalError: its fate is unknown.
        """
        self.transactor.commit()
        self._is_open = False

    def renew(self) -> None:
        """Build the next producer, which aborts this one's open transaction; call this only when none is being built.

        After a refusal this is necessary: the refused record leaves a gap in the producer's sequence numbers, and the
        next transaction would wait behind it.
        """
        self.transactor.batch_bytes = self._fitting_bytes()
        self._renewing_since_ms = self._clock.monotonic_ms()
        self._renewal = self._clients.in_background(self._abort_and_renew)

    # -- rebalances -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until no background thread is building a producer: only one at a time may register its id.

        Raises:
            RetriableError: it takes too long, or it failed.
            FatalError: the producer is lost, or building it hangs.
        """
        if not self._is_settled():
            self._check_renewal_time()
            raise RetriableError(f"the producer {self.transactor.transactional_id} is still being built")
        self._end_renewal()

    def stop(self) -> None:
        """Abort the open transaction, so that partitions can be given up.

        Raises:
            FatalError: the producer is lost.
        """
        if self._renewal is not None:
            self._is_settled()  # if not in time, the next owner aborts a transaction that may still be open
        elif self._is_open:
            try:
                self.transactor.abort(ABORT_S)
            except RetriableError:
                self.transactor.close()  # the next owner aborts the transaction
            self._is_open = False

    def forget(self) -> None:
        """Forget the open transaction, because the producer was dropped."""
        if self._renewal is not None:
            self._renewal.exception()  # waits; whether it succeeded or failed, the producer is built again
            self._renewal = None
        self._is_open = False

    # -- building it ------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Wait at most `SETTLE_S` for a producer that is being built; return whether none is being built any more."""
        if self._renewal is None:
            return True
        try:
            self._renewal.exception(SETTLE_S)
        except TimeoutError:
            return False
        return True

    def _check_renewal_time(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._renewing_since_ms
        if waited_ms > RENEWAL_MS:
            raise FatalError(f"the producer {self.transactor.transactional_id} is still not built after {waited_ms} ms")

    def _end_renewal(self) -> None:
        """End a finished renewal, if there is one, and raise its error, if it failed."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.result()

    def _abort_and_renew(self) -> None:
        name = self.transactor.transactional_id
        if self._is_open:
            # Without this the broker aborts the transaction and makes the registration wait. The time limit is needed
            # because a client that lost its coordinator may never find it again, and no watchdog observes this thread.
            try:
                self.transactor.abort(RENEWAL_ABORT_S)
            except RetriableError:
                pass
            except FatalError:
                if self.transactor.transactional_id == name:
                    raise
                # It was renamed meanwhile, and fenced when the old id's open transaction was ended.
            self._is_open = False
        self.transactor.renew()
