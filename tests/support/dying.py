"""A service process that stops itself at an exact step of a transaction: killed, or frozen until a test continues it.

`python -m tests.support.dying STEP COUNT SIGNAL CONFIG` is a `tarry serve` of one process without a supervisor, made by
`tarry.service.app` except for the firing producer. After SIGUSR1 the producer counts its transactions. In the COUNT-th
transaction that reaches STEP, the process sends itself SIGNAL (KILL or STOP). STEP is one of

    begun       a transaction has begun, and nothing is written
    produced    some of its records are in the log, but no offset
    offsets     its offsets are sent; only the commit is missing
    committing  within the first milliseconds of the commit
    committed   it is committed, but the process does not know it

or, with the overflow wheel, a phase of `tests.support.phases`, counted in the same way. Its last event is `struck`.
Without SIGUSR1 it serves like any other process, and logs in each turn the maximum memory of held messages.

A signal from outside hits a random step; with this program a test can choose the step.
"""

import argparse
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tarry import logs
from tarry.clock import SystemClock
from tarry.config import load
from tarry.kafka.clients import LibraryClients, Properties
from tarry.service import app
from tarry.service.supervisor import StopSignals
from tarry.service.worker import Worker
from tests.support.fate import Fate
from tests.support.phases import PHASES, PhasedAdmin, PhasedConsumer, PhasedProducer

Step = Literal["begun", "produced", "offsets", "committing", "committed"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)

MOST_HELD: Final = "most_held"
"""The event that reports the memory of held messages when it is clearly more than ever before."""

HELD_STEP_BYTES: Final = 2**20


class FatedProducer(PhasedProducer):
    """A producer whose process may stop between any two of its calls."""

    def __init__(self, properties: Properties, fate: Fate) -> None:
        super().__init__(properties, fate, "firing")
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
    """The client library's own clients, except those whose calls are steps or phases."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def producer(self, properties: Properties) -> Producer:
        """A producer."""
        name = str(properties.get("transactional.id", ""))
        if re.search(r"-fire(-[0-9]+)?$", name):
            return FatedProducer(properties, self._fate)
        if name.endswith("-file"):
            return PhasedProducer(properties, self._fate, "filing")
        return super().producer(properties)

    def consumer(self, properties: Properties) -> Consumer:
        """A consumer."""
        return PhasedConsumer(properties, self._fate)

    def admin(self, properties: Mapping[str, Any]) -> AdminClient:
        """An admin client."""
        return PhasedAdmin(dict(properties), self._fate)


def main() -> None:
    parser = argparse.ArgumentParser(description="serve until a step of a transaction, and stop there")
    parser.add_argument("step", choices=[*STEPS, *PHASES])
    parser.add_argument("count", type=int)
    parser.add_argument("signal", choices=["KILL", "STOP"])
    parser.add_argument("config", type=Path)
    arguments = parser.parse_args()
    on_event = logs.configure(process=0).info
    fate = Fate(arguments.step, arguments.count, signal.Signals[f"SIG{arguments.signal}"], on_event)
    signal.signal(signal.SIGUSR1, fate.arm)
    stop = StopSignals()
    config = load(arguments.config, os.environ)
    app.prepare(config, adopt=False, on_event=on_event)
    plan = app.plan_of(config, 0)
    plan = replace(plan, cluster=replace(plan.cluster, clients=FatedClients(fate)))
    most_held = 0

    def stopping() -> bool:
        """Called once a turn; measures the memory of held messages."""
        nonlocal most_held
        held = sum(state.held_bytes for state in worker.look().states.values())
        if held > most_held + HELD_STEP_BYTES:
            most_held = held
            on_event(MOST_HELD, held_bytes=held)
        return stop.asked

    worker = Worker(plan, SystemClock(), stopping, on_event)
    worker.run()


if __name__ == "__main__":
    main()
