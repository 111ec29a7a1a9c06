"""A transactional producer beside the loop's own: its transaction stays open over turns that go on without it.

    not there ──is_ready──▶ being built ──▶ ready ──begin──▶ open ──commit──▶ ready
                                 ▲                            │ │
                                 └────────── renew ───────────┘ └────stop───▶ ready

The next producer is built in the background, so that no turn waits for brokers. Whatever is open can be aborted at any
time: a revoke does not ask whether it is convenient.
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
"""How long an abort may take: the next registration under the same id does it too."""

RENEWAL_ABORT_S = 0.25
"""The same before a renewal, mostly some milliseconds: but it may wait for records that were sent behind a refused one,
and that the client library sends again until they time out; to have the registration do it takes as long as this."""

ALONE_BYTES = 1
"""A largest batch that no two records fit into: each goes in a batch of its own."""

SETTLE_S = 3.0
"""How long a take-over or a release waits for a producer that is being built."""

RENEWAL_MS = 60_000
"""How long a producer may be being built, which takes half that where no broker answers.

The client library's calls may hang for good, whatever time-out they are given (librdkafka #5456), and nobody watches
over the thread that makes them here. A process with such a thread has to end, and is ended: what comes next in it waits
for that thread, and the supervisor for neither.
"""


class SideProducer:
    """Keeps a producer standing, and knows whether it has a transaction open.

    Args:
        transactor: the producer; nobody else renews it while it is being built here.
        clients: who waits for brokers in the background.
        clock: monotonic time.
        fitting_bytes: asked for the largest batch that the next producer may send.
    """

    def __init__(
        self,
        transactor: Transactor,
        clients: Clients,
        clock: Clock,
        fitting_bytes: Callable[[], int] = lambda: BATCH_BYTES,
    ) -> None:
        self.transactor = transactor
        """To write, push and send offsets with; it is begun, committed, aborted and renewed here."""
        self._clients = clients
        self._clock = clock
        self._fitting_bytes = fitting_bytes
        self._is_open = False
        self._renewal: Future[None] | None = None
        self._renewing_since_ms = 0

    # -- turns ------------------------------------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether the producer stands; where it was given up, the next one is built beside the loop.

        Raises:
            RetriableError: building it did not succeed; it begins again with the next look.
            FatalError: the producer is lost, or building it hangs.
        """
        if self._renewal is not None and not self._renewal.done():
            self._mind_the_time()
            return False
        self._end_renewal()
        if not self.transactor.started:
            self.renew()
        return self._renewal is None

    def fits(self) -> bool:
        """Whether it sends batches of the size that the next one would."""
        return self.transactor.batch_bytes == self._fitting_bytes()

    def begin(self) -> None:
        """Open a transaction; only where it `is_ready`.

        Raises:
            FatalError: the producer is lost.
        """
        self.transactor.begin()
        self._is_open = True

    def prove_and_commit(self, places: Iterable[Place], membership: Membership) -> None:
        """Commit what is open, if partitions are ours still, as `commit`."""
        self.transactor.send_offsets(proof_of(places), membership.metadata())
        self.commit()

    def commit(self) -> None:
        """Commit what is open, however long it takes.

        Raises:
            AbortableError: nothing of it is committed; `renew` is the next call, or `stop`.
            FatalError: its fate is not known.
        """
        self.transactor.commit()
        self._is_open = False

    def renew(self) -> None:
        """Build the next producer, which aborts what this one has open; only where none is being built.

        After a refusal there is no way around it: the record leaves a gap in the sequence that the next transaction
        would wait behind.
        """
        self.transactor.batch_bytes = self._fitting_bytes()
        self._renewing_since_ms = self._clock.monotonic_ms()
        self._renewal = self._clients.in_background(self._abort_and_renew)

    # -- rebalances -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until no producer is being built beside the loop: its id is to be registered by one at a time.

        Raises:
            RetriableError: it takes too long, or did not succeed.
            FatalError: the producer is lost, or building it hangs.
        """
        if not self._is_settled():
            self._mind_the_time()
            raise RetriableError(f"the producer {self.transactor.transactional_id} is still being built")
        self._end_renewal()

    def stop(self) -> None:
        """Abort what is open, so that partitions can be given up.

        Raises:
            FatalError: the producer is lost.
        """
        if self._renewal is not None:
            self._is_settled()  # if not in time, what it may have open is aborted by who comes next
        elif self._is_open:
            try:
                self.transactor.abort(ABORT_S)
            except RetriableError:
                self.transactor.close()  # who comes next has it aborted
            self._is_open = False

    def forget(self) -> None:
        """The producer is gone, and nothing is open."""
        if self._renewal is not None:
            self._renewal.exception()  # waits: whatever came of it, the producer is built anew
            self._renewal = None
        self._is_open = False

    # -- building it ------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Whether nothing is being built, or was within `SETTLE_S`."""
        if self._renewal is None:
            return True
        try:
            self._renewal.exception(SETTLE_S)
        except TimeoutError:
            return False
        return True

    def _mind_the_time(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._renewing_since_ms
        if waited_ms > RENEWAL_MS:
            raise FatalError(f"the producer {self.transactor.transactional_id} is still not built after {waited_ms} ms")

    def _end_renewal(self) -> None:
        """Raise what came of a renewal, if there was one."""
        renewal, self._renewal = self._renewal, None
        if renewal is not None:
            renewal.result()

    def _abort_and_renew(self) -> None:
        name = self.transactor.transactional_id
        if self._is_open:
            # Else the broker does it, and has the registration wait. But a client that lost its coordinator may never
            # find it again, and nobody watches over this thread.
            try:
                self.transactor.abort(RENEWAL_ABORT_S)
            except RetriableError:
                pass
            except FatalError:
                if self.transactor.transactional_id == name:
                    raise
                # It was renamed meanwhile, and who ends what the old id has open has fenced it.
            self._is_open = False
        self.transactor.renew()
