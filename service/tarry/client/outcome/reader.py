"""Waiting for what became of a message, or of a cancel, with one reader for all who wait.

One thread reads all partitions of the intake's results, from where they ended at the start, and completes the
operations that wait in a purgatory, by partition and message id. See `waiting` for why no result is missed.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Self

from tarry.client.forking import Origin, keep_in_children
from tarry.client.outcome.follower import Follower
from tarry.client.outcome.looking_back import LookingBack, Search
from tarry.client.outcome.recent import RecentResults
from tarry.client.outcome.result import Result, Wanted
from tarry.client.outcome.waiting import AwaitedOutcome, WaitingRoom
from tarry.client.receipt import CancelReceipt, Receipt
from tarry.clock import Clock, SystemClock
from tarry.errors import FatalError, TarryError, UsageError
from tarry.handle import Handle
from tarry.headers import Outcome
from tarry.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future
    from datetime import datetime
    from types import TracebackType

REMEMBERED = 20_000
"""How many results are remembered, about 0.7 kB each."""
_POLL_S = 0.1
_MARK_EVERY_MS = 1_000
"""The least time between two marks: each is a question for every partition."""

Subject = Receipt | CancelReceipt | Handle | str


class OutcomeReader:
    """Waits for the outcomes of messages and cancels of one intake.

    A context manager, for any number of threads and any number of waiting operations. In a process that is forked while
    there is one, it refuses: make one there.

    Example:
        with DelayedProducer(servers) as producer, OutcomeReader(servers) as outcomes:
            receipt = producer.send("orders", b"...", delay=timedelta(seconds=5))
            outcomes.await_outcome(receipt, timeout_s=30)["outcome"]

    What is sent after the reader was made is known best: its result is among the recent ones, or still to come, or it
    is looked for from a place near by. What was sent before, or whose receipt is elsewhere, is looked for in all that
    the partition of results still holds: from the message's due time on, then the older ones.

    Args:
        bootstrap_servers: Kafka's.
        intake: where the messages are sent.
        options: librdkafka's properties, for security and the like.
        remembered: how many results are remembered for those who wait for them later; at least 1.
        clock: for time-outs.

    Raises:
        UsageError: the intake has no results topic: the service has never served it.
        BrokerError: Kafka does not answer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        intake: str = "tarry.delayed",
        options: Mapping[str, str | int | float | bool] | None = None,
        *,
        remembered: int = REMEMBERED,
        clock: Clock | None = None,
    ) -> None:
        self.intake = intake
        cluster = Cluster(bootstrap_servers, options or {})
        clock = self._clock = clock or SystemClock()
        self._follower = Follower(cluster, intake, clock)
        self._looking_back = LookingBack(cluster, self._follower.topic)
        self._recent = RecentResults(max(1, remembered), self._follower.positions)
        self._room = WaitingRoom(f"outcomes {intake}", self._recent, clock)
        self._mark_every = max(1, remembered // 4)
        self._stopping = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._read, name=f"outcomes {intake}", daemon=True)
        self._origin = Origin()
        keep_in_children(self)
        self._room.start()
        self._thread.start()

    def clients(self) -> list[object]:
        """Those that a forked process inherits."""
        return [*self._follower.clients(), *self._looking_back.clients()]

    def await_outcome(
        self, subject: Subject, timeout_s: float | None = None, *, since: datetime | None = None
    ) -> Result:
        """Wait until the message was delivered, cancelled, found to be a duplicate, or is dead.

        Args:
            subject: the message's receipt or its handle, or the receipt of a cancel, whose outcome is `cancelled`,
                `cancel-too-late`, or `dead` where its handle is none of the intake's.
            timeout_s: how long to wait; None: as long as it takes, and a message for a target that is away takes
                as long as that.
            since: of what was sent before this reader was made, or elsewhere: a time before which no result of it can
                have been written, when it was sent for example. It spares reading all that is older.

        Returns:
            The result, as the service wrote it.

        Raises:
            TimeoutError: the time is over. The message is still on its way, or what became of it was written longer
                ago than results are kept.
            HeaderError: no handle.
            UsageError: it is not of this intake.
            BrokerError: the results can't be read, or the reader was closed.
        """
        return self.outcome(subject, timeout_s, since=since).result()

    def outcome(
        self, subject: Subject, timeout_s: float | None = None, *, since: datetime | None = None
    ) -> Future[Result]:
        """Wait without blocking; otherwise as `await_outcome`.

        Returns:
            A future of the result, which fails as `await_outcome` does. Its callbacks run in a thread of the reader:
            they should be short, and may not close it. In a coroutine: `await asyncio.wrap_future(...)`. When it is
            cancelled nobody waits any more.

        Raises:
            HeaderError: no handle.
            UsageError: it is not of this intake.
            BrokerError: the results can't be read, or the reader was closed.
        """
        wanted = Wanted(Handle.parse(subject) if isinstance(subject, str) else subject)
        return self._begin(wanted, timeout_s, since).future

    def of_cancel(self, receipt: CancelReceipt, timeout_s: float) -> Iterator[Result]:
        """Wait for what comes of a cancel.

        Args:
            receipt: of the cancel.
            timeout_s: how long to wait in all.

        Yields:
            Its results, as the service wrote them: `cancel-filed`, where the message is still beyond the hot window;
            then the definite one: `cancelled`, `cancel-too-late`, or `dead` where the handle is none of the intake's.
            Nothing more once the time is over.

        Raises:
            UsageError: it is not of this intake.
            BrokerError: the results can't be read, or the reader was closed.
        """
        # Both wait from the beginning, so that the time is that of both.
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
        """How many operations wait."""
        return self._room.waiting

    @property
    def watched(self) -> int:
        """How many entries the purgatory's lists hold: of those that wait, and of settled ones until a purge."""
        return self._room.watched()

    @property
    def delayed(self) -> int:
        """How many operations stand in the purgatory's timing wheel."""
        return self._room.delayed()

    @property
    def remembered(self) -> int:
        """How many results are remembered."""
        return len(self._recent)

    def close(self) -> None:
        """End; what still waits fails. A second call does nothing. Not from a future's callback."""
        if self._closed or self._origin.is_elsewhere:
            return
        self._closed = True
        self._stopping.set()
        self._thread.join()
        self._room.fail(FatalError(f"the reader of {self._follower.topic} is closed"))
        self._room.shutdown()
        self._looking_back.close()
        self._follower.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, wanted: Wanted, timeout_s: float | None, since: datetime | None = None) -> AwaitedOutcome:
        self._origin.check("reader")
        handle = wanted.handle
        if handle.topic != self.intake or handle.partition not in self._follower.positions:
            raise UsageError(f"not of {self.intake}, or a partition that it did not have at the start: {handle}")
        operation = self._room.watch(wanted, timeout_s)
        # Only from here on: what was forgotten before it was watched must count.
        if not operation.is_settled:
            search = self._search(operation, since)
            if search is not None:
                self._looking_back.ask(search)
        return operation

    def _search(self, operation: AwaitedOutcome, since: datetime | None) -> Search | None:
        """What is to be looked for in the past; None: nothing of it can be there that is not remembered."""
        wanted = operation.wanted
        partition = wanted.handle.partition
        begin = None if wanted.offset is None else self._follower.begin_of(partition, wanted.offset)
        if begin is not None:
            return None if begin >= self._recent.begin(partition) else Search(operation, begin)
        if since is not None:
            return Search(operation, times_ms=[max(1, math.floor(since.timestamp() * 1_000))])
        return Search(operation, times_ms=[max(1, wanted.handle.due_ms), 0])

    def _read(self) -> None:
        """The thread: follow, and look back in between."""
        unmarked = mark_at_ms = 0
        try:
            while not self._stopping.is_set():
                unmarked += self._follower.read(0 if self._looking_back.is_busy else _POLL_S, self._arrive)
                if unmarked >= self._mark_every and self._clock.monotonic_ms() >= mark_at_ms:
                    unmarked, mark_at_ms = 0, self._clock.monotonic_ms() + _MARK_EVERY_MS
                    self._follower.mark()
                self._looking_back.step(self._follower.positions)
        except TarryError as error:
            self._room.fail(error)
        except BaseException as error:
            self._room.fail(FatalError(f"could not read {self._follower.topic}: {error!r}"))
            raise

    def _arrive(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is not None:
            self._room.arrive((partition, key), offset, value)
