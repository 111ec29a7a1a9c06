"""The transport of a process's requests to the cluster, and of the answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from confluent_kafka import KafkaError

from tarry.testing.fake.process import ClientProcess
from tarry.testing.fake.refusals import AnswerLost, Busy, RefusedRequest, Unanswered
from tarry.testing.fake.server import Server
from tarry.testing.fake.steps import Fate, Step

FOR_EVER_MS = 24 * 3600 * 1000
"""The longest time that a call without a timeout waits, so that a simulation always ends."""

Answer = TypeVar("Answer")


class WouldWait(BaseException):
    """A request would have to wait inside `Wire.without_waiting`."""


class Wire:
    """The connections of one process.

    The cluster executes each request as a whole between its two steps. At a step, other processes may run, and this one
    may be killed; the wire checks that after each step.

    Args:
        server: the cluster.
        process: the process of the clients.
    """

    def __init__(self, server: Server, process: ClientProcess) -> None:
        self.server = server
        self.process = process
        self.clock = server.clock
        self._hurried_since_ms: int | None = None

    @contextmanager
    def without_waiting(self, since_ms: int) -> Iterator[None]:
        """Raise `WouldWait` if a request inside the block would wait.

        Args:
            since_ms: the monotonic time when the call inside the block was first tried; its timeouts count from it.
        """
        self._hurried_since_ms = since_ms
        try:
            yield
        finally:
            self._hurried_since_ms = None

    def ask(
        self,
        call: str,
        do: Callable[[], Answer],
        timeout_ms: int | None = None,
        group: str | None = None,
        busy_ms: int | None = None,
        transaction: str = "",
    ) -> Answer:
        """Make a request, and wait for its answer by advancing the clock.

        Args:
            call: the name of its steps.
            do: executes the request in the cluster.
            timeout_ms: how long to wait; None: without a limit.
            group: the group to whose coordinator the request goes.
            busy_ms: how long to repeat the request while it is `Busy`; None: until the timeout.
            transaction: the transactional id, if the request belongs to a transaction.

        Raises:
            Refused: the answer is an error.
            Unanswered: the cluster did not answer within the timeout.
            Busy: the request was still `Busy` at the timeout.
            AnswerLost: the cluster has executed the request, but the answer was lost.
            ProcessKilled: the process was killed meanwhile.
        """
        hurried_since_ms = self._hurried_since_ms
        begins_ms = self.clock.monotonic_ms() if hurried_since_ms is None else hurried_since_ms
        ends_ms = begins_ms + (FOR_EVER_MS if timeout_ms is None else timeout_ms)
        fate = self._step(call, "before", transaction)
        self.clock.advance(self.server.draw_latency_ms())
        if fate is Fate.WANT_ABORT:
            raise RefusedRequest(KafkaError.TRANSACTION_ABORTABLE)
        while True:
            self._wait(lambda: self.server.answers(group), ends_ms, Unanswered())
            try:
                answer, refusal = do(), None
            except Busy as busy:
                self._wait(busy.over, ends_ms if busy_ms is None else begins_ms + busy_ms, busy)
                continue
            except RefusedRequest as error:
                refusal = error
            break
        if self._step(call, "after", transaction) is Fate.LOSE_ANSWER:
            raise AnswerLost
        if refusal is not None:
            raise refusal
        return answer

    def ask_until_answered(
        self,
        call: str,
        do: Callable[[], Answer],
        timeout_ms: int | None = None,
        group: str | None = None,
        busy_ms: int | None = None,
        transaction: str = "",
    ) -> Answer:
        """Make a request as `ask` does, and repeat it if its answer is lost."""
        while True:
            try:
                return self.ask(call, do, timeout_ms, group, busy_ms, transaction)
            except AnswerLost:
                self.clock.advance(1)

    def try_in_background(
        self, call: str, do: Callable[[], Answer], group: str | None = None, transaction: str = ""
    ) -> Answer:
        """Make a request as a background thread of the client does, without waiting.

        Raises:
            Refused: the answer is an error.
            Unanswered: the cluster does not answer now.
            Busy: the request cannot be executed now.
            AnswerLost: the cluster has executed the request, but the answer was lost.
            ProcessKilled: the process was killed meanwhile.
        """
        if not self.server.answers(group):
            raise Unanswered
        return self.ask(call, do, 0, group, transaction=transaction)

    def _wait(self, condition: Callable[[], bool], ends_ms: int, silence: Exception) -> None:
        while not condition():
            if self.clock.monotonic_ms() >= ends_ms:
                raise silence
            if self._hurried_since_ms is not None:
                raise WouldWait
            # Time alone, without a scheduled call, may make a condition true: check it every 100 ms.
            self.clock.advance_until(condition, min(ends_ms, self.clock.monotonic_ms() + 100))
        self.process.must_live()

    def _step(self, call: str, phase: Literal["before", "after"], transaction: str) -> Fate | None:
        self.process.must_live()
        self.server.steps += 1
        hook = self.process.hook
        fate = None
        if hook is not None:
            fate = hook(Step(self.process.name, call, phase, self.server.steps, transaction))
        self.process.must_live()
        return fate
