"""One process of the service that stops at an exact step of a transaction: dead, or to be woken as a zombie.

`python -m tests.support.dying STEP COUNT SIGNAL CONFIG` is a `tarry serve` of one process without a supervisor,
made as `tarry.app` makes it but for the firing producer. From SIGUSR1 on the producer counts its transactions.
In the COUNT-th that gets so far, the process sends itself SIGNAL (KILL or STOP) at STEP, which is one of

    begun       a transaction is begun, and nothing is written
    produced    some of its records are in the log, no offset is
    offsets     its offsets are sent, all but the commit is done
    committing  within the first milliseconds of the commit
    committed   it is committed, and the process does not know it

Signals from outside hit some step or other; by this one a test names it.
"""

import argparse
import os
import random
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from confluent_kafka import Producer, TopicPartition

from tarry import app, logs
from tarry.clock import SystemClock
from tarry.config import load
from tarry.kafka.clients import LibraryClients, Properties
from tarry.supervisor import StopSignals
from tarry.worker import Worker

Step = Literal["begun", "produced", "offsets", "committing", "committed"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
LONGEST_COMMIT_S: Final = 0.004


class Fate:
    """Which step of which transaction is the last one.

    Args:
        step: where to stop.
        count: in which of the transactions that get there, counted from `arm`.
        number: the signal.
    """

    def __init__(self, step: Step, count: int, number: signal.Signals) -> None:
        self._step = step
        self._left = count
        self._number = number
        self._armed = False

    def arm(self, *_: object) -> None:
        """Begin to count."""
        self._armed = True

    def looms(self, step: Step) -> bool:
        """Whether this step is the one."""
        if not self._armed or step != self._step:
            return False
        self._left -= 1
        return self._left == 0

    def strike(self) -> None:
        """The end; or, with STOP, a long pause."""
        os.kill(os.getpid(), self._number)

    def strike_soon(self) -> None:
        """Strike from a thread, while this one commits."""
        after_s = random.Random().uniform(0, LONGEST_COMMIT_S)
        threading.Timer(after_s, self.strike).start()


class FatedProducer(Producer):
    """A producer whose process may stop between any two of its calls."""

    def __init__(self, properties: Properties, fate: Fate) -> None:
        super().__init__(properties)
        self._fate = fate
        self._is_empty = True

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._is_empty = True

    def produce(self, *arguments: Any, **named: Any) -> None:
        if self._is_empty and self._fate.looms("begun"):
            self._fate.strike()
        super().produce(*arguments, **named)
        if self._is_empty and self._fate.looms("produced"):
            self.flush()
            self._fate.strike()
        self._is_empty = False

    def send_offsets_to_transaction(self, positions: list[TopicPartition], *arguments: Any) -> None:
        super().send_offsets_to_transaction(positions, *arguments)
        if self._fate.looms("offsets"):
            self._fate.strike()

    def commit_transaction(self, *arguments: Any) -> None:
        if self._fate.looms("committing"):
            self._fate.strike_soon()
        super().commit_transaction(*arguments)
        if self._fate.looms("committed"):
            self._fate.strike()


class FatedClients(LibraryClients):
    """The client library's own, but for the firing producer."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def producer(self, properties: Properties) -> Producer:
        """A producer."""
        if str(properties["transactional.id"]).endswith("-fire"):
            return FatedProducer(properties, self._fate)
        return super().producer(properties)


def main() -> None:
    parser = argparse.ArgumentParser(description="serve until a step of a transaction, and stop there")
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("count", type=int)
    parser.add_argument("signal", choices=["KILL", "STOP"])
    parser.add_argument("config", type=Path)
    arguments = parser.parse_args()
    fate = Fate(arguments.step, arguments.count, signal.Signals[f"SIG{arguments.signal}"])
    signal.signal(signal.SIGUSR1, fate.arm)
    stop = StopSignals()
    config = load(arguments.config, os.environ)
    on_event = logs.configure(process=0).info
    app.prepare(config, adopt=False, on_event=on_event)
    plan = app.plan_of(config, 0)
    plan = replace(plan, cluster=replace(plan.cluster, clients=FatedClients(fate)))
    Worker(plan, SystemClock(), lambda: stop.asked, on_event).run()


if __name__ == "__main__":
    main()
