"""A `tarry api` that stops itself in the middle of a bulk act of dead letters.

`python -m tests.support.dying_api CONFIG` is a `tarry api`. From a SIGUSR1 it counts the transactions that handle dead
letters, and not those that only say how far an operation is. After the second commit, which it does not know of, it
kills itself. After SIGUSR2 it freezes there until SIGCONT. Its last event is `struck`.

A signal from outside would come too late on a busy machine: after all letters are handled.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from tarry import logs
from tarry.api.app import run
from tarry.api.parts import Parts
from tarry.client.retry.redrive import redrive_id
from tarry.clock import SystemClock
from tarry.config import load
from tarry.kafka.clients import LibraryClients, Properties
from tarry.kafka.topics import OPERATIONS
from tarry.service.app import cluster_of
from tests.support.fate import Fate

COMMITTED: Final = "committed"
IN_TRANSACTION: Final = 2


class _FatedProducer(Producer):
    """A producer whose process may stop after the commit of letters."""

    def __init__(self, properties: Properties, fates: Sequence[Fate]) -> None:
        super().__init__(properties)
        self._fates = fates
        self._has_letters = False

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._has_letters = False

    def produce(self, topic: str, *arguments: Any, **named: Any) -> None:
        super().produce(topic, *arguments, **named)
        self._has_letters |= not topic.endswith(OPERATIONS)

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        for fate in self._fates:
            if self._has_letters and fate.looms(COMMITTED):
                fate.strike()


class _FatedClients(LibraryClients):
    def __init__(self, fates: Sequence[Fate]) -> None:
        self._fates = fates

    def producer(self, properties: Properties) -> Producer:
        if str(properties.get("transactional.id", "")).startswith(redrive_id("")):
            return _FatedProducer(properties, self._fates)
        return super().producer(properties)


def main() -> None:
    on_event = logs.speaker(logs.configure("info"))
    killed, frozen = (Fate(COMMITTED, IN_TRANSACTION, number, on_event) for number in (signal.SIGKILL, signal.SIGSTOP))
    signal.signal(signal.SIGUSR1, killed.arm)
    signal.signal(signal.SIGUSR2, frozen.arm)
    settings = load(Path(sys.argv[1]), os.environ)
    run(Parts(settings, cluster_of(settings, _FatedClients((killed, frozen))), SystemClock(), on_event))


if __name__ == "__main__":
    main()
