"""How requests of a process get to the cluster, and how their answers get back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

from confluent_kafka import KafkaError

from tarry.testing.fake.process import Process
from tarry.testing.fake.refusals import AnswerLost, Busy, Refused, Unanswered
from tarry.testing.fake.server import Server
from tarry.testing.fake.steps import Fate, Step

FOR_EVER_MS = 24 * 3600 * 1000
"""What a call without a time-out waits at most: longer, and the simulation would never end."""

Answer = TypeVar("Answer")


class WouldWait(BaseException):
    """A request would have to wait, where nothing may."""


class Wire:
    """The connections of one process.

    Each request is done in one piece between its two steps. Whatever happens at a step (other processes may run, this
    one may be killed) is looked at afterwards.

    Args:
        server: the cluster.
        process: whose they are.
    """

    def __init__(self, server: Server, process: Process) -> None:
        self.server = server
        self.process = process
        self.clock = server.clock
        self._hurried_since_ms: int | None = None

    @contextmanager
    def without_waiting(self, since_ms: int) -> Iterator[None]:
        """Raise `WouldWait` inside, where a request would wait.

        Args:
            since_ms: monotonic: when what is done inside was begun first; its time-outs count from there.
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
    ) -> Answer:
        """Make a request and wait for its answer, moving the clock.

        Args:
            call: the name of its steps.
            do: what the cluster does.
            timeout_ms: how long to wait; None: for ever.
            group: whose coordinator it is for.
            busy_ms: how long to ask again where the answer is: not yet; None: for the whole time-out.

        Raises:
            Refused: the answer.
            Unanswered: it could not be done within the time-out.
            Busy: it was to be asked again until the time-out.
            AnswerLost: it is done.
            ProcessKilled: meanwhile.
        """
        hurried_since_ms = self._hurried_since_ms
        begins_ms = self.clock.monotonic_ms() if hurried_since_ms is None else hurried_since_ms
        ends_ms = begins_ms + (FOR_EVER_MS if timeout_ms is None else timeout_ms)
        fate = self._step(call, "before")
        self.clock.advance(self.server.draw_latency_ms())
        if fate is Fate.WANT_ABORT:
            raise Refused(KafkaError.TRANSACTION_ABORTABLE)
        while True:
            self._wait(lambda: self.server.answers(group), ends_ms, Unanswered())
            try:
                answer, refusal = do(), None
            except Busy as busy:
                self._wait(busy.over, ends_ms if busy_ms is None else begins_ms + busy_ms, busy)
                continue
            except Refused as error:
                refusal = error
            break
        if self._step(call, "after") is Fate.LOSE_ANSWER:
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
    ) -> Answer:
        """Make a request that may be made again where its answer is lost; else as `ask`."""
        while True:
            try:
                return self.ask(call, do, timeout_ms, group, busy_ms)
            except AnswerLost:
                self.clock.advance(1)

    def try_in_background(self, call: str, do: Callable[[], Answer], group: str | None = None) -> Answer:
        """Make a request that a thread of the client makes, and that nobody waits for.

        Raises:
            Refused: the answer.
            Unanswered: not now.
            Busy: not now.
            AnswerLost: it is done.
            ProcessKilled: meanwhile.
        """
        if not self.server.answers(group):
            raise Unanswered
        return self.ask(call, do, 0, group)

    def _wait(self, condition: Callable[[], bool], ends_ms: int, silence: Exception) -> None:
        while not condition():
            if self.clock.monotonic_ms() >= ends_ms:
                raise silence
            if self._hurried_since_ms is not None:
                raise WouldWait
            # A condition may come with time alone: look at it now and then.
            self.clock.advance_until(condition, min(ends_ms, self.clock.monotonic_ms() + 100))
        self.process.must_live()

    def _step(self, call: str, phase: Literal["before", "after"]) -> Fate | None:
        self.process.must_live()
        self.server.steps += 1
        hook = self.process.hook
        fate = hook(Step(self.process.name, call, phase, self.server.steps)) if hook is not None else None
        self.process.must_live()
        return fate
