"""A `tarry api` that stops itself in the middle of a bulk act of dead letters.

`python -m tests.support.dying_api CONFIG` is a `tarry api`. From a SIGUSR1 it counts the transactions that handle dead
letters, and not those that only say how far an operation is. After the second commit, which it does not know of, it
kills itself, once it has answered the request that began the act. After SIGUSR2 it freezes there until SIGCONT. Its
last event is `struck`.

A signal from outside would come too late on a busy machine: after all letters are handled.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
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
ANSWERED_WITHIN_S: Final = 30.0


class _Doom:
    """A fate that comes only after the answer to the request that began the act."""

    def __init__(self, number: signal.Signals, on_event: Callable[..., None]) -> None:
        self._fate = Fate(COMMITTED, IN_TRANSACTION, number, on_event)
        self._answered = threading.Event()

    def arm(self, *_: object) -> None:
        self._answered = threading.Event()  # a new one: this is a handler of a signal, which must not wait for a lock
        self._fate.arm()

    def note(self, event: str, fields: Mapping[str, Any]) -> None:
        """Take an event of the API, which says that it has answered."""
        if event == "request" and fields["status"] == HTTPStatus.ACCEPTED:
            self._answered.set()

    def meet(self) -> None:
        """Called after each commit of letters."""
        if self._fate.looms(COMMITTED):
            self._answered.wait(ANSWERED_WITHIN_S)
            self._fate.strike()


class _FatedProducer(Producer):
    """A producer whose process may stop after the commit of letters."""

    def __init__(self, properties: Properties, dooms: Sequence[_Doom]) -> None:
        super().__init__(properties)
        self._dooms = dooms
        self._has_letters = False

    def begin_transaction(self) -> None:
        super().begin_transaction()
        self._has_letters = False

    def produce(self, topic: str, *arguments: Any, **named: Any) -> None:
        super().produce(topic, *arguments, **named)
        self._has_letters |= not topic.endswith(OPERATIONS)

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        if self._has_letters:
            for doom in self._dooms:
                doom.meet()


class _FatedClients(LibraryClients):
    def __init__(self, dooms: Sequence[_Doom]) -> None:
        self._dooms = dooms

    def producer(self, properties: Properties) -> Producer:
        if str(properties.get("transactional.id", "")).startswith(redrive_id("")):
            return _FatedProducer(properties, self._dooms)
        return super().producer(properties)


def main() -> None:
    speak = logs.speaker(logs.configure("info"))
    dooms = [_Doom(number, speak) for number in (signal.SIGKILL, signal.SIGSTOP)]

    def on_event(event: str, **fields: Any) -> None:
        speak(event, **fields)
        for doom in dooms:
            doom.note(event, fields)

    for number, doom in zip((signal.SIGUSR1, signal.SIGUSR2), dooms, strict=True):
        signal.signal(number, doom.arm)
    settings = load(Path(sys.argv[1]), os.environ)
    run(Parts(settings, cluster_of(settings, _FatedClients(dooms)), SystemClock(), on_event))


if __name__ == "__main__":
    main()
