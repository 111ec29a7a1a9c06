"""Waits for the outcomes of messages and cancels, with one consumer for all waiting callers.

One thread reads all partitions of the intake's results topic, from the end at the start, and completes the operations
that wait in a purgatory, by partition and message id. The module `waiting` explains why no result is missed.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from tarry.client.closing import Closing
from tarry.client.forking import CreatingProcess, keep_in_children
from tarry.client.outcome.follower import Follower
from tarry.client.outcome.looking_back import LookingBack, Search
from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import Result, Wanted
from tarry.client.outcome.waiting import AwaitedOutcome, PendingOutcomes
from tarry.client.receipt import CancelReceipt, NameCancelReceipt, Receipt, ScheduleReceipt
from tarry.clock import Clock, SystemClock
from tarry.errors import FatalError, TarryError, UsageError
from tarry.handle import Handle
from tarry.headers import Outcome
from tarry.kafka.settings import Cluster, Options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from datetime import datetime

REMEMBERED = 20_000
"""How many results are remembered by default, about 0.7 kB each."""
_POLL_S = 0.1
"""The longest wait for results, in seconds; a new search for older results begins after it."""
_MARK_EVERY_MS = 1_000
"""The least time between two marks: each mark requests the end offset of every partition."""

Subject = Receipt | ScheduleReceipt | CancelReceipt | NameCancelReceipt | Handle | str


class OutcomeReader(Closing):
    """Waits for the outcomes of messages and cancels of one intake.

    A context manager. Thread-safe; any number of calls may wait at the same time. In a forked process it raises
    `UsageError`: create a new one there.

    Example:
        with DelayedProducer(servers) as producer, OutcomeReader(servers) as outcomes:
            receipt = producer.send("orders", b"...", delay=timedelta(seconds=5))
            outcomes.await_outcome(receipt, timeout_s=30)["outcome"]

    Create the reader before you send: it then finds the result of each message fast, in memory or from an offset close
    to it. For an earlier message, or a handle without its receipt, the reader searches the whole partition of the
    results: first from the message's due time on, then the older results.

    Args:
        bootstrap_servers: `HOST:PORT`, several separated by commas.
        intake: the intake that the messages are sent to.
        options: librdkafka properties, for example for security.
        remembered: how many results to remember for callers that wait for them later; at least 1.
        clock: measures the time-outs.

    Raises:
        UsageError: the intake has no results topic: the service has never served it.
        BrokerError: Kafka does not answer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        intake: str = "tarry.delayed",
        options: Options | None = None,
        *,
        remembered: int = REMEMBERED,
        clock: Clock | None = None,
    ) -> None:
        self.intake = intake
        cluster = Cluster(bootstrap_servers, options or {})
        clock = self._clock = clock or SystemClock()
        self._follower = Follower(cluster, intake, clock)
        self._looking_back = LookingBack(cluster, self._follower.topic, self._follower.offsets, clock)
        self._recent = RecentResults(max(1, remembered), self._follower.positions)
        self._pending = PendingOutcomes(f"outcomes {intake}", self._recent, clock)
        self._mark_every = max(1, remembered // 4)
        self._stopping = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._read, name=f"outcomes {intake}", daemon=True)
        self._origin = CreatingProcess()
        keep_in_children(self)
        self._pending.start()
        self._thread.start()

    def clients(self) -> list[object]:
        """Return the librdkafka clients, which a forked process inherits."""
        return [*self._follower.clients(), *self._looking_back.clients()]

    def await_outcome(
        self, subject: Subject, timeout_s: float | None = None, *, since: datetime | None = None
    ) -> Result:
        """Wait until the message is delivered, cancelled, replaced, skipped, recognised as a duplicate, or dead.

        Args:
            subject: the message's receipt or handle, or the receipt of a cancel or of a schedule. The outcome of a
                cancel is `cancelled`, `cancel-too-late`, or `dead` if its handle does not belong to the intake. That of
                a schedule is its end: `cancelled`, `replaced`, `dead`, `skipped` or `duplicate`; its occurrences have
                results of their own.
            timeout_s: how long to wait, in seconds; None: no limit. A message for an unavailable target has no outcome
                until the target is available again.
            since: for a message that was sent before this reader was created, or by another process: a time before
                which its result cannot have been written, for example when it was sent. The reader then skips older
                results.

        Returns:
            The result, as the service wrote it.

        Raises:
            TimeoutError: the time is over. Either there is no outcome yet, or its result has expired.
            HeaderError: the text is not a handle.
            UsageError: the message does not belong to this intake.
            BrokerError: the results cannot be read, or the reader was closed.
        """
        return self.outcome(subject, timeout_s, since=since).result()

    def outcome(
        self, subject: Subject, timeout_s: float | None = None, *, since: datetime | None = None
    ) -> Future[Result]:
        """Return a future of the outcome; the arguments are those of `await_outcome`.

        Returns:
            A future of the result, with the exceptions of `await_outcome`. Its callbacks run in a thread of the reader:
            they should be short, and must not close the reader. In a coroutine: `await asyncio.wrap_future(...)`.
            Cancelling the future ends the wait.

        Raises:
            HeaderError: the text is not a handle.
            UsageError: the message does not belong to this intake.
            BrokerError: the results cannot be read, or the reader was closed.
        """
        wanted = Wanted(Handle.parse(subject) if isinstance(subject, str) else subject)
        return self._begin(wanted, timeout_s, since).future

    def await_decision(self, receipt: Receipt | ScheduleReceipt, timeout_s: float | None = None) -> Result:
        """Wait until the service has decided whether a message or schedule with `only_if` waits.

        Args:
            receipt: its receipt.
            timeout_s: how long to wait, in seconds; None: no limit.

        Returns:
            The first result of the message: `scheduled`, and `await_outcome` returns its outcome later; or its outcome
            at once, such as `skipped` or `duplicate`. A message without `only_if` is never `scheduled`.

        Raises:
            TimeoutError: the time is over.
            UsageError: the message does not belong to this intake.
            BrokerError: the results cannot be read, or the reader was closed.
        """
        return self.decision(receipt, timeout_s).result()

    def decision(self, receipt: Receipt | ScheduleReceipt, timeout_s: float | None = None) -> Future[Result]:
        """Return a future of what `await_decision` returns; the arguments are the same.

        Raises:
            UsageError: the message does not belong to this intake.
            BrokerError: the results cannot be read, or the reader was closed.
        """
        return self._begin(Wanted(receipt, interim=True), timeout_s).future

    def of_cancel(self, receipt: CancelReceipt, timeout_s: float) -> Iterator[Result]:
        """Wait for the results of a cancel.

        Args:
            receipt: the receipt of the cancel.
            timeout_s: how long to wait for all results together, in seconds.

        Yields:
            The results, as the service wrote them: first `cancel-filed`, if the message is not due soon (5 to 25 s);
            then the definite one: `cancelled`, `cancel-too-late`, or `dead` if the handle does not belong to the
            intake. The iterator ends early when the time is over.

        Raises:
            UsageError: the cancel does not belong to this intake.
            BrokerError: the results cannot be read, or the reader was closed.
        """
        # Both waits begin here, so that they share one time-out.
        definite = self._begin(Wanted(receipt), timeout_s).future
        first = self._begin(Wanted(receipt, interim=True), timeout_s).future
        try:
            result = first.result()
            yield result
            if result["outcome"] == Outcome.CANCEL_FILED:
                yield definite.result()
        except TimeoutError:
            return
        finally:
            definite.cancel()

    @property
    def waiting(self) -> int:
        """The number of waiting operations."""
        return self._pending.waiting

    @property
    def watched(self) -> int:
        """The number of entries in the purgatory's watch lists; settled operations count until a purge."""
        return self._pending.watched()

    @property
    def delayed(self) -> int:
        """The number of operations in the purgatory's timing wheel."""
        return self._pending.delayed()

    @property
    def remembered(self) -> int:
        """The number of remembered results."""
        return len(self._recent)

    def close(self) -> None:
        """Close the reader; waiting calls fail. A second call does nothing. Do not call it in a future's callback."""
        if self._closed or self._origin.is_forked:
            return
        self._closed = True
        self._stopping.set()
        self._thread.join()
        self._pending.fail(FatalError(f"the reader of {self._follower.topic} is closed"))
        self._pending.shutdown()
        self._looking_back.close()
        self._follower.close()

    def _begin(self, wanted: Wanted, timeout_s: float | None, since: datetime | None = None) -> AwaitedOutcome:
        self._origin.check("reader")
        handle = wanted.handle
        if handle.topic != self.intake or handle.partition not in self._follower.positions:
            raise UsageError(
                f"the handle is not of intake {self.intake}, or its partition was added after this reader was created "
                f"(then create a new reader): {handle}"
            )
        operation = self._pending.watch(wanted, timeout_s)
        # Only after `watch`: a result that was forgotten before must lead to a search.
        if not operation.is_settled:
            search = self._search(operation, since)
            if search is not None:
                self._looking_back.ask(search)
        return operation

    def _search(self, operation: AwaitedOutcome, since: datetime | None) -> Search | None:
        """Return the search that an operation needs; None: all its results are remembered or still to come."""
        wanted = operation.wanted
        partition = wanted.handle.partition
        begin = None if wanted.offset is None else self._follower.begin_of(partition, wanted.offset)
        if begin is not None:
            return None if begin >= self._recent.begin(partition) else Search(operation, begin)
        if since is not None:
            return Search(operation, times_ms=[max(1, math.floor(since.timestamp() * 1_000))])
        return Search(operation, times_ms=[max(1, wanted.handle.due_ms), 0])

    def _read(self) -> None:
        """Run the reader's thread: follow the results, and search older ones in between."""
        unmarked = mark_at_ms = 0
        try:
            while not self._stopping.is_set():
                unmarked += self._follower.read(0 if self._looking_back.is_busy else _POLL_S, self._arrive)
                if unmarked >= self._mark_every and self._clock.monotonic_ms() >= mark_at_ms:
                    unmarked, mark_at_ms = 0, self._clock.monotonic_ms() + _MARK_EVERY_MS
                    self._follower.mark()
                self._looking_back.step(self._follower.positions)
        except TarryError as error:
            self._pending.fail(error)
        except BaseException as error:
            self._pending.fail(FatalError(f"could not read {self._follower.topic}: {error!r}"))
            raise

    def _arrive(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is not None:
            self._pending.arrive((partition, key), offset, value)
