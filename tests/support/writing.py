"""An exclusive writer with a resumable source, as a process that kills itself at an exact step of its transactions.

`python -m tests.support.writing BOOTSTRAP TOPIC COUNT [STEP TIMES]` writes the positions from that of the topic's last
record up to COUNT, in batches of various sizes, and exits with 0. With STEP (of `tests.support.dying`) it kills itself
in the TIMES-th transaction that reaches this step.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tarry.client.exclusive import ExclusiveWriter, SourceRecord
from tarry.kafka.clients import LIBRARY, LibraryClients, Properties
from tests.support.dying import STEPS, FatedProducer, Step
from tests.support.fate import Fate

if TYPE_CHECKING:
    from confluent_kafka import Producer

SIZES = (1, 7, 40, 3, 120)


def record(position: int) -> SourceRecord:
    """Return the source's record at a position."""
    return SourceRecord(str(position), b"row %d" % position, b"key-%d" % (position % 5))


def run(
    bootstrap: str, topic: str, count: int, step: Step | None = None, times: int = 0, within_s: float = 60.0
) -> int:
    """Run a writing process; return its exit code."""
    command = [sys.executable, "-m", "tests.support.writing", bootstrap, topic, str(count)]
    command += [step, str(times)] if step else []
    return subprocess.run(command, cwd=Path(__file__).parents[2], timeout=within_s, check=False).returncode


class _FatedClients(LibraryClients):
    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def producer(self, properties: Properties) -> "Producer":
        """A producer."""
        return FatedProducer(properties, self._fate)


def main() -> None:
    parser = argparse.ArgumentParser(description="write from where the last record says")
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("step", nargs="?", choices=STEPS)
    parser.add_argument("times", nargs="?", type=int, default=1)
    arguments = parser.parse_args()
    fate = Fate(arguments.step or "", arguments.times, signal.SIGKILL, lambda *_, **__: None)
    fate.arm()
    clients = _FatedClients(fate) if arguments.step else LIBRARY
    with ExclusiveWriter(arguments.bootstrap, arguments.topic, clients=clients) as writer:
        last = writer.resume()
        position = 0 if last is None or last.position is None else int(last.position) + 1
        writes = 0
        while position < arguments.count:
            ends = min(position + SIZES[writes % len(SIZES)], arguments.count)
            writer.write(record(each) for each in range(position, ends))
            position, writes = ends, writes + 1


if __name__ == "__main__":
    main()
